"""Images: folders, tars, samples and lists become shards; each image is counted with its class."""

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from PIL import Image

from clearspan.shards import Dataset, verify
from tests.pipelines.conftest import Command

Example = tuple[str, bytes]


@pytest.fixture(scope="module")
def tiny(shared_data: Path) -> Path:
    """Sixty tars, one per class, of 120 images of 64 x 64."""
    return shared_data / "images" / "tinyimagenet60"


def classes_of(folder: Path) -> list[str]:
    return json.loads((folder / "_files" / "classes.json").read_text())


def examples(folder: Path) -> list[Example]:
    """Return the class and the bytes of each image, in order."""
    names = classes_of(folder)
    return [(names[row["label"]], row["image"]) for batch in Dataset(folder) for row in batch.to_pylist()]


def per_class(folder: Path) -> Counter[str]:
    return Counter(name for name, _ in examples(folder))


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def members(zoo: Path) -> list[tuple[str, bytes]]:
    return [(path.relative_to(zoo).as_posix(), path.read_bytes()) for path in sorted(zoo.rglob("*.jpg"))]


@pytest.fixture
def of_zoo(direct: Command, zoo: Path, tmp_path: Path) -> list[Example]:
    """Expected examples of the class folders, sorted."""
    assert direct("images", "--input", zoo, "--output", tmp_path / "folders").code == 0
    return sorted(examples(tmp_path / "folders"))


def _tars(zoo: Path, folder: Path) -> list[Path]:
    for name in ("ant", "barrel", "bass"):
        write_tar(folder / f"{name}.tar", [(path.rpartition("/")[2], data) for path, data in members(zoo / name)])
    return [folder]


def _tar_of_folders(zoo: Path, folder: Path) -> list[Path]:
    return [write_tar(folder / "zoo.tar", members(zoo))]


def _packed_tar(zoo: Path, folder: Path) -> list[Path]:
    return [write_tar(folder / "zoo.tar.gz", members(zoo))]


def _numbered(zoo: Path) -> list[tuple[str, str, bytes]]:
    return [(f"{number:06d}", name.split("/")[0], data) for number, (name, data) in enumerate(members(zoo))]


def _webdataset(zoo: Path, folder: Path) -> list[Path]:
    found = _numbered(zoo)
    sides = [member for key, name, data in found for member in ((f"{key}.cls", name.encode()), (f"{key}.jpg", data))]
    return [write_tar(folder / "zoo-000.tar", sides[:12]), write_tar(folder / "zoo-001.tar", sides[12:])]


def _webdataset_json(zoo: Path, folder: Path) -> list[Path]:
    sides = []
    for key, name, data in _numbered(zoo):
        sides += [(f"{key}.jpg", data), (f"{key}.json", json.dumps({"label": name}).encode()), (f"{key}.txt", b"a b")]
    return [write_tar(folder / "zoo-000.tar", sides)]


def _list(zoo: Path, folder: Path) -> list[Path]:
    lines = [f"{path}\t{path.parent.name}\n" for path in sorted(zoo.rglob("*.jpg"))]
    (folder / "zoo.tsv").write_text("".join(lines))
    return [folder / "zoo.tsv"]


def _list_of_relative_paths(zoo: Path, folder: Path) -> list[Path]:
    """Write a list in a folder beside the files, with lines as people write them."""
    lines = [f"./../zoo//{path.relative_to(zoo)}\t{path.parent.name}\r\n" for path in sorted(zoo.rglob("*.jpg"))]
    (folder / "zoo.lst").write_text("\ufeff" + "".join(lines))
    return [folder / "zoo.lst"]


def _mixed(zoo: Path, folder: Path) -> list[Path]:
    tar = write_tar(folder / "ant.tar", [(path.rpartition("/")[2], data) for path, data in members(zoo / "ant")])
    return [tar, zoo / "barrel", zoo / "bass"]


PACKINGS = [_tars, _tar_of_folders, _packed_tar, _webdataset, _webdataset_json, _list, _list_of_relative_paths, _mixed]


def test_a_list_decides_whatever_the_folders_are_called(direct: Command, zoo: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(tmp_path).as_posix() for path in zoo.rglob("*.jpg"))
    (tmp_path / "all.tsv").write_text(
        "".join(f"{name}\t{'odd' if n % 2 else 'even'}\n" for n, name in enumerate(names))
    )
    assert direct("images", "--input", tmp_path / "all.tsv").code == 0
    assert per_class(tmp_path / "out") == {"even": 6, "odd": 6}


@pytest.mark.parametrize("unit_bytes", ["50000", "100000000"])
@pytest.mark.parametrize("pack", PACKINGS, ids=[pack.__name__.strip("_") for pack in PACKINGS])
def test_packed_in_any_way_they_give_the_same(
    direct: Command, zoo: Path, tmp_path: Path, of_zoo: list[Example], pack: Callable[..., list[Path]], unit_bytes: str
) -> None:
    (tmp_path / "in").mkdir()
    done = direct("images", "--input", *pack(zoo, tmp_path / "in"), "--unit-bytes", unit_bytes)
    assert done.code == 0, done.err
    assert sorted(examples(tmp_path / "out")) == of_zoo
    assert verify(tmp_path / "out") == []


def picture(seed: int = 0, size: tuple[int, int] = (40, 30)) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 50 + seed).convert("RGB").save(file, "JPEG")
    return file.getvalue()


@pytest.mark.exhaustive
def test_every_shard_has_pictures_of_many_classes(direct: Command, tiny: Path, tmp_path: Path) -> None:
    done = direct("images", "--input", tiny, "--unit-bytes", "4000000")
    assert done.code == 0 and "read 7,200 = kept 7,200, bad 0" in done.out and "classes 60, of 120 examples" in done.out
    shards = Dataset(tmp_path / "out").shards
    assert len(shards) > 3 and all(len(shard.classes) >= 50 for shard in shards[:-1])
    assert sum((Counter(shard.classes) for shard in shards), Counter()) == {str(n): 120 for n in range(60)}
