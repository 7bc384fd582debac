"""`embed --update`: a collection follows its inputs, as if it was made anew, and stays usable whatever is killed."""

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from clearspan.common.encoder.static import StaticEncoder
from clearspan.common.errors import PipelineError
from clearspan.common.files import locked, sha256
from clearspan.pipelines.builders.copied import Copied
from clearspan.pipelines.builders.vectors import Vectors
from clearspan.pipelines.records import ReadOptions
from clearspan.pipelines.units import update
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.update import FOLDER, SECOND, OwnedFiles
from clearspan.shards import Dataset, verify
from tests.pipelines.conftest import Command, killed, rows
from tests.pipelines.test_ownership import files_of


class Killed(BaseException):
    """Stands for a signal: no code of the command handles it."""


@pytest.fixture(scope="module")
def lines(wiki: Path) -> list[str]:
    return [line.strip() for line in wiki.read_text(encoding="utf-8").split("\n") if line.strip()][:400]


def changed(lines: list[str]) -> list[str]:
    """Some texts in front, one twice, some gone, one edited, the end in another order."""
    return ["Owls hunt at night.", *lines[5:200], lines[7], lines[200] + "!", *reversed(lines[201:])]


def write(path: Path, texts: list[str]) -> None:
    """Write texts with a number that moves with them."""
    found = [{"text": text, "place": number} for number, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


@pytest.fixture
def embed(direct: Command, still: Path, tmp_path: Path) -> Command:
    """Embed `a.jsonl` with a static model, without Beam, in many units."""
    words = ["embed", "--input", tmp_path / "a.jsonl", "--model", still, "--keep-text", "--keep-fields", "place"]
    return lambda *more: direct(*words, "--unit-bytes", "9000", *more)


@pytest.fixture
def made(embed: Command, lines: list[str], tmp_path: Path) -> Path:
    """A collection of all lines, whose input has changed since."""
    write(tmp_path / "a.jsonl", lines)
    assert embed().code == 0
    write(tmp_path / "a.jsonl", changed(lines))
    return tmp_path / "out"


@pytest.fixture
def anew(embed: Command, made: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """The examples of a collection that is made of the changed input at once."""
    assert embed("--output", tmp_path / "anew").code == 0
    return rows(tmp_path / "anew")


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that a model has embedded."""
    texts: list[str] = []
    usual = StaticEncoder._embed

    def counting(self: StaticEncoder, given: list[str], *options: Any) -> Any:
        texts.extend(given)
        return usual(self, given, *options)

    monkeypatch.setattr(StaticEncoder, "_embed", counting)
    return texts


@pytest.mark.guarantee("update-as-new")
def test_only_new_texts_are_embedded_and_all_else_is_as_made_anew(
    embed: Command, made: Path, anew: list[dict[str, Any]], lines: list[str], embedded: list[str]
) -> None:
    before = {row["id"]: row["vector"] for row in rows(made)}
    ended = embed("--update", "--json")
    assert ended.code == 0, ended.err
    new = {"Owls hunt at night.", lines[200] + "!"}
    assert set(embedded) - {"a text", "another text to try it on"} == new
    assert json.loads(ended.out)["changes"] == {"new": 3, "gone": 6, "kept": 394}
    found = rows(made)
    assert found == anew
    assert all(before.get(row["id"], row["vector"]) == row["vector"] for row in found)
    assert not verify(made) and not (made / FOLDER).exists()
    assert {shard.unit // SECOND for shard in Dataset(made).shards} == {1}
    again = embed("--update")
    assert again.code == 0 and "nothing to do" in again.out


@pytest.mark.guarantee("update-as-new")
def test_updates_follow_each_other(embed: Command, made: Path, lines: list[str], tmp_path: Path) -> None:
    texts = [changed(lines), lines[:100], [*lines, "A heron."], lines]
    for number, each in enumerate(texts, 1):
        write(tmp_path / "a.jsonl", each)
        ended = embed("--update")
        assert ended.code == 0, ended.err
        assert [row["text"] for row in rows(made)] == each
        assert {shard.unit // SECOND for shard in Dataset(made).shards} == {number % 2}
        assert not verify(made)
    assert "0 new, 1 gone, 400 kept" in ended.out
    assert embed().code == 0 and "nothing to do" in embed().out


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("killed-run")
@pytest.mark.exhaustive
def test_killed_anywhere_the_collection_is_the_old_or_the_new_one(
    embed: Command, made: Path, anew: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, steps, states = rows(made), 0, []
    saved = shutil.copytree(made, tmp_path / "saved")
    usual, left = {name: getattr(Path, name) for name in ("replace", "unlink", "touch", "rmdir")}, [0]
    remove, put = shutil.rmtree, update.replace

    def step() -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed

    def counted(name: str) -> Callable[..., Any]:
        def one(self: Path, *arguments: Any, **options: Any) -> Any:
            step()
            return usual[name](self, *arguments, **options)

        return one

    def removed(path: Path) -> None:
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        path.rmdir()

    def killing(folder: str) -> None:
        with monkeypatch.context() as patch:
            for name in usual:
                patch.setattr(Path, name, counted(name))
            patch.setattr(shutil, "rmtree", removed)
            put(folder)

    while not states or left[0] <= 0:
        steps += 1
        left[0] = steps
        with monkeypatch.context() as patch:
            patch.setattr(update, "replace", killing)
            with contextlib.suppress(Killed):
                assert embed("--update").code == 0
        found = rows(made)
        assert found in (old, anew)
        states.append(found == anew)
        again = embed("--update")
        assert again.code == 0, (steps, again.err)
        assert rows(made) == anew and not verify(made) and not (made / FOLDER).exists()
        remove(made)
        shutil.copytree(saved, made)
    assert states == sorted(states) and set(states) == {False, True} and steps > 40


@pytest.mark.exhaustive
@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize(("when", "name"), [("before", "00003.json"), ("after", "vectors-50003-000.tar")])
def test_a_killed_update_goes_on(
    embed: Command, made: Path, anew: list[dict[str, Any]], still: Path, when: str, name: str, tmp_path: Path
) -> None:
    old = rows(made)
    words = ["--input", tmp_path / "a.jsonl", "--model", still, "--keep-text", "--keep-fields", "place"]
    assert killed(when, name, "embed", *words, "--unit-bytes", "9000", "--output", made, "--update") == -9
    assert rows(made) == old and (made / FOLDER / "_done" / "00002.json").exists()
    assert embed("--update").code == 0
    assert rows(made) == anew


@pytest.mark.guarantee("update-as-new")
def test_a_killed_update_to_other_inputs_is_begun_again(
    embed: Command, made: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("clearspan.pipelines.units.update.replace", lambda folder: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            embed("--update")
    (made / FOLDER / "manifest.json").unlink()
    (made / FOLDER / "_done" / "notes.txt").write_text("mine")
    write(tmp_path / "a.jsonl", lines[10:])
    assert embed("--update").code == 0
    assert [row["text"] for row in rows(made)] == lines[10:] and not verify(made)
    left = [path.relative_to(made).as_posix() for path in (made / FOLDER).rglob("*") if path.is_file()]
    assert left == [".update/_done/notes.txt"]


@pytest.mark.guarantee("one-run-a-folder")
def test_a_second_run_leaves_the_subfolder_of_a_running_update(embed: Command, made: Path) -> None:
    (made / FOLDER).mkdir()
    with locked(made):
        ended = embed("--update")
        assert ended.code == 1 and "another run is writing to this folder" in ended.err
        assert (made / FOLDER).is_dir()
    assert embed("--update").code == 0 and not (made / FOLDER).exists()


@pytest.mark.guarantee("update-as-new")
def test_an_update_whose_device_had_no_memory_goes_on(
    embed: Command, made: Path, lines: list[str], embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = "Owls hunt at night.", lines[200] + "!"
    with monkeypatch.context() as patch:
        usual = StaticEncoder._embed

        def short(self: StaticEncoder, given: list[str], *options: Any) -> Any:
            if second in given:
                raise RuntimeError("CUDA out of memory")
            return usual(self, given, *options)

        patch.setattr(StaticEncoder, "_embed", short)
        ended = embed("--update")
        assert ended.code == 1 and "cannot encode every text (CUDA out of memory)" in ended.err
    assert first in embedded and (made / FOLDER / "_done/00000.json").exists()
    embedded.clear()
    assert embed("--update").code == 0 and not (made / FOLDER).exists()
    assert second in embedded and first not in embedded


@pytest.mark.guarantee("update-as-new")
def test_a_failed_update_leaves_the_old_collection_and_nothing_else(embed: Command, made: Path, tmp_path: Path) -> None:
    before = files_of(made)
    with (tmp_path / "a.jsonl").open("a", encoding="utf-8") as stream:
        stream.write("{a bad record\n" * 10)
    ended = embed("--update")
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert "records are bad" in ended.err and FOLDER not in ended.err
    assert files_of(made) == before


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("full-disk")
def test_an_update_that_a_full_disk_ended_goes_on(
    embed: Command, made: Path, anew: list[dict[str, Any]], embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(job: Job) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), job.path("manifest.json"))

    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.without_beam.commit", full)
        ended = embed("--update")
    assert ended.code == 1 and "No space left on device" in ended.err
    embedded.clear()
    assert embed("--update").code == 0 and rows(made) == anew
    assert set(embedded) <= {"a text", "another text to try it on"} and not (made / FOLDER).exists()


@pytest.mark.guarantee("update-as-new")
def test_a_killed_update_to_inputs_that_are_restored_is_removed(
    embed: Command, made: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = files_of(made)
    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.without_beam.commit", lambda job: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            embed("--update")
    assert (made / FOLDER / "_done").is_dir()
    write(tmp_path / "a.jsonl", lines)
    ended = embed()
    assert ended.code == 0 and "nothing to do" in ended.out and files_of(made).keys() == before.keys()


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.guarantee("update-as-new")
def test_what_a_damaged_shard_held_is_embedded_again(
    embed: Command,
    made: Path,
    anew: list[dict[str, Any]],
    lines: list[str],
    damage: Callable[[Path], None],
    embedded: list[str],
) -> None:
    held = [row["text"] for row in Dataset(made).batches(Dataset(made).shards[1]) for row in row.to_pylist()]
    damage(made / Dataset(made).shards[1].name)
    without = embed()
    assert without.code == 1 and without.err.endswith("or bring it up to date with --update\n")
    embedded.clear()
    ended = embed("--update")
    assert ended.code == 0 and f"{made}: vectors-00001-000.tar is damaged or missing: its {len(held)}" in ended.err
    assert rows(made) == anew and not verify(made)
    assert set(embedded) - {"a text", "another text to try it on"} <= {*held, "Owls hunt at night.", lines[200] + "!"}


@pytest.mark.guarantee("update-as-new")
def test_with_a_damaged_manifest_all_is_embedded_again(embed: Command, made: Path, anew: list[dict[str, Any]]) -> None:
    flip(made / "manifest.json")
    ended = embed("--update", "--json")
    assert ended.code == 0 and ended.err == f"{made}: its manifest.json is damaged: all vectors are computed again\n"
    assert json.loads(ended.out)["changes"] == {"new": 397, "gone": 0, "kept": 0}
    assert rows(made) == anew and not verify(made)
    assert sum(path.suffix == ".tar" for path in made.iterdir()) == len(Dataset(made).shards)


@pytest.mark.guarantee("killed-run")
@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.parametrize("name", ["manifest.json", "vectors-50001-000.tar", "_done/00001.json", "plan.json"])
def test_a_killed_update_that_was_damaged_since_is_made_whole(
    embed: Command,
    made: Path,
    anew: list[dict[str, Any]],
    damage: Callable[[Path], None],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("clearspan.pipelines.units.update.replace", lambda folder: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            embed("--update")
    damage(made / FOLDER / name)
    assert embed("--update").code == 0
    if (damage, name) != (flip, "vectors-50001-000.tar"):  # its hash is compared when it is read
        assert rows(made) == anew and not verify(made)


@pytest.mark.guarantee("output-kept")
def test_files_of_a_user_stay_whatever_they_are_called(embed: Command, made: Path, tmp_path: Path) -> None:
    mine = [
        *(
            "_rejected/notes.txt",
            "_rejected/00000.jsonl.zst",
            "_done/notes.txt",
            "_done/99999.json",
            "_staged/00001.json",
        ),
        *("_curated/00000.zst", "_curated/limit-00000.rows", "tokenizer/tokenizer.json", "_files/classes.json"),
        *("vectors-00000-007.tar", "vectors-49999-000.tar", "vectors-99999-000.tar", "notes-00000-000.tar"),
        *(".update/notes.txt", ".update/_done/notes.txt", ".update/vectors-00077-000.tar", "validation/manifest.json"),
    ]
    for name in mine:
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text("mine")
    for _ in range(2):
        ended = embed("--update")
        assert ended.code == 0, ended.err
        assert all((made / name).read_text() == "mine" for name in mine)
        (tmp_path / "a.jsonl").write_text('{"text": "A heron stands in the shallow water.", "place": 1}\n')
    assert [row["text"] for row in rows(made)] == ["A heron stands in the shallow water."]
    left = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()} - set(mine)
    records = {"manifest.json", "plan.json", "_done/00000.json", ".clearspan/00000.json", ".clearspan/status.json"}
    assert left == records | {"vectors-00000-000.tar"}


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", ["vectors-50009-000.tar", ".clearspan/00009.json", "_rejected", "_done/00009.json"])
def test_an_update_that_would_replace_a_users_file_is_refused_until_it_is_moved(
    embed: Command, made: Path, anew: list[dict[str, Any]], lines: list[str], name: str, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", [*changed(lines), *(f"{text} Twice." for text in lines)])
    with (tmp_path / "a.jsonl").open("a", encoding="utf-8") as stream:
        stream.write("{a bad record\n")
    before = rows(made)
    (made / name).write_text("mine")
    words = ("--update", "--max-bad-fraction", "0.1")
    for _ in range(2):
        ended = embed(*words)
        assert ended.code == 1 and ended.err.count("\n") == 1
        assert f"{made / name}: not of this dataset" in ended.err and "move it away, and run again" in ended.err
        assert rows(made) == before and (made / name).read_text() == "mine"
    (made / name).rename(tmp_path / "moved")
    ended = embed(*words)
    assert ended.code == 0 and len(rows(made)) == len(anew) + len(lines) and not verify(made), ended.err


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("output-kept")
@pytest.mark.parametrize("name", [".update/plan.json", ".update/vectors-50000-000.tar", ".update"])
def test_an_update_needs_its_own_names_in_the_subfolder(embed: Command, made: Path, name: str, tmp_path: Path) -> None:
    (made / name).parent.mkdir(exist_ok=True)
    (made / name).write_text("mine")
    ended = embed("--update")
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert f"{made / name}: --update needs this name: move {made / FOLDER} away, and run again" in ended.err
    assert (made / name).read_text() == "mine"
    (made / FOLDER).rename(tmp_path / "moved")
    assert embed("--update").code == 0


@pytest.mark.guarantee("changed-input")
def test_without_the_option_an_edit_is_an_error_that_names_it(embed: Command, made: Path, still: Path) -> None:
    before = rows(made)
    ended = embed()
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert "bring it up to date with --update" in ended.err and rows(made) == before
    other = embed("--vector-dtype", "int8")
    assert other.code == 1 and "--update" not in other.err


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("changed-input")
@pytest.mark.parametrize("is_older", [False, True])
def test_an_edit_that_the_plan_does_not_show_is_an_error_or_an_update(
    embed: Command, made: Path, lines: list[str], is_older: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where the edited file is older than the collection, as a file that is unpacked or moved there may be."""
    monkeypatch.setattr("clearspan.pipelines.units.plan.sample", lambda stream, size: "0" * 64)
    monkeypatch.setattr("clearspan.pipelines.readers.sniff.sample", lambda stream, size: "0" * 64)
    monkeypatch.setattr("clearspan.pipelines.readers.sniff.WHOLE_BYTES", 0)
    assert embed("--output", tmp_path / "same").code == 0
    write(tmp_path / "a.jsonl", [text.replace("the", "teh") for text in changed(lines)])
    if is_older:
        os.utime(tmp_path / "a.jsonl", (1e9, 1e9))
    ended = embed("--output", tmp_path / "same")
    assert ended.code == 1 and "has changed since the run was planned" in ended.err and "--update" in ended.err
    assert embed("--output", tmp_path / "same", "--update").code == 0
    assert [row["text"] for row in rows(tmp_path / "same")] == [text.replace("the", "teh") for text in changed(lines)]


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (["--vector-dtype", "float16"], 'dtype: "float32" there, "float16" now'),
        (["--chunk-tokens", "64"], "chunk_tokens: null there, 64 now; chunk_overlap: null there, 0 now"),
    ],
)
def test_other_options_are_one_line(embed: Command, made: Path, words: list[str], difference: str) -> None:
    before = rows(made)
    ended = embed("--update", *words)
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert f"--update needs the model and the options with which the folder was made ({difference})" in ended.err
    assert rows(made) == before and not (made / FOLDER).exists()


