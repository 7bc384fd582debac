"""The settings of a model folder, looked at before sentence-transformers reads them.

Each decides every embedding, and of one of another type the library may make something without a word. So each is what
it should be, or an error that names the file.
"""

from pathlib import Path

from tokenizers import Tokenizer

from clearspan.common.model_folder import EncoderError, Module, check_tokenizer_files, read_json
from clearspan.common.pretrained import check_config
from clearspan.common.terminal import MOST_SAID, one_line

LIMITS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""The names that sentence-transformers has had for one file; the first that is there counts."""


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
        raise EncoderError(f"{path}: cannot be read as a tokenizer ({one_line(error, MOST_SAID)})") from None
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
