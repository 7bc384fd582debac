"""Tokenization of a corpus: the files of a tokenizer, and the token ids of texts.

    tokenizer.json -> Tokenization -> tokenize(texts) -> ids of each text, without special tokens

`common.fast_tokenizer` computes the ids. To check them, the ids of a sample of the texts of each work unit are compared
with the ids that the library `tokenizers` gives.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import orjson
from tokenizers import Tokenizer

from clearspan.common import fast_tokenizer
from clearspan.common.errors import PipelineError
from clearspan.common.fast_tokenizer import FastTokenizer, TokenizerError
from clearspan.common.ragged import Ragged
from clearspan.common.token_ids import vocab_size
from clearspan.shards import storage, token_type
from clearspan.shards.manifest import TOKENIZER_FOLDER, TokenizerInfo

MAIN = "tokenizer.json"
CONFIG = "tokenizer_config.json"
BESIDE = (CONFIG, "special_tokens_map.json")
BACKENDS = ("auto", "tokenizers")
"""Choices of --tokenization: `auto` for a faster way if it gives the same ids, or `tokenizers` for all texts."""
PROOF_FRACTION = 0.001
PROOF_CHARACTERS = 1 << 16
"""Size of a work unit's sample: PROOF_FRACTION of its characters, or PROOF_CHARACTERS if that is more. Only the sample
is tokenized twice, in a few per cent of the time.
"""
PROOF_LONGEST = 1 << 20
"""Maximum number of characters of a text that are checked, because `tokenizers` takes at least a hundred bytes of
memory per token.
"""


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The files of a tokenizer.

    Attributes:
        files: file name -> content.
        vocab_size: a number that is greater than all token ids.
    """

    files: dict[str, bytes]
    vocab_size: int

    @classmethod
    def of(cls, resources: Mapping[str, bytes]) -> "TokenizerFiles":
        """Return the tokenizer among a dataset's resources.

        Args:
            resources: path in the dataset's folder -> bytes. They must contain a tokenizer.json.

        Raises:
            PipelineError: the bytes are not a tokenizer.json, or an id is far larger than the number of tokens.
        """
        folder = f"{TOKENIZER_FOLDER}/"
        files = {path.removeprefix(folder): data for path, data in resources.items() if path.startswith(folder)}
        return cls(files, vocab_size_of(files[MAIN]))

    @staticmethod
    def main(resources: Mapping[str, bytes]) -> bytes:
        """Return the bytes of tokenizer.json among a dataset's resources (path in the dataset's folder -> bytes)."""
        return resources[f"{TOKENIZER_FOLDER}/{MAIN}"]

    @property
    def resources(self) -> dict[str, bytes]:
        """The files as resources of a dataset: path in the dataset's folder -> bytes."""
        return {f"{TOKENIZER_FOLDER}/{name}": data for name, data in self.files.items()}

    @property
    def info(self) -> TokenizerInfo:
        """The tokenizer's entry in a dataset's manifest: the hashes of its files, and `vocab_size`."""
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        return TokenizerInfo(sums[MAIN], self.vocab_size, sums)


def read_tokenizer(path: str) -> TokenizerFiles:
    """Read a tokenizer.json, or the folder that holds one, on this machine or on an object store.

    Raises:
        PipelineError: there is no tokenizer.json, or `tokenizers` cannot read it.
    """
    beside = storage.file_sizes(path)  # empty for a file
    paths = {name: storage.join(path, name) for name in (MAIN, *BESIDE) if name in beside}
    if not beside and storage.exists(path) and not storage.is_folder(path):
        paths = {MAIN: path}
    if MAIN not in paths:
        raise PipelineError(
            f"`tokenizer` {path}: no {MAIN} there: name that file or its folder, fetch one from the Hugging Face hub "
            "by hf:ORG/NAME, learn one with `clearspan vocabulary`, or save a model's: "
            "AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"
        )
    files = {name: storage.read_bytes(file) for name, file in paths.items()}
    return TokenizerFiles(files, vocab_size_of(files[MAIN], paths[MAIN]))


