"""`python -m shards`: what it prints, and exit codes 0, 1 and 2."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.terminal import visible
from clearspan.shards import Dataset, Manifest
from clearspan.shards.__main__ import main
from clearspan.shards.layouts import array_of


@pytest.mark.slow
def test_ls_sums_up_a_dataset(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(dataset)]) == 0
    out = capsys.readouterr().out
    assert f"{dataset}: documents, " in out
    assert "read 70 = kept 60, 4 short_bytes, 5 short_tokens, bad 1" in out
    assert "50,265 ids" in out
    assert out.count("documents-0000") == len(list(dataset.glob("*.tar")))


def test_ls_tells_the_tokens_of_examples_from_those_of_their_views(
    with_views: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for batch in Dataset(with_views) for row in batch.to_pylist()]
    examples = sum(len(row["tokens"]) for row in rows)
    views = [sum(len(row[name]) for row in rows) for name in ("view_0", "view_1")]
    assert main(["ls", str(with_views)]) == 0
    said = f"tokens {examples + sum(views):,}: tokens {examples:,}, view_0 {views[0]:,}, view_1 {views[1]:,}"
    assert said in capsys.readouterr().out


def test_ls_tells_what_shaped_the_examples(with_views: Path, capsys: pytest.CaptureFixture[str]) -> None:
    augmentation = {"steps": "subs+del-span", "subs": 0.3}
    options = {"min_tokens": 4, "pack": None, "dedup": True, "lowercase": False, "augmentation": augmentation}
    whole = Manifest.load(str(with_views))
    dataclasses.replace(whole, fingerprint={**whole.fingerprint, "options": options}).save(str(with_views))
    assert main(["ls", str(with_views)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  min_tokens 4, dedup True, augmentation.steps subs+del-span, augmentation.subs 0.3" in lines


def test_ls_tells_classes_and_what_was_taken(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(images)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  size 256, taken.files 9, taken.of_files 1200, taken.classes 3, taken.of_classes 60" in lines
    assert "  classes 3, of 2 to 4 examples" in lines


def test_ls_tells_the_statistics_of_frames(audio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.concatenate([array_of(value).ravel() for batch in Dataset(audio) for value in batch["frames"]])
    values = values.astype(np.float64)
    assert main(["ls", str(audio)]) == 0
    out = capsys.readouterr().out
    assert f"  values of frames: mean {values.mean():.4f}, std {values.std():.4f}\n" in out


def test_cat_tells_a_pictures_class_and_size(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(iter(Dataset(images))).to_pylist()[0]
    assert main(["cat", str(images), "--limit", "1"]) == 0
    assert capsys.readouterr().out == (f"id {row['id']}  image {len(row['image']):,} bytes  label 0  class ant\n")
    assert main(["cat", str(images), "--limit", "1", "--json"]) == 0
    sha256 = hashlib.sha256(row["image"]).hexdigest()
    image = {"bytes": len(row["image"]), "sha256": sha256}
    assert json.loads(capsys.readouterr().out) == {"id": row["id"], "image": image, "label": 0, "class": "ant"}


def test_cat_tells_a_clips_class_and_frames_but_not_their_values(
    audio: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = next(iter(Dataset(audio)))
    frames, number = array_of(batch["frames"][1]), batch["id"][1].as_py()
    assert main(["cat", str(audio), "--limit", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1] == f"id {number}  frames {len(frames)} x 128  label 1  class jackson"
    assert main(["cat", str(audio), "--limit", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[1])
    assert row["frames"]["shape"] == list(frames.shape) and row["class"] == "jackson"
    assert row["frames"]["sha256"] == hashlib.sha256(frames.tobytes()).hexdigest()


@pytest.mark.guarantee("verify-every-figure")
def test_verify_says_that_all_is_well(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(dataset)]) == 0
    assert capsys.readouterr().out == f"{dataset}: every shard is as the manifest says\n"


@pytest.mark.guarantee("verify-every-figure")
def test_verify_names_what_is_not(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dataset / "documents-00000-000.tar").unlink()
    assert main(["verify", str(dataset), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    (problem,) = report["problems"]
    assert "documents-00000-000.tar" in problem


def test_cat_shows_the_text_the_shards_were_made_of(
    dataset: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (shared_data / "text" / "openwebtext_sample.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines[:8]]
    assert main(["cat", str(dataset), "--limit", "8", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["tokens"] for row in rows] == texts
    assert [row["id"] for row in rows] == list(range(8))


def test_cat_cuts_long_texts_to_the_width(dataset: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (shared_data / "text" / "openwebtext_sample.jsonl").open(encoding="utf-8") as lines:
        text = json.loads(next(lines))["text"]
    assert main(["cat", str(dataset), "--limit", "1", "--width", "20"]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == "id 0  source owt.jsonl:0"
    assert second.endswith(f": {text[:20]} ...")


@pytest.mark.published("sentences")
@pytest.mark.published("tokenizers")
def test_cat_shows_views_below_their_sentence(with_views: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(with_views), "--limit", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "id 0",
        "  tokens (6): YMCA in South Australia",
        "  view_0 (3): YCA South",
        "  view_1 (6):  Australia South inCAMY",
    ]


def test_a_corpus_does_not_steer_the_terminal() -> None:
    assert visible("a\x1b[31m \u202eb\ré\n東\t\x85") == "a\\x1b[31m \\u202eb\\ré\n東\t\\x85"


@pytest.mark.parametrize("command", ["ls", "verify", "cat"])
def test_a_folder_that_is_no_dataset_is_one_line_and_exit_1(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"shards: {tmp_path}: no manifest.json: not a dataset, or its pipeline has not finished (run it again)\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lss", "d"], "did you mean 'ls'?"),
        (["cat", "d", "--widht=3"], "no such option: --widht; did you mean '--width'?"),
        (["cat", "d", "--limit", "1_0"], "argument --limit: not an integer: '1_0'"),
    ],
)
def test_a_mistyped_word_names_the_nearest_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(words)
    (line,) = capsys.readouterr().err.splitlines()
    assert error.value.code == 2 and message in line
