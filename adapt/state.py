"""Read and write adapt.json: the commands of the finished steps, the hash of `--model` and, at the end, the verdict."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearspan.adapt.options import Adapt
from clearspan.common import files, terminal
from clearspan.common.compute import AUTO, resolve
from clearspan.common.encoder.prompts import NONE
from clearspan.common.model_forms import NO_FOLDER, STATIC, model_value_error
from clearspan.common.sealed import seal, unseal
from clearspan.common.terminal import UsageError

STATE = "adapt.json"
FIELDS = "shown_fields"
"""Name, in adapt.json, of the list of fields that the first call chose for search results."""
FORMAT = 3
"""Version of the steps and of their outputs; a folder of another version is refused."""


def read_state(options: Adapt) -> dict[str, Any]:
    """Return the content of `adapt.json`, or a new state if the output folder is new or empty.

    The state holds the version of its format, the command of each finished step by name, the hash of the model that
    `--model` names (None if there is no `--model`) and, at the end, the verdict.

    Raises:
        UsageError: the model is not a folder, or differs from the model of the finished steps; the output folder is
            inside the model's folder, or holds files but no `adapt.json`; or `adapt.json` is damaged or of another
            version.
    """
    from clearspan.common.encoder.fingerprint import model_sha256

    given, path = options.encoder, options.output / STATE
    if options.model is not None and (problem := model_value_error(options.model, STATIC)):
        raise UsageError(f"`model` {options.model!r}: {problem}")
    if given is not None and not given.is_dir():
        raise UsageError(f"`model` {given}: {NO_FOLDER}")
    if given is not None and options.output.resolve().is_relative_to(given.resolve()):
        raise UsageError(f"`output` {options.output}: is in `model`, which is copied: name a folder outside of it")
    state: dict[str, Any] = {"format": FORMAT, "steps": {}, "given": given and model_sha256(given)}
    if not path.is_file():
        if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
            raise UsageError(f"`output` {options.output}: holds other files: name a new or an empty folder")
        return state
    try:
        saved = unseal(path.read_bytes())
        is_earlier = saved.get("format") != FORMAT
        same, state = saved["given"] == state["given"], {**saved, "steps": dict(saved["steps"])}
    except (ValueError, KeyError, TypeError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else error
        raise UsageError(f"{path}: is not a file of this command ({reason}): name another `output`") from None
    if is_earlier:
        raise UsageError(f"`output` {options.output}: another version of this command made it: name another `output`")
    if not same:
        raise UsageError(f"`model` {given}: differs from the model with which {path} was made: name another `output`")
    return state


def with_precision(options: Adapt, state: dict[str, Any]) -> Adapt:
    """Return the options with the precision `auto` replaced by fp32 or bf16; another precision is not changed.

    The first call of `clearspan adapt` for an output folder chooses the precision that suits this machine, prints it
    and adds it to `state`. Later calls take it from `state`, so that all steps have the same precision. If all
    untrained models are static, the precision is fp32.

    Args:
        state: the content of adapt.json.
    """
    if options.precision != AUTO:
        return options
    chosen = state.get("precision", "fp32")
    if "precision" not in state and any(map(options.precision_of, options.untrained.values())):
        compute = resolve(AUTO, AUTO)
        terminal.notice(compute.message)
        chosen = state["precision"] = compute.precision
    return dataclasses.replace(options, precision=chosen)


def with_fields(options: Adapt, state: Mapping[str, Any]) -> Adapt:
    """Return the options with the fields that the first call chose for search results, unless the user names others.

    Args:
        state: the content of adapt.json.
    """
    chosen = state.get(FIELDS)
    if options.keep_fields or chosen is None:
        return options
    return dataclasses.replace(options, keep_fields=tuple(chosen) or (NONE,))


def save(folder: Path, state: Mapping[str, Any]) -> None:
    files.write_bytes(folder / STATE, seal(state, indent=2))
