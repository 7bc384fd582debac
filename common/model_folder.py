"""The files of a model folder that are not weights: read within bounds and checked before a library reads them.

Libraries accept settings of the wrong type, and tokenizers that belong to another model, without a warning. Both the
trainer and the evaluator check a folder here first. `common.pretrained` loads and checks the weights.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 1 << 24
"""Size limit of a JSON file of settings."""
MEND = "copy the complete folder from its source again"
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_BYTES = 1 << 27
"""Size limit of a tokenizer file: twice the size of the largest vocabularies in use, of a million tokens."""
SPARE = 1024
"""Difference between the numbers of tokens and embeddings that is always accepted.

Embedding tables are padded to a multiple of 64, 128 or more; some tokenizers list added tokens that no text yields.
"""
MOST_MISSING = 0.01
"""Share of a vocabulary file's tokens that its tokenizer may lack, e.g. lines that cannot be tokens."""


class EncoderError(ValueError):
    """Error for a folder, file, function or setting that yields no usable encoder; says why and what to do."""


def read_json(path: Path, shape: type = dict, most_bytes: int = MOST_BYTES) -> Any:
    """Return the content of a JSON file of settings.

    Raises:
        EncoderError: the file cannot be read, or its top-level value is not a `shape`.
    """
    try:
        if path.stat().st_size > most_bytes:
            raise EncoderError(f"{path}: more than {most_bytes:,} bytes, too large for a file of settings")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise EncoderError(f"{path}: cannot be read as JSON (nested too deep)") from None
    except EncoderError:
        raise
    except ValueError as error:
        raise EncoderError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, shape):
        raise EncoderError(f"{path}: holds a {type(content).__name__}, expected a {shape.__name__}")
    return content


def some(names: list[str]) -> str:
    """Return the first three names of a list, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


class Module(NamedTuple):
    """One entry of sentence-transformers' `modules.json`: the module's name, the name of its class, and its folder."""

    name: str
    kind: str
    folder: Path


def read_modules(folder: Path) -> list[Module]:
    """Return the modules of a sentence-transformers folder; an empty list for a plain Hugging Face folder.

    Raises:
        EncoderError: sentence-transformers does not write such a list, or the list names code outside the library.
    """
    path, keys = folder / "modules.json", ("name", "type", "path")
    if not path.is_file():
        return []
    modules = read_json(path, list)
    if not modules or not all(isinstance(module, dict) and module.keys() >= {*keys} for module in modules):
        raise EncoderError(f"{path}: expected a list of modules, each with name, type and path")
    if not all(isinstance(module[key], str) for module in modules for key in keys):
        raise EncoderError(f"{path}: a module's name, type and path must be strings")
    for module in modules:
        if not module["type"].startswith("sentence_transformers."):
            raise EncoderError(
                f"{path}: the module {module['type']!r} is not part of sentence-transformers: other code is never run"
            )
    return [Module(entry["name"], entry["type"].rsplit(".", 1)[-1], folder / entry["path"]) for entry in modules]


def check_tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files that hold a tokenizer's tokens.

    Without such a file, transformers would create an empty tokenizer.

    Raises:
        EncoderError: the folder has no such file, or a tokenizer file is too large or malformed.
    """
    present = [name for name in VOCABULARIES if (folder / name).is_file()]
    if not present:
        raise EncoderError(f"{folder}: no tokenizer here; it has none of {', '.join(VOCABULARIES)}")
    for name in present:
        if (folder / name).stat().st_size > TOKENIZER_BYTES:
            raise EncoderError(f"{folder / name}: more than {TOKENIZER_BYTES:,} bytes, too large for a tokenizer")
    for name in TOKENIZER_SETTINGS:
        if (folder / name).is_file():
            read_json(folder / name)
    return present


