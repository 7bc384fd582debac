"""Interpolate between the weights of a model before training and its trained weights.

    start: weights w0 ─┐
                       ├──> (1 - share) w0 + share w1 ──> a model folder like the trained model's
    trained: weights w1┘

A model that was fine-tuned on one kind of text forgets some of what it knew about others. Between its weights and those
before the training lie models that keep most of both (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from safetensors import SafetensorError

from clearspan.common import files
from clearspan.common.checksummed_folder import NAME as MANIFEST
from clearspan.common.checksummed_folder import FolderChangedError, read_manifest, write_manifest
from clearspan.common.encoder.fingerprint import digest, model_files, model_sha256
from clearspan.common.hub import PICKLES
from clearspan.common.model_folder import EncoderError, read_modules, refusing
from clearspan.common.terminal import one_line
from clearspan.train.run_folder import ADAPTER, MODEL

if TYPE_CHECKING:
    import torch

WEIGHTS, CARD = "model*.safetensors", "README.md"
Key = tuple[int, str]
"""Position of a module in the list of modules, and name of one of its tensors."""


def interpolate(start: Path, trained: Path, share: float, output: Path) -> None:
    """Write a model folder whose weights are (1 - share) x the weights before training + share x the trained weights.

    The weights are computed in float32, and have the dtype of the trained model. Everything else, such as the tokenizer
    and the prompts, is that of the trained model. With the share 0, it is that of the model before training. The folder
    is checksummed, and its model card says what the weights are.

    Args:
        start: folder of the model from which training started.
        trained: folder of the model that training exported.
        share: the share of the trained weights, from 0 to 1.
        output: folder to write, which does not exist.

    Raises:
        EncoderError: the models do not have the same modules with weights of the same shapes, or cannot be loaded.
        OSError: the folder cannot be written.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"`share` {share}: is not from 0 to 1")
    files.remove_temporaries(output.parent)
    part = output.with_name(files.temporary_name(output.name))
    try:
        _copy(trained if share else start, part)
        if 0 < share < 1:
            _mix(start, trained, share, part)
        elif share and (trained / ADAPTER).is_dir():  # an adapter gives the weights of share 1
            shutil.copytree(trained / ADAPTER, part / ADAPTER, copy_function=shutil.copyfile)
        (part / CARD).write_text(_card(trained, share), encoding="utf-8")
        write_manifest(part, MODEL, {"share": share, "of": _fingerprint(start, trained)})
        part.rename(output)
    except SafetensorError as error:
        raise OSError(f"{output}: could not be written (is the disk full?): {one_line(error)}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copy(model: Path, folder: Path) -> None:
    """Copy the files of a model that affect its embeddings; no pickled weights if there are others."""
    names = model_files(model)
    is_safe = any(name.endswith(".safetensors") for name in names)
    for name in names:
        if name == MANIFEST or (is_safe and name.endswith(PICKLES)):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model / name, folder / name)


def _card(trained: Path, share: float) -> str:
    """Return the trained model's card with a sentence on the share, and without the scores in its front matter."""
    path = trained / CARD
    text = path.read_text(encoding="utf-8") if path.is_file() else f"# {trained.parent.name}\n"
    made = "Its weights are the weights before training"
    if share:
        made = f"Its weights are {1 - share:g} x the weights before training + {share:g} x the trained weights"
    sentence = f"{made}. What follows is the card of the trained model, with its scores."
    empty, *parts = text.split("---\n", 2)
    front = ""
    if not empty and len(parts) == 2:
        settings = yaml.safe_load(parts[0])
        settings.pop("model-index", None)
        front, text = f"---\n{yaml.safe_dump(settings, sort_keys=False)}---\n", parts[1]
    before, heading, after = text.partition("# ")
    name, _, rest = after.partition("\n")
    return f"{front}{before}{heading}{name}\n\n{sentence if share < 1 else ''}\n{rest}"


def _mix(start: Path, trained: Path, share: float, folder: Path) -> None:
    """Interpolate the weights in `folder`, which is a copy of the trained model."""
    import torch
    from safetensors.torch import save_file

    before, names = dict(_tensors(start)), {key for key, _ in _tensors(folder)}
    if not names <= before.keys():  # the files of an older model may name them otherwise
        with files.temporary_folder(folder.parent) as saved:
            before = dict(_tensors(resaved(start, Path(saved))))
    for number, path in _weight_files(folder):
        mixed = {}
        tensors, metadata = _read(path)
        for name, after in tensors.items():
            if not after.is_floating_point():  # such as position ids
                mixed[name] = after
                continue
            first = before.get((number, name))
            if first is None or first.shape != after.shape:
                found = "lacks it" if first is None else f"has the shape {tuple(first.shape)}"
                raise EncoderError(
                    f"{trained}: its weights {name} of shape {tuple(after.shape)} cannot be interpolated: {start} "
                    f"{found}: take the trained model itself, with `share` 1"
                )
            mixed[name] = torch.lerp(first.float(), after.float(), share).to(after.dtype)
        save_file(mixed, path, metadata)


def share_of(model: Path) -> float:
    """Return the share of the trained weights in a model folder that `interpolate` wrote; 1 for any other folder."""
    try:
        return float(read_manifest(model, MODEL)[0].get("share", 1))
    except FolderChangedError:
        return 1.0


def is_interpolated(model: Path, start: Path, trained: Path) -> bool:
    """Return whether `interpolate` made a model from these two models as they are now."""
    try:
        return read_manifest(model, MODEL)[0].get("of") == _fingerprint(start, trained)
    except FolderChangedError:
        return False


def _fingerprint(start: Path, trained: Path) -> str:
    return digest(start=model_sha256(start), trained=model_sha256(trained))


def resaved(folder: Path, output: Path) -> Path:
    """Save a model folder with the installed libraries, so that its weights have the names of an exported model's."""
    from sentence_transformers import SentenceTransformer

    from clearspan.common.pretrained import quiet_transformers

    with refusing(f"{folder}: cannot be loaded to interpolate its weights; `share` 1 does not"), quiet_transformers():
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=False)
        model.save_pretrained(str(output), create_model_card=False)
    return output


def _weight_files(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the position of a module, and the path of a file of its weights, for all weights of a model folder."""
    for number, module in enumerate(read_modules(folder)):
        for path in sorted(module.folder.glob(WEIGHTS)):
            yield number, path


def _tensors(folder: Path) -> Iterator[tuple[Key, "torch.Tensor"]]:
    for number, path in _weight_files(folder):
        for name, tensor in _read(path)[0].items():
            yield (number, name), tensor


def _read(path: Path) -> tuple[dict[str, "torch.Tensor"], dict[str, str]]:
    from safetensors import safe_open

    with safe_open(str(path), "pt") as file:
        names: list[str] = file.keys()
        return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
