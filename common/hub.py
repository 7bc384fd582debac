"""Models of the Hugging Face hub: a reference `hf:ORG/NAME[@REVISION]` becomes a folder of the hub's cache.

    hf:ORG/NAME@REVISION ──> model_folder, tokenizer_folder ──> .../models--ORG--NAME/snapshots/COMMIT
                                                                  └──> reference ──> hf:ORG/NAME@COMMIT

Only these two functions use the network, and only for a value that begins with `hf:`. Settings, vocabularies and
weights in safetensors are fetched; code and pickles never are. Weights are fetched last, so that a folder that has its
weights is whole, and is used without a network. A reference is resolved where a value enters (`Flag.resolve`, the
recipe): what follows, and each process that is started, gets the folder. What is recorded for later is its reference.
"""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clearspan.common.model_folder import EncoderError, Module, read_json, read_modules
from clearspan.common.terminal import one_line, warn

HUB = "hf:"
MAIN = "main"
"""The branch of a reference without a revision."""
SETTINGS = (".json", ".txt", ".model")
"""Suffixes of settings and vocabularies."""
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
WEIGHTS = re.compile(r"(model|mlm_head)([-.][\w.-]+)?\.safetensors")
"""Names of files with weights: of the model, its parts, and the masked-LM head of an exported model."""
PATH = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
"""Paths of folders and files that are fetched: relative, without hidden ones and without a way out."""
WITHOUT_WEIGHTS = ("Pooling", "Normalize", "Dropout")
WITH_CONFIG = ("Transformer", "Pooling", "Dense")
"""Modules of sentence-transformers whose folders have no weights, and modules whose folders have a config.json."""
COMMIT = re.compile("[0-9a-f]{40}")
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
SNAPSHOTS = "snapshots"
MAX_REASON = 120
"""Limit in characters for what the hub's library says of a failure."""
RECORD = "hub"
"""Name of the entry of a fingerprint that names models of the hub."""


def is_reference(value: str | Path) -> bool:
    """Return whether a value names a model of the hub; the path of an existing file or folder does not."""
    return str(value).startswith(HUB) and not Path(value).exists()


def model_folder(value: str) -> str:
    """Return the folder of a model: of the hub's cache for `hf:ORG/NAME[@REVISION]`, otherwise the value itself.

    Raises:
        EncoderError: there is no such model, it cannot be fetched, or it has no weights in safetensors.
    """
    return str(_folder(value, with_weights=True)) if is_reference(value) else value


def tokenizer_folder(value: str) -> str:
    """Return the folder of a tokenizer, as `model_folder` does, but fetch no weights.

    If the tokenizer lies in the folder of the model's first module, that folder is returned.

    Raises:
        EncoderError: there is no such model, or it cannot be fetched.
    """
    if not is_reference(value):
        return value
    folder = _folder(value, with_weights=False)
    first = [module.folder for module in read_modules(folder)[:1]]
    inside = not (folder / "tokenizer.json").is_file() and any((path / "tokenizer.json").is_file() for path in first)
    return str(first[0] if inside else folder)


def reference(value: str | Path) -> str:
    """Return `hf:ORG/NAME@COMMIT` for a folder of the hub's cache, as a record names it; otherwise the value itself.

    The folder of a module in it, such as `0_Transformer`, is written as the reference of the model.
    """
    path = Path(value)
    for folder in (path, path.parent):
        if folder.parent.name == SNAPSHOTS and COMMIT.fullmatch(folder.name) and is_cached(folder):
            repository = folder.parent.parent.name.removeprefix("models--").replace("--", "/")
            return f"{HUB}{repository}@{folder.name}"
    return str(value)


def hub_record(**folders: str | Path) -> dict[str, dict[str, str]]:
    """Return the entry of a fingerprint that names models of the hub: {RECORD: {name of an option: reference}}.

    It is empty if none of the folders is in the hub's cache. Hashes of the files decide whether two models are equal;
    this entry says where they came from.
    """
    known = {name: reference(folder) for name, folder in folders.items()}
    named = {name: value for name, value in known.items() if value.startswith(HUB)}
    return {RECORD: named} if named else {}