@functools.lru_cache(maxsize=2)
def vocab_size_of(data: bytes, name: str = MAIN) -> int:
    """Return a number that is greater than all token ids of a tokenizer.json.

    Args:
        data: the content of tokenizer.json.
        name: the name of the file, for error messages.

    Raises:
        PipelineError: the bytes are not a tokenizer.json, or an id is far larger than the number of tokens.
    """
    try:
        return vocab_size(fast_tokenizer.parse(data).get_vocab(with_added_tokens=True))
    except ValueError as error:
        raise PipelineError(f"{name}: {error}") from None


def with_special_token(tokenizer: TokenizerFiles, token: str) -> TokenizerFiles:
    """Return the tokenizer with one more special token. If it has the special token already, it is returned unchanged.

    Raises:
        PipelineError: the token is an added token of the tokenizer, but not a special one, or `tokenizers` gives it the
            id of a different token.
    """
    extended = fast_tokenizer.parse(tokenizer.files[MAIN])
    existing = [added for added in extended.get_added_tokens_decoder().values() if added.content == token]
    if existing and not existing[0].special:
        raise PipelineError(f"{token} is an added token of the tokenizer, but not a special token: mark it as special")
    if existing:
        return tokenizer
    used_ids = set(extended.get_vocab(with_added_tokens=True).values())
    old_id = extended.token_to_id(token)
    extended.add_special_tokens([token])
    number = extended.token_to_id(token)
    if number in used_ids and number != old_id:
        raise PipelineError(f"{token} cannot be added to the tokenizer: its vocabulary has gaps, and uses id {number}")
    # Edit the JSON rather than write Tokenizer.to_str, whose form changes with the version of the library.
    record = orjson.loads(tokenizer.files[MAIN])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    record["added_tokens"] = [*record.get("added_tokens", []), {"id": number, "content": token, **flags}]
    data = orjson.dumps(record, option=orjson.OPT_INDENT_2)
    return TokenizerFiles({**tokenizer.files, MAIN: data}, vocab_size_of(data))


def with_prefix_space(tokenizer: TokenizerFiles) -> TokenizerFiles:
    """Return the tokenizer with the setting `add_prefix_space` on.

    The first word of a text then has the same ids as a later word. If the setting is on already, the files are
    unchanged.

    Raises:
        PipelineError: the tokenizer lacks the setting because it is not byte-level, or its configuration is not
            readable.
    """
    files = dict(tokenizer.files)
    record = orjson.loads(files[MAIN])
    before, after = (record.get(name) or {} for name in ("pre_tokenizer", "post_processor"))
    step = (before.get("pretokenizers") or [before])[0]
    if step.get("type") != "ByteLevel":
        kind = step.get("type") or "nothing"
        raise PipelineError(
            f"`prefix_space`: the tokenizer lacks this setting (its pre_tokenizer is {kind}, not ByteLevel "
            "as in RoBERTa or GPT-2): leave it out"
        )
    if not step["add_prefix_space"]:
        processors = (entry for entry in after.get("processors", [after]) if "add_prefix_space" in entry)
        for entry in (step, *processors):
            entry["add_prefix_space"] = True
        files[MAIN] = orjson.dumps(record, option=orjson.OPT_INDENT_2)
    if CONFIG in files:  # transformers uses this file's setting if the two files differ
        try:
            config = dict(orjson.loads(files[CONFIG]))
        except (ValueError, TypeError) as error:
            raise PipelineError(f"{CONFIG} of the tokenizer: not a JSON object: {error}") from None
        if config.get("add_prefix_space") is not True:
            files[CONFIG] = orjson.dumps({**config, "add_prefix_space": True}, option=orjson.OPT_INDENT_2)
    return TokenizerFiles(files, tokenizer.vocab_size)


def _load(data: bytes, prompts: Iterable[str] = (), name: str = f"{TOKENIZER_FOLDER}/{MAIN}") -> Tokenizer:
    """Create a tokenizer from the content of a tokenizer.json, without padding, BPE dropout and truncation.

    Args:
        prompts: the model's prompts. If one of them spells out a special token, the tokenizer recognizes special tokens
            in texts; otherwise it reads a special token in a text as plain text.
        name: the name of the file, for error messages.

    Raises:
        PipelineError: the bytes are not a tokenizer.json.
    """
    try:
        return fast_tokenizer.load_tokenizer(data, prompts=prompts)
    except TokenizerError as error:
        raise PipelineError(f"{name}: {error}") from None


