"""The files of a model folder that are not weights: read within bounds and checked before a library reads them.

Libraries accept settings of the wrong type, and tokenizers that belong to another model, without a warning. Both the
trainer and the evaluator check a folder here first. The weights are `common.pretrained`'s.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 1 << 24
"""Of one JSON file of settings."""
MEND = "take the whole folder from its source again"
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_BYTES = 1 << 27
"""Of one file of a tokenizer. The largest vocabularies in use, of a million tokens, take half of it."""

SPARE = 1024
"""Embeddings are padded to a multiple of 64, 128 or more; some tokenizers list added tokens that no text gives."""
MOST_MISSING = 0.01
"""Share of a vocabulary file's tokens that its tokenizer may lack, such as a line that cannot be a token."""


class EncoderError(ValueError):
    """A folder, file, function or configuration that gives no usable encoder. The message says why and what to do."""


def read_json(path: Path, shape: type = dict, most_bytes: int = MOST_BYTES) -> Any:
    """The content of a JSON file of settings.

    Raises:
        EncoderError: it cannot be read, or holds something else than a `shape`.
    """
    try:
        if path.stat().st_size > most_bytes:
            raise EncoderError(f"{path}: more than {most_bytes:,} bytes, which is no file of settings")
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
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


class Module(NamedTuple):
    """One line of a sentence-transformers folder's list of modules: its name, its class and where its files lie."""

    name: str
    kind: str
    folder: Path


def read_modules(folder: Path) -> list[Module]:
    """The modules of a sentence-transformers folder; none of a plain Hugging Face folder.

    Raises:
        EncoderError: the list is not what sentence-transformers writes, or names code of the folder's own.
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
            raise EncoderError(f"{path}: the module {module['type']!r} is code of the folder's own, which is never run")
    return [Module(one["name"], one["type"].rsplit(".", 1)[-1], folder / one["path"]) for one in modules]


def check_tokenizer_files(folder: Path) -> list[str]:
    """The names of the files that hold a tokenizer's tokens; where there is none, transformers makes an empty one up.

    Raises:
        EncoderError: there is none, or a file is not what a tokenizer's is.
    """
    there = [name for name in VOCABULARIES if (folder / name).is_file()]
    if not there:
        raise EncoderError(f"{folder}: no tokenizer here (none of {', '.join(VOCABULARIES)})")
    for name in there:
        if (folder / name).stat().st_size > TOKENIZER_BYTES:
            raise EncoderError(f"{folder / name}: more than {TOKENIZER_BYTES:,} bytes, which no tokenizer has")
    for name in TOKENIZER:
        if (folder / name).is_file():
            read_json(folder / name)
    return there


def check_tokenizer(folder: Path, vocabulary: Mapping[str, int], num_embeddings: int) -> None:
    """Refuse a tokenizer that does not belong to the model beside it.

    A model may have more embeddings than its tokenizer has tokens, and the reverse. Refused are: more than twice as
    many embeddings as tokens, or fewer embeddings than tokens, both beyond `SPARE`; and another id for a token, or
    none for more than `MOST_MISSING` of the tokens, than `vocab.txt` or `vocab.json` in the folder says. Files whose
    lines are not tokens (PhoBERT's have a count) are not compared. `merges.txt`, where it parts words, must make the
    tokens of `vocab.json`: with some of the merges words become letters. Not caught: a vocabulary of a like size
    without such a file beside it.

    Args:
        vocabulary: token -> id, added tokens included, of the tokenizer that the folder was loaded with.
        num_embeddings: rows of the model's input embeddings.

    Raises:
        EncoderError: names both numbers, or the file and a token.
    """
    num_tokens = len(vocabulary)
    if num_embeddings > 2 * num_tokens + SPARE or num_tokens > num_embeddings + SPARE:
        raise EncoderError(
            f"{folder}: its tokenizer has {num_tokens:,} tokens, and its model {num_embeddings:,} embeddings: the two "
            f"do not belong together: {MEND}"
        )
    for name in ("vocab.txt", "vocab.json"):
        if not (folder / name).is_file():
            continue
        ids = _ids_by_token(folder / name)
        common = [token for token in ids if token in vocabulary]
        others = [token for token in common if vocabulary[token] not in ids[token]]
        if others:
            token = others[0]
            raise EncoderError(
                f"{folder}: its tokenizer and {name} give {len(others):,} of {len(common):,} tokens different ids, "
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
    """Refuse merges that do not make more than `MOST_MISSING` of a vocabulary's tokens of several letters.

    Raises:
        EncoderError: names the file and both numbers, or says that it is not UTF-8.
    """
    try:
        merges = [line.split() for line in path.read_text(encoding="utf-8").split("\n")]
    except ValueError as error:
        raise EncoderError(f"{path}: cannot be read as UTF-8 ({error})") from None
    made = {_letters(left + right) for left, right, *_ in (merge for merge in merges if len(merge) > 1)}
    tokens = {token for token in map(_letters, vocabulary) if len(token) > 1}
    if len(tokens - made) > MOST_MISSING * len(tokens):
        raise EncoderError(
            f"{path}: lacks the merges that make {len(tokens - made):,} of the {len(tokens):,} tokens of several "
            f"letters in vocab.json: {MEND}"
        )


def _letters(token: str) -> str:
    """Return a token of BPE without the mark that it ends a word, or does not."""
    return token.removesuffix("</w>").removesuffix("@@")


def _ids_by_token(path: Path) -> dict[str, set[int]]:
    """Return the ids that a vocabulary file gives each token: several where `vocab.txt` repeats it.

    Raises:
        EncoderError: the file is not UTF-8 or JSON.
    """
    if path.suffix == ".json":
        content = read_json(path, dict, TOKENIZER_BYTES)
        return {token: {number} for token, number in content.items() if isinstance(number, int)}
    ids: dict[str, set[int]] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                # Libraries differ in whether a token keeps the white space at its end.
                for token in {line.rstrip("\n"), line.rstrip()} - {""}:
                    ids.setdefault(token, set()).add(number)
    except ValueError as error:
        raise EncoderError(f"{path}: cannot be read as UTF-8 ({error})") from None
    return ids
