"""Damage to any file of a finished dataset: it is noticed, or the trainer still gets the original data.

Single-bit flips and truncations, at seeded random places.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearspan.pipelines.__main__ import main
from clearspan.shards import Dataset, ShardError, verify
from clearspan.shards.manifest import ManifestError
from tests.pipelines.conftest import Command

FLIPS = 8
CUTS = 3


@pytest.fixture(scope="module")
def command(wiki: Path, synonyms: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Command for sentences with views, hold-out, exclusions, bad records and duplicates: every kind of file."""
    folder = tmp_path_factory.mktemp("damage")
    lines = wiki.read_bytes().splitlines(keepends=True)[:600]
    (folder / "wiki.txt").write_bytes(b"".join([*lines[:550], *lines[:9], b"\xff\xfe broken\n"]))
    (folder / "test.txt").write_bytes(b"".join(lines[20:30]))
    inputs = ["--input", str(folder / "wiki.txt"), "--text-per", "line", "--unit-bytes", "40000"]
    views = ["--augment", "subs+del-span", "--synonyms", str(synonyms), "--tokenizer", str(roberta_tokenizer)]
    curation = ["--holdout-fraction", "0.2", "--exclude", str(folder / "test.txt"), "--max-bad-fraction", "0.1"]
    words = ["sentences", *inputs, *views, *curation, "--workers", "1", "--output", str(folder / "out")]
    assert main(words) == 0
    return words


def damages(data: bytes, seed: str) -> Iterator[bytes]:
    draw = random.Random(seed)
    for _ in range(FLIPS if data else 0):
        position = draw.randrange(len(data))
        yield data[:position] + bytes([data[position] ^ 1 << draw.randrange(8)]) + data[position + 1 :]
    for _ in range(CUTS):
        yield data[: draw.randrange(len(data))]


def content(folder: Path) -> object:
    """Return what a trainer reads from a dataset: examples, tokenizer, files."""
    dataset = Dataset(folder)
    tokenizer = dataset.local_tokenizer()
    beside = {name: (tokenizer / name).read_bytes() for name in dataset.manifest.tokenizer.files}
    return list(dataset), beside, {name: dataset.read_file(name) for name in dataset.files}


@pytest.mark.exhaustive
def test_damage_to_any_file_is_noticed_or_changes_nothing(command: list[str]) -> None:
    folder = Path(command[-1])
    whole = [content(folder), content(folder / "validation")]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix() for path in files}
    assert names >= {"plan.json", "manifest.json", "validation/manifest.json", "_done/00000.json", "_curated/00000.zst"}
    assert names >= {"tokenizer/tokenizer_config.json", "_files/synonyms.json", "validation/sentences-00000-000.tar"}
    assert any(name.startswith("_rejected/") for name in names)
    unnoticed = set()
    for path in files:
        data = path.read_bytes()
        for damaged in damages(data, path.name):
            path.write_bytes(damaged)
            try:
                if not verify(folder) and not verify(folder / "validation"):
                    unnoticed.add(path.relative_to(folder).parts[0])
                    assert [content(folder), content(folder / "validation")] == whole, path
            except (ManifestError, ShardError):
                pass
        path.write_bytes(data)
    assert unnoticed == {".clearspan", "_curated", "_done", "_excluded", "_rejected", "plan.json"}


@pytest.mark.exhaustive
def test_run_again_after_damage_to_its_own_records_it_ends_the_same_or_says_why(
    command: list[str], direct: Command, tree
) -> None:
    folder = Path(command[-1])
    finished = tree(folder)
    places = ("_done", "_curated", "tokenizer", "_files", "validation/tokenizer")
    files = [path for place in places for path in sorted((folder / place).iterdir())]
    for path in [*files, folder / "plan.json", folder / "manifest.json"]:
        data = path.read_bytes()
        for damaged in list(damages(data, path.name))[FLIPS - 1 : FLIPS + 1]:  # a flip and a cut
            path.write_bytes(damaged)
            ended = direct(*command)
            if ended.code == 0:
                assert path.parent.name == "_curated" or tree(folder) == finished
            else:
                assert ended.err.count("\n") == 1
                assert path.name == "plan.json"
            path.write_bytes(data)
    assert tree(folder) == finished
