"""`clearspan vocabulary`: a tokenizer from texts in any format, reproducible, with each record counted."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.pipelines import vocabulary_command
from clearspan.pipelines.__main__ import main
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
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


def test_files_that_are_left_out_by_their_names_are_told(learn, head: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    head.rename(tmp_path / "in" / "head.jsonl")
    (tmp_path / "in" / "_SUCCESS").touch()
    for _ in range(2):
        code, out, _ = learn("--input", tmp_path / "in", *SIZE)
        assert code == 0 and "\n  1 file left out, since names that begin with _ are no data" in out


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


OWLS = ["The tawny owl calls at night.", "Die Schleiereule ruft in der Nacht.", "Le hibou moyen-duc vole sans bruit."]
SMALL = ("--size", "300")


@pytest.fixture
def owls(tmp_path: Path) -> Path:
    """A folder of three files, of one text or two each."""
    (tmp_path / "owls").mkdir()
    for number, text in enumerate(OWLS):
        lines = [json.dumps({"text": text}), *([json.dumps({"text": text.upper()})] if number else [])]
        (tmp_path / "owls" / f"{number}.jsonl").write_text("\n".join(lines))
    return tmp_path / "owls"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.guarantee("learned-as-written")
@pytest.mark.parametrize("piece_bytes", [30, 16_000_000])
def test_it_is_learned_from_every_text_of_every_file_in_order(
    learn, owls: Path, tmp_path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary_command, "SPLIT_BYTES", piece_bytes)
    code, out, err = learn("--input", owls, *SMALL, "--json")
    assert (code, err) == (0, "") and json.loads(out)["texts"] == 5 == json.loads(out)["read"]
    texts = [OWLS[0], OWLS[1], OWLS[1].upper(), OWLS[2], OWLS[2].upper()]
    assert json.loads(out)["text_bytes"] == sum(len(text.encode()) for text in texts)
    learn_tokenizer(texts, 300, tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "learned" / name).read_bytes() == (tmp_path / name).read_bytes()
    code, again, err = learn("--input", owls, *SMALL, "--json")
    assert (code, err, json.loads(again)) == (0, "", {**json.loads(out), "is_new": False})


@pytest.mark.guarantee("learned-as-written")
def test_texts_in_another_encoding_are_read_whole(learn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_command, "SPLIT_BYTES", 20)
    text = "Der Rauhfußkauz brütet in Höhlen\n" * 5
    (tmp_path / "a.txt").write_text(text, encoding="utf-16")
    words = ("--input", tmp_path / "a.txt", "--text-per", "line", "--encoding", "utf-16", *SMALL, "--json")
    for is_new in (True, False):
        code, out, err = learn(*words)
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert [found[name] for name in ("texts", "bad", "text_bytes", "is_new")] == [5, 0, 5 * 35, is_new]


@pytest.mark.guarantee("learned-as-written")
def test_each_file_that_it_wrote_is_made_again_if_it_is_lost_or_differs(learn, owls: Path, tmp_path: Path) -> None:
    assert learn("--input", owls, *SMALL)[0] == 0
    folder = tmp_path / "learned"
    made = contents(folder)
    for name in made.keys() - {"plan.json", "summary.json"}:
        for damaged in (None, made[name][:-1], made[name] + b" ", made[name].replace(b"e", b"a", 1)):
            (folder / name).unlink()
            if damaged is not None:
                (folder / name).write_bytes(damaged)
            code, out, _ = learn("--input", owls, *SMALL)
            assert (code, "already learned" in out) == (0, False), (name, damaged)
            assert contents(folder) == made


class LearnedAgainError(Exception):
    pass


def learned_again(*_: object) -> None:
    raise LearnedAgainError


@pytest.mark.guarantee("learned-as-written")
def test_a_change_of_one_byte_is_found_however_late_and_small(
    learn, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time after the whole file was found to be as it was written, in the same process."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:30]))
    words = ("--input", tmp_path / "a.jsonl", "--size", "4000")
    assert learn(*words)[0] == 0
    path = tmp_path / "learned" / "tokenizer.json"
    whole = path.read_bytes()
    assert len(whole) > 100_000 and whole.endswith(b"}")
    monkeypatch.setattr(vocabulary_command, "_learn", learned_again)
    for damaged in (whole[:-1] + b" ", whole[:-1] + b"]", whole.replace(b"\n", b"\r\n"), whole + b"\n"):
        assert "already learned" in learn(*words)[1]
        path.write_bytes(damaged)
        with pytest.raises(LearnedAgainError):
            learn(*words)
        path.write_bytes(whole)


@pytest.mark.guarantee("learned-as-written")
@pytest.mark.parametrize("lacking", ["plan", "files", "the name of a file", "a record"])
def test_a_summary_that_does_not_say_what_was_written_is_none(learn, owls: Path, tmp_path: Path, lacking: str) -> None:
    assert learn("--input", owls, *SMALL)[0] == 0
    path = tmp_path / "learned" / "summary.json"
    made, record = contents(tmp_path / "learned"), load_checksummed(path.read_bytes())
    record |= {"files": ["tokenizer.json"]} if lacking == "the name of a file" else {}
    path.write_bytes(
        b"[]" if lacking == "a record" else dump_checksummed({k: v for k, v in record.items() if k != lacking})
    )
    code, out, err = learn("--input", owls, *SMALL)
    assert (code, "already learned" in out, err) == (0, False, "")
    assert contents(tmp_path / "learned") == made


@pytest.mark.guarantee("learned-as-written")
def test_files_of_another_tokenizer_are_not_kept(learn, owls: Path, tmp_path: Path) -> None:
    assert learn("--input", owls, *SMALL)[0] == 0
    assert learn("--input", owls, "--size", "280", "--output", tmp_path / "smaller")[0] == 0
    made = contents(tmp_path / "learned")
    for name in made.keys() - {"plan.json"}:
        shutil.copy(tmp_path / "smaller" / name, tmp_path / "learned" / name)
    code, out, _ = learn("--input", owls, *SMALL)
    assert (code, "already learned" in out) == (0, False)
    assert contents(tmp_path / "learned") == made


@pytest.mark.guarantee("learned-as-written", "changed-input")
def test_other_texts_or_options_are_refused_and_change_nothing(learn, owls: Path, tmp_path: Path) -> None:
    assert learn("--input", owls, *SMALL)[0] == 0
    made = contents(tmp_path / "learned")
    code, _, err = learn("--input", owls, "--size", "280")
    assert code == 1 and "was begun with other inputs or options (options.size: 300 there, 280 now)" in err
    edited = owls / "2.jsonl"
    before, status = edited.read_bytes(), edited.stat()
    edited.write_bytes(before.replace(b"bruit", b"bruyt"))
    os.utime(edited, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    code, _, err = learn("--input", owls, *SMALL)
    assert code == 1 and err.startswith("pipelines: ")
    assert contents(tmp_path / "learned") == made
    edited.write_bytes(before)
    assert "was already learned" in learn("--input", owls, *SMALL)[1]


@pytest.mark.guarantee("learned-as-written")
def test_a_folder_that_was_moved_is_said_by_its_new_name(learn, owls: Path, tmp_path: Path) -> None:
    assert learn("--input", owls, *SMALL)[0] == 0
    (tmp_path / "learned").rename(tmp_path / "moved")
    code, out, _ = learn("--input", owls, *SMALL, "--output", tmp_path / "moved")
    assert code == 0 and out.startswith(f"{tmp_path / 'moved'}: a tokenizer of 300 ids") and "already learned" in out


@pytest.mark.guarantee("learned-as-written")
def test_what_was_bad_and_allowed_when_it_was_learned_is_no_reason_to_refuse_it(
    learn, owls: Path, tmp_path: Path
) -> None:
    (owls / "0.jsonl").write_text("no record\n" * 9 + json.dumps({"text": OWLS[0]}))
    assert learn("--input", owls, *SMALL, "--max-bad-fraction", "0.7")[0] == 0
    code, out, err = learn("--input", owls, *SMALL)
    assert (code, err) == (0, "") and "was already learned" in out


@pytest.mark.guarantee("learned-as-written")
def test_it_is_learned_from_the_field_that_the_command_names(learn, owls: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in OWLS))
    assert learn("--input", tmp_path / "a.jsonl", *SMALL, "--text-field", "body")[0] == 0
    learn_tokenizer(OWLS, 300, tmp_path)
    assert (tmp_path / "learned" / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


@pytest.mark.guarantee("learned-as-written")
def test_files_that_are_left_out_are_named_each_time(learn, owls: Path) -> None:
    (owls / "_part.jsonl").write_text(json.dumps({"text": "an unfinished text"}))
    for is_new in (True, False):
        code, out, _ = learn("--input", owls, *SMALL)
        assert (code, "already learned" not in out) == (0, is_new)
        assert "_part.jsonl" in out and "unfinished" not in out
