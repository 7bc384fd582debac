"""Check the settings in a model folder before sentence-transformers reads them.

Each setting affects every embedding, and the library may silently misread a value of the wrong type. Such a value is an
error here, which names the file.
"""

from pathlib import Path

from tokenizers import Tokenizer

from clearspan.common.model_folder import EncoderError, Module, check_tokenizer_files, read_json
from clearspan.common.terminal import MOST_SAID, one_line

LIMITS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""Names that sentence-transformers has used for the file of length limits; the first file that exists counts."""


def check_modules(folder: Path, modules: list[Module]) -> None:
    """Check every setting of a sentence-transformers folder that the library itself does not check.

    Raises:
        EncoderError: the message names the file and the setting.
    """
    _check_config(folder / "config_sentence_transformers.json")
    for module in modules:
        if module.kind == "Transformer":
            check_transformer(module.folder)
        elif module.kind == "StaticEmbedding":
            check_tokenizer_files(module.folder)
        elif module.kind == "Pooling":
            _check_pooling(module.folder / "config.json")
        elif module.kind == "Dense":
            _check_activation(module.folder / "config.json")
        elif module.kind in ("Router", "Asym"):
            raise EncoderError(
                f"{folder}: the module {module.kind} is not supported: a text's route through it is unknown"
            )


def check_transformer(folder: Path) -> None:
    """Check a transformer's configuration, its length limits and its tokenizer files.

    Raises:
        EncoderError: the folder holds no model, or a setting is invalid; the message names the file.
    """
    from clearspan.common.pretrained import check_config  # imports transformers, which takes seconds

    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: no config.json here, so this is no model folder; give the folder that holds it")
    embeddings = check_config(folder).get("vocab_size")
    check_tokenizer_files(folder)
    _check_limits(folder)
    if (folder / "tokenizer.json").is_file():
        _check_ids(folder / "tokenizer.json", embeddings if isinstance(embeddings, int) else 0)


def _check_limits(folder: Path) -> None:
    path = next((path for name in LIMITS if (path := folder / name).is_file()), None)
    settings = read_json(path) if path else {}
    limit, lower = settings.get("max_seq_length"), settings.get("do_lower_case")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise EncoderError(f"{path}: max_seq_length must be a positive number of tokens, not {limit!r}")
    if lower is not None and type(lower) is not bool:
        raise EncoderError(f"{path}: do_lower_case must be true or false, not {lower!r}")


def _check_ids(path: Path, embeddings: int) -> None:
    """Bound a tokenizer's ids: transformers allocates an entry for each id up to the largest in the file."""
    try:
        vocabulary = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise EncoderError(f"{path}: cannot be read as a tokenizer ({one_line(error, MOST_SAID)})") from None
    largest = max(vocabulary.values(), default=0)
    if largest >= embeddings + 2 * len(vocabulary):
        token = next(token for token, number in vocabulary.items() if number == largest)
        raise EncoderError(
            f"{path}: {token[:40]!r} has id {largest:,} in a vocabulary of {len(vocabulary):,}, for a model of "
            f"{embeddings:,} embeddings: correct the id"
        )


def _check_config(path: Path) -> None:
    config = read_json(path) if path.is_file() else {}
    model_type, prompts, name = config.get("model_type"), config.get("prompts") or {}, config.get("default_prompt_name")
    if model_type not in (None, "SentenceTransformer"):
        raise EncoderError(f"{path}: holds a {model_type!r}, which computes no sentence embeddings")
    cut = config.get("truncate_dim")
    if cut is not None and (type(cut) is not int or cut < 1):
        raise EncoderError(f"{path}: truncate_dim must be a positive number of dimensions, not {cut!r}")
    if name is not None and (not isinstance(prompts, dict) or not isinstance(name, str) or name not in prompts):
        raise EncoderError(f"{path}: default_prompt_name {name!r} is not among its prompts")
    if name is None:
        return
    prompt = prompts[name]
    if not isinstance(prompt, str) or any("\ud800" <= character <= "\udfff" for character in prompt):
        raise EncoderError(f"{path}: the prompt {name!r} must be a text, not {prompt!r}")


def _check_pooling(path: Path) -> None:
    modes = {key: value for key, value in read_json(path).items() if key.startswith("pooling_mode_")}
    if wrong := next((key for key, value in modes.items() if type(value) is not bool), None):
        raise EncoderError(f"{path}: {wrong} must be true or false, not {modes[wrong]!r}")
    if modes and not any(modes.values()):
        raise EncoderError(f"{path}: no pooling is chosen: set one pooling_mode_... to true")


def _check_activation(path: Path) -> None:
    """Refuse an activation outside torch: the library, which may not import it, silently uses Tanh instead."""
    name = read_json(path).get("activation_function", "torch.")
    if not isinstance(name, str) or not name.startswith("torch."):
        raise EncoderError(f"{path}: activation_function {name!r} is not one of torch's, and other code is never run")
