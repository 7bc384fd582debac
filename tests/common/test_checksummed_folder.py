"""A checksummed folder names the first of its files that changed, is missing or is new, whichever that is."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearspan.common.checksummed_folder import FolderChangedError, check_folder, set_aside, write_manifest
from clearspan.common.encoder.fingerprint import OTHERS

FILES = {"README.md": "A card.", "config.json": "{}", "model.safetensors": "weights", "2_Dense/CARD.MD": "Dense."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "2_Dense").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / ".cache").write_text("hidden")
    write_manifest(folder, "model", {"step": 7, "best": None})
    return folder


def put(name: str, text: str = "weightz") -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(text)


def drop(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).unlink()


MISSING: dict[str, Any] = {"refuse_missing": False}
UNLISTED: dict[str, Any] = {"refuse_unlisted": False}
CARDS: dict[str, Any] = {"unchecked_suffixes": (".txt", ".md")}


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize(
    ("change", "options", "named"),
    [
        (put("model.safetensors"), {}, r"model\.safetensors: damaged \(its sha256 is not the manifest's\)"),
        (put("model.safetensors"), MISSING | UNLISTED | CARDS, r"model\.safetensors: damaged"),
        (put("model.safetensors", "w"), {}, r"model\.safetensors: damaged \(1 bytes"),
        (put("config.json", "[]"), MISSING, r"config\.json: damaged"),
        (put("README.md"), {}, r"README\.md: damaged"),
        (put("2_Dense/CARD.MD"), {"unchecked_suffixes": (".txt",)}, r"2_Dense/CARD\.MD: damaged"),
        (drop("model.safetensors"), {}, r"model\.safetensors: missing"),
        (drop("2_Dense/CARD.MD"), UNLISTED, r"2_Dense/CARD\.MD: missing"),
        (put("2_Dense/owls.safetensors"), {}, r"2_Dense/owls\.safetensors: is not"),
        (put("owls.json"), MISSING | CARDS, r"owls\.json: is not"),
        (drop("manifest.json"), MISSING | UNLISTED, r"manifest\.json: missing"),
        (put("manifest.json", "{}"), MISSING | UNLISTED, r"manifest\.json: damaged"),
        (lambda folder: write_manifest(folder, "checkpoint"), MISSING | UNLISTED, r"manifest\.json: damaged .*not "),
    ],
)
def test_what_changed_in_a_checksummed_folder_is_named(
    change: Callable[[Path], Any], options: dict[str, Any], named: str, folder: Path
) -> None:
    change(folder)
    with pytest.raises(FolderChangedError, match=named) as error:
        check_folder(folder, "model", **options)
    assert str(error.value).startswith(str(folder))


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda folder: None, {}),
        (put(".cache"), {}),
        (put(".owls"), {}),
        (put("README.md"), CARDS),
        (put("2_Dense/CARD.MD"), CARDS),
        (drop("README.md"), CARDS),
        (put("NOTES.md"), CARDS),
        (drop("model.safetensors"), MISSING),
        (put("owls.json"), UNLISTED),
    ],
)
def test_what_does_not_count_may_change_and_what_the_manifest_says_besides_is_returned(
    change: Callable[[Path], Any], options: dict[str, Any], folder: Path
) -> None:
    change(folder)
    assert check_folder(folder, "model", **options) == {"step": 7, "best": None}


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.parametrize("options", [{}, MISSING | UNLISTED, {"unchecked_suffixes": OTHERS}])
def test_each_file_that_a_bad_block_damages_is_named_each_time(options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever its suffix is, however long it is. A bad block changes neither the size nor the times of a file."""
    names = ["config.json", "vocab.txt", "merges.txt", "spiece.model", "tokenizer", "modeling_owl.py", "chat.jinja"]
    names += ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "1_Pooling/config.json"]
    names += ["2_Dense/pytorch_model.bin", "states.pt", "Vocab.TXT", "empty.json"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(
            b"" if name == "empty.json" else name.encode() * (30_000 if "bin" in name else 900)
        )
    write_manifest(tmp_path, "model")
    for name in names[:-1]:
        path = tmp_path / name
        whole, times = path.read_bytes(), path.stat()
        for place in (0, len(whole) - 1):
            check_folder(tmp_path, "model", **options)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            for _ in range(2):
                with pytest.raises(FolderChangedError, match=f"^{path}: damaged"):
                    check_folder(tmp_path, "model", **options)
            path.write_bytes(whole)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.guarantee("finished-work-checked")
def test_a_link_to_nowhere_in_place_of_a_file_is_named(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(folder / "owls.json")
    with pytest.raises(FolderChangedError, match=r"config\.json: missing"):
        check_folder(folder, "model", refuse_missing=False)


def test_a_folder_is_set_aside_under_a_name_that_nothing_has(folder: Path) -> None:
    (folder.parent / "model.damaged").write_text("mine")
    assert set_aside(folder) == folder.parent / "model.damaged-2" and not folder.exists()
    assert (folder.parent / "model.damaged-2/config.json").read_text() == "{}"