def check_tokenizer(folder: Path, vocabulary: Mapping[str, int], num_embeddings: int) -> None:
    """Refuse a tokenizer that does not belong to the model beside it.

    The numbers of embeddings and tokens may differ. This function refuses:

    - more than twice as many embeddings as tokens, or fewer embeddings than tokens, both beyond `SPARE`;
    - a token whose id differs from the one in the folder's `vocab.txt` or `vocab.json`;
    - a tokenizer that lacks more than `MOST_MISSING` of the tokens of such a file;
    - a `merges.txt` whose merges do not produce the tokens of `vocab.json`: with merges missing, words fall apart into
      letters. The file is checked only where it is used, i.e. without a `tokenizer.json`.

    A vocabulary file whose lines are not tokens (PhoBERT's also hold counts) is not compared. A wrong tokenizer of
    similar size without a vocabulary file beside it is not detected.

    Args:
        vocabulary: token -> id of the tokenizer that was loaded from the folder, added tokens included.
        num_embeddings: rows of the model's input embeddings.

    Raises:
        EncoderError: the message names both numbers, or the file and a token.
    """
    num_tokens = len(vocabulary)
    if num_embeddings > 2 * num_tokens + SPARE or num_tokens > num_embeddings + SPARE:
        raise EncoderError(
            f"{folder}: its tokenizer has {num_tokens:,} tokens, and its model {num_embeddings:,} embeddings: they "
            f"do not belong together: {MEND}"
        )
    for name in ("vocab.txt", "vocab.json"):
        if not (folder / name).is_file():
            continue
        ids = _ids_by_token(folder / name)
        common = [token for token in ids if token in vocabulary]
        differing = [token for token in common if vocabulary[token] not in ids[token]]
        if differing:
            token = differing[0]
            raise EncoderError(
                f"{folder}: its tokenizer and {name} give {len(differing):,} of {len(common):,} tokens different ids, "
                f"e.g. {token[:40]!r} {vocabulary[token]:,} and {min(ids[token]):,}: {MEND}"
            )
        missing = len(ids) - len(common)
        if common and missing > MOST_MISSING * len(ids):
            raise EncoderError(
                f"{folder}: its tokenizer has {num_tokens:,} tokens and lacks {missing:,} of the {len(ids):,} in "
                f"{name}: {MEND}"
            )
        if name == "vocab.json" and (folder / "merges.txt").is_file() and not (folder / "tokenizer.json").is_file():
            _check_merges(folder / "merges.txt", ids)


def _check_merges(path: Path, vocabulary: Collection[str]) -> None:
    """Raise EncoderError if merges leave out more than `MOST_MISSING` of a vocabulary's tokens of several letters."""
    try:
        merges = [line.split() for line in path.read_text(encoding="utf-8").split("\n")]
    except ValueError as error:
        raise EncoderError(f"{path}: cannot be read as UTF-8 ({error})") from None
    merged = {_letters(left + right) for left, right, *_ in (merge for merge in merges if len(merge) > 1)}
    tokens = {token for token in map(_letters, vocabulary) if len(token) > 1}
    if len(tokens - merged) > MOST_MISSING * len(tokens):
        raise EncoderError(
            f"{path}: lacks the merges for {len(tokens - merged):,} of the {len(tokens):,} tokens of several "
            f"letters in vocab.json: {MEND}"
        )


def _letters(token: str) -> str:
    """Return a BPE token without the marker for the end (`</w>`) or the continuation (`@@`) of a word."""
    return token.removesuffix("</w>").removesuffix("@@")


def _ids_by_token(path: Path) -> dict[str, set[int]]:
    """Return the ids of each token in a vocabulary file; a token that `vocab.txt` repeats has several."""
    if path.suffix == ".json":
        content = read_json(path, dict, TOKENIZER_BYTES)
        return {token: {number} for token, number in content.items() if isinstance(number, int)}
    ids: dict[str, set[int]] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                # Libraries differ in whether they strip trailing white space from a token.
                for token in {line.rstrip("\n"), line.rstrip()} - {""}:
                    ids.setdefault(token, set()).add(number)
    except ValueError as error:
        raise EncoderError(f"{path}: cannot be read as UTF-8 ({error})") from None
    return ids