class Tokenization:
    """Tokenization of texts, with exactly the ids of transformers' tokenizer.

    These are the ids with `add_special_tokens=False` and `split_special_tokens=True`: a special token that a text
    spells out is read as ordinary text. If one of the prompts spells out a special token, however, special tokens are
    recognized in all texts.

    Args:
        data: the bytes of tokenizer.json.
        vocab_size: a number that is greater than all token ids; None to compute it from the tokenizer.
        backend: "auto" to use a faster method than the library `tokenizers` if it gives the same ids; "tokenizers" to
            use the library for all texts.
        prompts: the prompts that callers put before texts; they are not added here.

    Raises:
        PipelineError: the bytes are not a tokenizer.json.

    Attributes:
        tokenizer: the tokenizer of the library `tokenizers`.
        byte_level: whether a text never has more ids than UTF-8 bytes.
        dtype: type of the ids, uint16 or uint32.
    """

    def __init__(
        self, data: bytes, vocab_size: int | None = None, backend: str = "auto", prompts: Iterable[str] = ()
    ) -> None:
        self.tokenizer = _load(data, prompts)
        self.dtype = np.dtype(str(token_type(vocab_size_of(data) if vocab_size is None else vocab_size)))
        self.byte_level = _is_byte_level(self.tokenizer)
        self._ids = FastTokenizer(self.tokenizer, self.dtype, fast=backend == "auto")
        self.start_unit()

    def start_unit(self) -> None:
        """Begin a new work unit, and with it a new sample of texts whose ids are checked.

        The sample then depends only on the texts of this unit.
        """
        self._seen = self._proved = 0

    def tokenize(self, texts: Sequence[str], sources: Sequence[str]) -> Ragged:
        """Return the token ids of each text, without special tokens.

        Args:
            sources: for each text, the file and place that it was read from, for error messages.

        Raises:
            PipelineError: a text cannot be tokenized; or the library `tokenizers` gives different ids for a text of the
                sample that is checked.
        """
        try:
            return self._proven(texts, sources) if self._ids.is_fast else self._ids.exact(texts)
        except TokenizerError as error:
            raise PipelineError(str(error)) from None

    def _proven(self, texts: Sequence[str], sources: Sequence[str]) -> Ragged:
        ids = self._ids.quick(texts)
        sample = self._sample(texts)
        heads = [texts[index][:PROOF_LONGEST] for index in sample]
        cut = any(len(texts[index]) > PROOF_LONGEST for index in sample)
        quick = self._ids.quick(heads) if cut else ids.take(np.array(sample, np.int64))
        expected = self._ids.exact(heads)
        for number, index in enumerate(sample):
            if not np.array_equal(quick[number], expected[number]):
                raise PipelineError(
                    f"{sources[index]}: fast tokenization and tokenizers give different ids for this text: run again "
                    f"with `tokenization` tokenizers, in another `output`"
                )
        return ids

    def _sample(self, texts: Sequence[str]) -> list[int]:
        """Return the indices of the texts whose ids are to be checked with the library `tokenizers`.

        Whether a text is checked depends on its length and on the lengths of all earlier texts of the work unit, but
        not on how the texts are divided into calls.
        """
        sample = []
        for index, length in enumerate(map(len, texts)):
            self._seen += length
            if self._proved == 0 or self._proved + length <= max(PROOF_CHARACTERS, PROOF_FRACTION * self._seen):
                self._proved += length
                sample.append(index)
        return sample


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer is a byte-level BPE that adds nothing to a text.

    Each id then stands for at least one byte of the text.
    """
    record = orjson.loads(tokenizer.to_str())
    pre = record["pre_tokenizer"] or {}
    steps = pre.get("pretokenizers", [pre])
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    return (
        record["model"]["type"] == "BPE"
        and record["normalizer"] is None
        and len(byte_level) == 1
        and not byte_level[0]["add_prefix_space"]
        and all(step["type"] in ("ByteLevel", "Split", "Digits") for step in steps)
    )