def with_recorded_hub(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fingerprint with the references of an earlier one, which names the same files at another commit."""
    recorded = {RECORD: old[RECORD]} if RECORD in old else {}
    return {**{name: value for name, value in new.items() if name != RECORD}, **recorded}


def is_cached(folder: Path) -> bool:
    """Return whether a folder is the snapshot of a model in the hub's cache."""
    if folder.parent.name != SNAPSHOTS or not folder.parent.parent.name.startswith("models--"):
        return False
    from huggingface_hub import constants

    return folder.parents[2].resolve() == Path(constants.HF_HUB_CACHE).expanduser().resolve()


def is_fetched(name: str) -> bool:
    """Return whether a file of a snapshot, by its path in it, is of those that are fetched here."""
    return name.endswith(SETTINGS) or WEIGHTS.fullmatch(name.rpartition("/")[2]) is not None


def split(value: str) -> tuple[str, str]:
    """Return the repository and the revision of `hf:ORG/NAME[@REVISION]`.

    Raises:
        EncoderError: the value has another form.
    """
    repository, _, revision = value.removeprefix(HUB).partition("@")
    is_named = NAME.fullmatch(repository) and not repository.startswith((".", "-")) and ".." not in repository
    if not is_named or ("@" in value and not revision) or re.search(r"\s", value):
        name = re.sub(r"^/*(https?:/+)?(huggingface\.co/|hf\.co/)?", "", repository)
        meant = "/".join(name.split("/")[:2])
        better = f": write {HUB}{meant}" if NAME.fullmatch(meant) and meant != repository else ""
        raise EncoderError(f"{' '.join(value.split())}: is not {HUB}ORG/NAME or {HUB}ORG/NAME@REVISION{better}")
    return repository, revision or MAIN


def _folder(value: str, with_weights: bool) -> Path:
    """Return the snapshot of a model, fetched if the cache lacks it or its branch has moved."""
    from huggingface_hub import constants

    repository, revision = split(value)
    is_whole = _has_weights if with_weights else _has_settings
    if COMMIT.fullmatch(revision) or constants.HF_HUB_OFFLINE:
        cached = _cached(repository, revision)
        if cached is not None and is_whole(cached):
            return cached
        if cached is not None and with_weights and constants.HF_HUB_OFFLINE and _holds_only_pickles(cached):
            raise EncoderError(_only_pickles(value))
    if constants.HF_HUB_OFFLINE:
        raise EncoderError(_not_here(value, repository, revision, "HF_HUB_OFFLINE is set"))
    return _fetched(value, repository, revision, with_weights)


def _cached(repository: str, revision: str) -> Path | None:
    """Return the snapshot of a revision in the cache, which may lack files; None if there is none."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE).expanduser().resolve() / f"models--{repository.replace('/', '--')}"
    commit = revision
    if not COMMIT.fullmatch(revision):
        path = folder / "refs" / revision
        if not path.resolve().is_relative_to(folder) or not path.is_file():
            return None
        commit = path.read_text(encoding="ascii", errors="replace").strip()
    snapshot = folder / SNAPSHOTS / commit
    return snapshot if COMMIT.fullmatch(commit) and snapshot.is_dir() else None


def _fetched(value: str, repository: str, revision: str, with_weights: bool) -> Path:
    """Fetch what the cache lacks of a model, its weights last; return its snapshot.

    If the hub does not answer, the library takes the commit to which the branch pointed when it answered last.
    """
    from huggingface_hub import HfApi, errors, snapshot_download

    try:
        with _quiet():
            root = [f"*{suffix}" for suffix in SETTINGS]
            folder = Path(snapshot_download(repository, revision=revision, allow_patterns=root, ignore_patterns="*/*"))
            modules = _folders(value, folder)
            if not folder.is_dir() or not (_has_weights if with_weights else _has_settings)(folder):
                names = HfApi().list_repo_files(repository, revision=folder.name)
                settings, weights = chosen(names, modules)
                if with_weights:
                    _check_weights(value, names, weights, modules)
                warn(f"{HUB}{repository}@{folder.name}: fetching it into the cache of the Hugging Face hub")
                for part in (settings, weights if with_weights else []):
                    if part:
                        snapshot_download(repository, revision=folder.name, allow_patterns=part)
    except EncoderError:
        raise
    except errors.GatedRepoError:
        raise EncoderError(
            f"{value}: its authors must grant access: ask for it on its page of the hub, then run `hf auth login`"
        ) from None
    except errors.RevisionNotFoundError:
        raise EncoderError(f"{value}: {repository} has no revision {revision}") from None
    except errors.RepositoryNotFoundError:
        raise EncoderError(
            f"{value}: no such model on the hub: check the name; for a private model, run `hf auth login`"
        ) from None
    except Exception as error:  # the library, its HTTP client and the disk have errors of their own
        reason = one_line(error.__cause__ or error, MAX_REASON)
        raise EncoderError(_not_here(value, repository, revision, f"cannot be fetched ({reason})")) from None
    if with_weights and not _has_weights(folder):
        raise EncoderError(f"{reference(folder)}: lacks files that its own list of modules names, so it cannot be used")
    return folder


def chosen(names: Iterable[str], modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files of a model to fetch: (settings and vocabularies, weights).

    Args:
        names: the paths of all files of the model.
        modules: the folders of its modules; "" for the model's folder itself.
    """
    folders = {*modules, ""}
    inside = [name for name in names if PATH.fullmatch(name) and name.rpartition("/")[0] in folders]
    settings = [name for name in inside if name.endswith(SETTINGS)]
    weights = [name for name in inside if WEIGHTS.fullmatch(name.rpartition("/")[2])]
    return settings, weights


def _folders(value: str, folder: Path) -> list[str]:
    """Return the folders of a snapshot's modules, relative to it; [""] for a plain Hugging Face model."""
    folders = [Path(os.path.relpath(module.folder, folder)).as_posix() for module in read_modules(folder)] or ["."]
    if wrong := [name for name in folders if name != "." and not PATH.fullmatch(name)]:
        raise EncoderError(f"{value}: its modules.json names a folder that cannot be one of its own: {wrong[0]!r}")
    return ["" if name == "." else name for name in folders]


def _check_weights(value: str, names: list[str], weights: list[str], modules: list[str]) -> None:
    """Raise EncoderError if a part of a model has its weights in another format than safetensors only."""
    with_weights = {name.rpartition("/")[0] for name in weights}
    for folder in modules:
        pickled = [name for name in names if name.rpartition("/")[0] == folder and name.endswith(PICKLES)]
        if folder not in with_weights and any("model" in name.rpartition("/")[2] for name in pickled):
            raise EncoderError(_only_pickles(value))
    if not weights:
        raise EncoderError(f"{value}: has no weights in safetensors, so there is nothing to fetch: take another model")


def _only_pickles(value: str) -> str:
    return (
        f"{value}: has only pickled weights, which can run code and are never fetched: take another model or revision, "
        "or its conversion to safetensors (often the revision refs/pr/N of its page)"
    )


def _not_here(value: str, repository: str, revision: str, reason: str) -> str:
    """Return the error message for a model that is not in the cache and cannot be fetched."""
    command = f"`hf download {repository}`"
    if revision != MAIN:
        command = f"`hf download {repository} --revision {revision}`"
    lacks = "the hub's cache on this machine has no complete copy"
    return f"{value}: {reason}, and {lacks}: where there is a network, run {command}"


def _parts(folder: Path) -> list[Module]:
    return read_modules(folder) or [Module("", "Transformer", folder)]


def _has_settings(folder: Path) -> bool:
    """Return whether a snapshot has a tokenizer.json, in its folder or in the folder of its first module."""
    with contextlib.suppress(EncoderError):
        return any((path / "tokenizer.json").is_file() for path in (folder, _parts(folder)[0].folder))
    return False


def _has_weights(folder: Path) -> bool:
    """Return whether a snapshot has the settings and the weights of all parts of a model."""
    try:
        for part in _parts(folder):
            lacks_config = part.kind in WITH_CONFIG and not (part.folder / "config.json").is_file()
            if lacks_config or (part.kind not in WITHOUT_WEIGHTS and not _are_whole(part.folder)):
                return False
    except EncoderError:
        return False
    return True


def _are_whole(folder: Path) -> bool:
    """Return whether a folder has weights in safetensors: one file, or all that its index names."""
    if (folder / "model.safetensors").is_file():
        return True
    index = folder / "model.safetensors.index.json"
    parts = read_json(index).get("weight_map", {}) if index.is_file() else {}
    return bool(parts) and all((folder / str(name)).is_file() for name in {*parts.values()})


def _holds_only_pickles(folder: Path) -> bool:
    with contextlib.suppress(EncoderError):
        return any(
            path.suffix in PICKLES and "model" in path.name
            for part in _parts(folder)
            if part.folder.is_dir() and not _are_whole(part.folder)
            for path in part.folder.iterdir()
        )
    return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turn off the hub library's warnings and, if stderr is not a terminal, its progress bars, in the `with` block."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    log = logging.getLogger("huggingface_hub")
    level, has_bars = log.level, not are_progress_bars_disabled()
    log.setLevel(logging.ERROR)
    if has_bars and not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield
    finally:
        log.setLevel(level)
        if has_bars:
            enable_progress_bars()


def within(form: str, resolve: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that resolves the value behind a prefix too, such as `static:` in `static:hf:ORG/NAME`."""

    def resolved(value: str) -> str:
        inner = value.removeprefix(form)
        if inner != value and Path(value).exists():  # a path that only begins like the prefix
            return value
        return f"{value[: len(value) - len(inner)]}{resolve(inner)}"

    return resolved
