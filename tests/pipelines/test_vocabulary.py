"""`clearspan vocabulary`: a tokenizer from texts in any format, reproducible, with each record counted."""

import json
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from clearspan.pipelines import vocabulary_command
from clearspan.pipelines.__main__ import main
from tests.conftest import exit_code

SIZE = ("--size", "600")


@pytest.fixture
def learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Run the command in this process, to tmp_path/learned by default; return its exit code, output and errors."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        words = ["vocabulary", *map(str, arguments)]
        if "--output" not in words:
            words += ["--output", str(tmp_path / "learned")]
        capsys.readouterr()
        code = exit_code(main, *words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.slow
def test_it_is_a_tokenizer_for_the_pipelines_and_gives_every_text_back(
    learn, pipeline, head: Path, texts: list[str], tmp_path: Path
) -> None:
    assert learn("--input", head, *SIZE)[0] == 0
    loaded = Tokenizer.from_file(str(tmp_path / "learned" / "tokenizer.json"))
    text = f"{texts[0]} 日本 🙂"
    ids = loaded.encode(text).ids
    assert [loaded.id_to_token(ids[0]), loaded.id_to_token(ids[-1])] == ["<s>", "</s>"]
    assert loaded.decode(ids) == text
    outcome = pipeline("--input", head, "--tokenizer", tmp_path / "learned", "--min-tokens", "300")
    assert (outcome.code, outcome.err) == (0, "")


def test_what_could_not_be_read_is_counted_and_too_much_of_it_is_an_error(learn, head: Path, tmp_path: Path) -> None:
    with head.open("ab") as lines:
        lines.write(b'broken\n{"text": " "}\n')
    code, out, err = learn("--input", head, *SIZE)
    assert (code, out) == (1, "")
    assert "1 of 42 records are bad, e.g. head.jsonl:" in err and "(allowed: --max-bad-fraction 0.001)" in err
    assert not (tmp_path / "learned").exists()
    code, out, _ = learn("--input", head, *SIZE, "--max-bad-fraction", "0.1", "--json")
    summary = json.loads(out)
    assert code == 0 and summary["ids"] == 600
    assert [summary[name] for name in ("read", "texts", "empty", "bad")] == [42, 40, 1, 1]
    assert summary["bad_examples"][0][0].startswith("head.jsonl:")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--size", "260"], "--size must be at least 261"),
        (["--output", "gs://bucket/tokenizer"], "--output must be a folder on this machine"),
    ],
)
def test_bad_usage_is_exit_2_and_says_what(learn, head: Path, arguments: list[str], complaint: str) -> None:
    code, out, err = learn("--input", head, *arguments)
    assert (code, out) == (2, "") and complaint in err


@pytest.mark.parametrize(
    ("content", "options", "complaint"),
    [
        ('{"text": ""}\n', [], "the inputs hold no text (1 records): check --input and --text-field"),
        ('{"body": "A man."}\n', [], 'no field "text" among body: name the field of the text with --text-field'),
    ],
)
def test_inputs_without_text_are_an_error_in_one_line(
    learn, tmp_path: Path, content: str, options: list[str], complaint: str
) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    code, out, err = learn("--input", tmp_path / "a.jsonl", *options)
    assert (code, out, err.count("\n")) == (1, "", 1) and complaint in err


@pytest.mark.guarantee("output-kept")
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(learn, head: Path, tmp_path: Path, tree) -> None:
    (tmp_path / "learned").mkdir()
    (tmp_path / "learned" / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    code, _, err = learn("--input", head, *SIZE)
    assert code == 1 and "learned: holds other files (notes.txt): choose a new or empty --output" in err
    assert tree(tmp_path) == before


def never(*_: object) -> None:
    pytest.fail("learned again")


@pytest.mark.guarantee("learned-as-written")
def test_the_same_command_again_keeps_its_tokenizer_and_says_so(
    learn, head: Path, tmp_path: Path, tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = learn("--input", head, *SIZE)
    made = tree(tmp_path / "learned")
    monkeypatch.setattr(vocabulary_command, "learn_tokenizer", never)
    for _ in range(2):
        said = f"{first[1].rstrip()}\n  was already learned from these inputs: nothing to do\n"
        assert learn("--input", head, *SIZE) == (0, said, "")
        assert tree(tmp_path / "learned") == made
        os.utime(head)


@pytest.mark.guarantee("learned-as-written")
@pytest.mark.parametrize("lost", ["tokenizer.json", "summary.json", "all but plan.json", "damaged"])
def test_a_tokenizer_whose_run_was_stopped_or_that_is_damaged_is_made_again(
    learn, head: Path, tmp_path: Path, tree, lost: str
) -> None:
    assert learn("--input", head, *SIZE)[0] == 0
    folder = tmp_path / "learned"
    made = tree(folder)
    for name in made:
        if name == lost or (lost == "all but plan.json" and name != "plan.json"):
            (folder / name).unlink()
        elif lost == "damaged" and name != "plan.json":
            (folder / name).write_text("{")
    assert learn("--input", head, *SIZE)[0] == 0
    assert tree(folder) == made
