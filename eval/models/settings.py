"""The settings of a model folder, looked at before sentence-transformers reads them.

Each decides every embedding, and of one of another type the library may make something without a word. So each is what
it should be, or an error that names the file.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from clearspan.common.pretrained import MEND, check_config, read_json
from clearspan.eval.models.sentence_encoder import EncoderError, one_line

LIMITS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""The names that sentence-transformers has had for one file; the first that is there counts."""
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
MOST_BYTES = 1 << 27
"""Of one file of a tokenizer. The largest vocabularies in use, of a million tokens, take half of it."""

SPARE = 1024
"""Embeddings are padded to a multiple of 64, 128 or more; some tokenizers list added tokens that no text gives."""
MOST_MISSING = 0.01
"""Share of a vocabulary file's tokens that its tokenizer may lack, such as a line that cannot be a token."""


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


def check_modules(folder: Path, modules: list[Module]) -> None:
    """Checks every setting of a sentence-transformers folder that its library would take as it is.

    Raises:
        EncoderError: names the file and the setting.
    """
    _check_prompts(folder / "config_sentence_transformers.json")
    for module in modules:
        if module.kind == "Transformer":
            check_transformer(module.folder)
        elif module.kind == "Pooling":
            _check_pooling(module.folder / "config.json")
        elif module.kind == "Dense":
            _check_activation(module.folder / "config.json")
        elif module.kind in ("Router", "Asym"):
            raise EncoderError(
                f"{folder}: the module {module.kind} is not supported: which way a text goes is not said"
            )


def check_transformer(folder: Path) -> None:
    """Checks a transformer's configuration, its limits, and its tokenizer's files.

    Raises:
        EncoderError: there is no model here, or a setting is not what it should be; names the file.
    """
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: no config.json here, so no model; give the folder that holds it")
    embeddings = check_config(folder).get("vocab_size")
    check_tokenizer_files(folder)
    _check_limits(folder)
    if (folder / "tokenizer.json").is_file():
        _check_ids(folder / "tokenizer.json", embeddings if isinstance(embeddings, int) else 0)


def check_tokenizer_files(folder: Path) -> list[str]:
    """The names of the files that hold a tokenizer's tokens; where there is none, transformers makes an empty one up.

    Raises:
        EncoderError: there is none, or a file is not what a tokenizer's is.
    """
    there = [name for name in VOCABULARIES if (folder / name).is_file()]
    if not there:
        raise EncoderError(f"{folder}: no tokenizer here (none of {', '.join(VOCABULARIES)})")
    for name in there:
        if (folder / name).stat().st_size > MOST_BYTES:
            raise EncoderError(f"{folder / name}: more than {MOST_BYTES:,} bytes, which no tokenizer has")
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
        content = read_json(path, dict, MOST_BYTES)
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


def _check_limits(folder: Path) -> None:
    path = next((path for name in LIMITS if (path := folder / name).is_file()), None)
    found = read_json(path) if path else {}
    limit, lower = found.get("max_seq_length"), found.get("do_lower_case")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise EncoderError(f"{path}: max_seq_length must be a number of tokens above 0, found {limit!r}")
    if lower is not None and type(lower) is not bool:
        raise EncoderError(f"{path}: do_lower_case must be true or false, found {lower!r}")


def _check_ids(path: Path, embeddings: int) -> None:
    """Bounds a tokenizer's ids: transformers copies it id by id, up to the largest that the file names."""
    try:
        vocabulary = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise EncoderError(f"{path}: cannot be read as a tokenizer ({one_line(error)})") from None
    largest = max(vocabulary.values(), default=0)
    if largest >= embeddings + 2 * len(vocabulary):
        token = next(token for token, number in vocabulary.items() if number == largest)
        raise EncoderError(
            f"{path}: {token[:40]!r} has id {largest:,} in a vocabulary of {len(vocabulary):,}, for a model of "
            f"{embeddings:,} embeddings: mend the id"
        )


def _check_prompts(path: Path) -> None:
    found = read_json(path) if path.is_file() else {}
    kind, prompts, name = found.get("model_type"), found.get("prompts") or {}, found.get("default_prompt_name")
    if kind not in (None, "SentenceTransformer"):
        raise EncoderError(f"{path}: holds a {kind!r}, which gives no sentence embeddings")
    if name is not None and (not isinstance(prompts, dict) or not isinstance(name, str) or name not in prompts):
        raise EncoderError(f"{path}: default_prompt_name {name!r} is not among its prompts")
    if name is None:
        return
    prompt = prompts[name]
    if not isinstance(prompt, str) or any("\ud800" <= character <= "\udfff" for character in prompt):
        raise EncoderError(f"{path}: the prompt {name!r} must be a text, found {prompt!r}")


def _check_pooling(path: Path) -> None:
    modes = {key: value for key, value in read_json(path).items() if key.startswith("pooling_mode_")}
    if wrong := next((key for key, value in modes.items() if type(value) is not bool), None):
        raise EncoderError(f"{path}: {wrong} must be true or false, found {modes[wrong]!r}")
    if modes and not any(modes.values()):
        raise EncoderError(f"{path}: no pooling is chosen: one pooling_mode_... must be true")


def _check_activation(path: Path) -> None:
    """The library takes Tanh in place of an activation that it may not import."""
    named = read_json(path).get("activation_function", "torch.")
    if not isinstance(named, str) or not named.startswith("torch."):
        raise EncoderError(f"{path}: activation_function {named!r} is not one of torch's, and other code is never run")