@pytest.mark.guarantee("update-as-new")
def test_another_model_is_one_line(embed: Command, made: Path, still: Path, tmp_path: Path) -> None:
    other = shutil.copytree(still, tmp_path / "other")
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + "\n")
    ended = embed("--update", "--model", other)
    assert ended.code == 1 and "--update needs the model" in ended.err


@pytest.mark.guarantee("update-as-new")
def test_the_first_update_makes_the_collection(embed: Command, lines: list[str], tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", lines)
    assert embed("--update").code == 0
    assert [row["text"] for row in rows(tmp_path / "out")] == lines


@pytest.mark.guarantee("update-as-new")
def test_an_update_keeps_the_types_of_fields(embed: Command, made: Path, lines: list[str], tmp_path: Path) -> None:
    found = [{"text": text, "place": float(number)} for number, text in enumerate(lines)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    assert embed("--update").code == 0
    assert [row["field_place"] for row in rows(made)] == list(range(400))


@pytest.mark.guarantee("update-as-new")
def test_texts_whose_ends_are_cut_off_are_counted_whether_they_are_copied_or_new(
    embed: Command, still: Path, lines: list[str], tmp_path: Path
) -> None:
    short = shutil.copytree(still, tmp_path / "short")
    tokenizer = Tokenizer.from_file(str(short / "tokenizer.json"))
    tokenizer.no_truncation()
    most = sorted(len(tokenizer.encode(line, add_special_tokens=False)) for line in lines)[len(lines) // 2]
    tokenizer.enable_truncation(most)
    tokenizer.save(str(short / "tokenizer.json"))
    tokenizer.no_truncation()

    def cut(texts: list[str]) -> int:
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) > most for text in texts)

    for texts, more in ((lines, ()), (changed(lines), ("--update",)), (changed(lines), ("--update",))):
        write(tmp_path / "a.jsonl", texts)
        ended = embed("--model", short, *more)
        assert ended.code == 0 and 100 < cut(texts) < 300
        assert f"{cut(texts)} texts are longer than the model reads: their ends were cut off" in ended.out


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_stored_values_are_copied_as_they_are(
    embed: Command, lines: list[str], embedded: list[str], dtype: str, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", lines)
    assert embed("--vector-dtype", dtype, "--chunk-tokens", "16", "--dedup").code == 0
    before = rows(tmp_path / "out")
    write(tmp_path / "a.jsonl", changed(lines))
    embedded.clear()
    ended = embed("--vector-dtype", dtype, "--chunk-tokens", "16", "--dedup", "--update", "--json")
    assert json.loads(ended.out)["changes"] == {"new": 2, "gone": 6, "kept": len({*lines}) - 6}
    stored = {row["id"]: (row["vector"], row.get("scale")) for row in before}
    found = rows(tmp_path / "out")
    copied = [row for row in found if row["id"] in stored]
    assert all((row["vector"], row.get("scale")) == stored[row["id"]] for row in copied)
    new = [row["text"] for row in found if row["id"] not in stored]
    assert set(new) == set(embedded) - {"a text", "another text to try it on"} and 0 < len(new) < 8
    assert np.isfinite([row["vector"] for row in found]).all()


@pytest.fixture
def job(embed: Command, still: Path, lines: list[str], tmp_path: Path) -> Job:
    """The description of an update of a small collection."""
    write(tmp_path / "a.jsonl", lines[:50])
    assert embed().code == 0
    return Job(str(tmp_path / "out"), "", "", Vectors(model=str(still)), {}, 3, ReadOptions(), 0)


@pytest.mark.slow
@pytest.mark.guarantee("update-as-new")
def test_a_killed_replacement_is_continued_with_nothing_but_what_it_left(
    job: Job, embed: Command, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", lines[:130])
    with monkeypatch.context() as patch:
        patch.setattr(update, "replace", lambda folder: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            embed("--update")
    usual, left = {name: getattr(Path, name) for name in ("replace", "unlink")}, 0

    def counted(name: str) -> Callable[..., Any]:
        def one(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                raise Killed
            return usual[name](*arguments, **options)

        return one

    found: list[dict[str, str]] = []
    while left <= 0:
        left = len(found) + 1
        folder = shutil.copytree(job.folder, tmp_path / f"killed{len(found)}")
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            for name in usual:
                patch.setattr(Path, name, counted(name))
            update.replace(str(folder))
        assert all((folder / shard.name).is_file() for shard in Dataset(folder).shards)
        update.complete_killed_update(str(folder))
        found.append({name: each for name, each in files_of(folder).items() if not name.startswith(FOLDER)})
    assert not (folder / FOLDER).exists() and len(found) > 15
    assert all(each == found[-1] for each in found) and not verify(folder)
    assert all(shard.unit >= SECOND for shard in Dataset(folder).shards)


@pytest.mark.guarantee("update-as-new")
def test_a_replacement_that_would_take_a_users_file_changes_nothing(
    job: Job, embed: Command, lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", lines[:60])
    with monkeypatch.context() as patch:
        patch.setattr(update, "replace", lambda folder: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            embed("--update")
    mine = Path(job.path("vectors-50000-000.tar"))
    mine.write_text("mine")
    before = files_of(Path(job.folder))
    with pytest.raises(PipelineError, match=rf"^{mine}: not of this dataset"):
        update.replace(job.folder)
    assert files_of(Path(job.folder)) == before
    mine.unlink()
    update.replace(job.folder)
    assert [row["text"] for row in rows(Path(job.folder))] == lines[:60]


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize("changed", ["", "plan", "plan is lost", "dataset"])
def test_an_unfinished_update_goes_on_only_if_its_plan_and_its_dataset_are_the_same(job: Job, changed: str) -> None:
    beside, plan = update.begin(job, SECOND, b"the plan"), b"the plan"
    assert (beside / "plan.json").read_bytes() == plan
    done = ("vectors-50002-000.tar", ".index.npy")
    for name in done:
        (beside / name).write_bytes(b"of the killed run")
    if changed == "plan":
        plan = b"the plaN"
    elif changed == "plan is lost":
        (beside / "plan.json").unlink()
    elif changed == "dataset":
        Path(job.path("manifest.json")).write_bytes(b"another manifest")
    assert update.begin(job, SECOND, plan) == beside and (beside / "plan.json").read_bytes() == plan
    assert [(beside / name).exists() for name in done] == [not changed] * 2
    owned = OwnedFiles.read(beside)
    assert owned is not None and owned.manifest == sha256(job.path("manifest.json")) and not owned.new


@pytest.mark.guarantee("update-as-new")
def test_an_update_needs_each_of_its_names_in_the_subfolder(job: Job) -> None:
    beside = Path(job.folder, FOLDER)
    (beside / "_done").mkdir(parents=True)
    for name in ("_done/00003.json", "vectors-00000-000.tar", "vectors-50003-000.tar", "notes.txt"):
        (beside / name).write_text("mine")
    before = files_of(Path(job.folder))
    update.begin(job, SECOND, b"the plan")
    assert before.items() <= files_of(Path(job.folder)).items(), "these names the update does not need"
    update.discard(job.folder)
    assert before == files_of(Path(job.folder))
    (beside / "vectors-50002-000.tar").write_text("mine")
    with pytest.raises(PipelineError, match=r"vectors-50002-000\.tar: `update` needs this name"):
        update.begin(job, SECOND, b"the plan")
    assert OwnedFiles.read(beside) is None and not (beside / "plan.json").exists()


@pytest.mark.guarantee("update-as-new")
def test_what_an_update_cannot_bring_up_to_date_is_refused(job: Job, embed: Command) -> None:
    before = files_of(Path(job.folder))
    ended = embed("--update", "--holdout-fraction", "0.1")
    assert ended.code == 1 and ended.err.count("\n") == 1 and files_of(Path(job.folder)) == before
    assert "--update: a dataset with --holdout-fraction cannot be updated: choose a new --output" in ended.err
    plan: Any = None
    with pytest.raises(PipelineError, match="`update`: gs://bucket/vectors is not on this machine"):
        update.is_outdated(dataclasses.replace(job, folder="gs://bucket/vectors"), plan, quiet=True)


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ([], [], (0, 0, 0)),
        ([], [5, 3, 5], (3, 0, 0)),
        ([5, 3, 5], [], (0, 3, 0)),
        ([5, 3, 5], [3, 5, 5], (0, 0, 3)),
        ([1, 7, 7, 7, 9], [7, 9, 9, 9, 4], (3, 3, 2)),
        ([2**62, 7, 7, 7], [-(2**62), 7, 7], (1, 2, 2)),
        ([5, 2**32 + 5, 2**53, 2**62], [5, 2**33 + 5, 2**53 + 1, 2**62 + 1], (3, 3, 1)),
    ],
)
def test_a_text_that_occurs_three_times_counts_three_times(
    old: list[int], new: list[int], counts: tuple[int, int, int]
) -> None:
    found = update.changed(np.array(old, np.int64), np.array(new, np.int64))
    assert found == dict(zip(("new", "gone", "kept"), counts, strict=True))


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize(
    ("ids", "rows", "wanted", "found"),
    [
        ([], [], [4, 8], [-1, -1]),
        ([4], [0], [3, 4, 5], [-1, 0, -1]),
        ([2**62 - 1, 2**62, 2**62 + 1], [2, 0, 1], [2**62 + 1, 2**62, 2**62 - 1, 2**62 + 2], [1, 0, 2, -1]),
        ([4, 8, 2**62], [2, 0, 1], [2**62, 2**62 + 1, 8, 9, 4, 0, 8], [1, -1, 0, -1, 2, -1, 0]),
    ],
)
def test_a_vector_is_copied_from_the_row_of_its_id(
    ids: list[int], rows: list[int], wanted: list[int], found: list[int], tmp_path: Path, monkeypatch: Any
) -> None:
    np.save(tmp_path / "index.npy", np.array([ids, rows], np.int64).reshape(2, -1))
    monkeypatch.setattr("clearspan.pipelines.builders.copied.Dataset", lambda folder: SimpleNamespace(shards=[]))
    rows_of = Copied("old", tmp_path / "index.npy").rows
    assert rows_of(wanted).tolist() == found and rows_of([]).tolist() == []
    row = dict(zip(wanted, found, strict=True))
    for size in range(1, min(len(wanted), 4) + 1):  # windows of texts, of which several may begin with the same one
        for some in itertools.islice(itertools.product(wanted, repeat=size), 0, None, 3):
            assert rows_of(some).tolist() == [row[each] for each in some]
