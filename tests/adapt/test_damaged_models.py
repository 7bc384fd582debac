"""The models that finished stages made are checked before they are used again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearspan.adapt.runner import damage
from clearspan.common.checksummed_folder import write_manifest


@pytest.fixture
def options(tmp_path: Path) -> Any:
    """The folders of an adapted model, each of which is whole."""
    folders = {"base": tmp_path / "start", "exported": tmp_path / "run" / "model"}
    for folder in folders.values():
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text("weights")
        (folder / "README.md").write_text("A card.")
        write_manifest(folder, "model")
    return SimpleNamespace(**folders)


def stage(name: str) -> Any:
    return SimpleNamespace(name=name)


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("change", ["weights", "added", "missing"])
@pytest.mark.parametrize(("name", "other", "attribute"), [("start", "train", "base"), ("train", "start", "exported")])
def test_a_damaged_model_is_named_by_the_step_that_made_it_and_only_a_start_is_moved(
    name: str, other: str, attribute: str, change: str, options: Any
) -> None:
    folder: Path = getattr(options, attribute)
    (folder / "README.md").write_text("A better card.")
    assert all(damage(stage(each), options) == "" for each in ("start", "train", "embed", "judge"))
    weights = folder / "model.safetensors"
    weights.unlink() if change == "missing" else weights.write_text("weightz" if change == "weights" else "weights")
    if change == "added":
        (folder / "owls.json").write_text("{}")
    assert all(damage(stage(each), options) == "" for each in (other, "embed", "judge"))
    said, aside = damage(stage(name), options), folder.with_name(f"{folder.name}.damaged")
    assert said.startswith(f"{folder}/{'owls.json' if change == 'added' else 'model.safetensors'}: ")
    assert said.endswith(f" (moved to {aside})") is (name == "start") is aside.exists() is not folder.exists()


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("name", ["start", "train"])
def test_a_model_that_is_gone_is_missing_and_nothing_is_moved(name: str, options: Any, tmp_path: Path) -> None:
    folder: Path = options.base if name == "start" else options.exported
    folder.rename(tmp_path / "elsewhere")
    assert damage(stage(name), options) == f"{folder / 'manifest.json'}: missing"
