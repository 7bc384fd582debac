"""Failures at any point: the folder is a complete dataset, or the command says why not. The same command, run again,
ends with the bytes of an undisturbed run.

Each call of storage fails in turn: before it does anything, or after it has (a lost answer).
"""

import contextlib
import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clearspan.common import files
from clearspan.pipelines.text import tokenization
from clearspan.pipelines.text.tokenization import TokenizerFiles
from clearspan.shards import storage, verify

READING = ("exists", "open_input", "read_bytes", "file_sizes", "status", "find")
WRITING = ("remove", "publish_bytes", "publish_file")
CHANGING = (*WRITING, "fsync", "replace")
"""Calls that leave something behind."""
PLAIN = ()
CURATED = ("--dedup", "--limit", "12", "--holdout-fraction", "0.4")


class Faults:
    """Count the calls of storage and their system calls by name; one of them fails, before or after its work."""

    def __init__(self, name: str = "", at: int = 0, when: str = "before", error: int = errno.EIO) -> None:
        self.name, self.at, self.when, self.error = name, at, when, error
        self.counts: Counter[str] = Counter()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **options: Any) -> Any:
            number = self.counts[name]
            self.counts[name] += 1
            if (name, number) != (self.name, self.at):
                return call(*arguments, **options)
            if self.when == "after":
                call(*arguments, **options)
            raise OSError(self.error, os.strerror(self.error), str(arguments[0]) if arguments else name)

        return faulty

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in (*READING, *WRITING):
                patch.setattr(storage, name, self.around(name, getattr(storage, name)))
            patch.setattr(os, "fsync", self.around("fsync", os.fsync))
            patch.setattr(Path, "replace", self.around("replace", Path.replace))
            yield


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path) -> Path:
    """Twenty-three documents in two files, with three copies and one broken line."""
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in [*texts[:14], *texts[:2]]]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_bytes(b"".join([*lines, b'{"text": "Call me Ish\n']))
    (tmp_path / "corpus" / "b.txt").write_text("\n".join(" ".join(text.split()) for text in [*texts[20:26], texts[20]]))
    return tmp_path / "corpus"


@pytest.fixture
def command(direct, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Command over the corpus in two units, without slow steps, since it runs hundreds of times."""
    options = ("--unit-bytes", "60000", "--min-tokens", "300", "--max-bad-fraction", "0.1", "--text-per", "line")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(tokenization, "PROOF_CHARACTERS", 1)
    monkeypatch.setattr(
        "clearspan.pipelines.builders.text_steps.read_tokenizer",
        lambda _: TokenizerFiles({"tokenizer.json": b"{}"}, 50265),
    )
    monkeypatch.setattr(tokenization, "vocab_size_of", lambda _: 50265)
    return lambda *more: direct("--input", corpus, *options, *more)


@pytest.mark.exhaustive
@pytest.mark.parametrize("switches", [PLAIN, CURATED], ids=["plain", "curated"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_any_call_of_storage_may_fail(command, tmp_path: Path, tree, switches: tuple, when: str) -> None:
    undisturbed, counting = tmp_path / "undisturbed", Faults()
    with counting.installed():
        assert command(*switches, "--output", undisturbed).code == 0
    expected = tree(undisturbed)
    calls = counting.counts
    names = set(CHANGING) if when == "after" else {*CHANGING, *READING}
    assert calls.total() > 60 and names <= calls.keys()
    # Of the calls that only read, every third: most are made for both units, and for every slice and round.
    steps = {name: 3 if name in READING else 1 for name in sorted(names)}
    for name, at in ((each, number) for each, step in steps.items() for number in range(0, calls[each], step)):
        folder, faults = tmp_path / f"{name}-{at}", Faults(name, at, when)
        with faults.installed():
            outcome = command(*switches, "--output", folder)
        if outcome.code == 0:
            assert tree(folder) == expected, (name, at)
            continue
        assert outcome.code == 1 and outcome.err.count("\n") == 1, (name, at, outcome.err)
        assert "Input/output error" in outcome.err
        if (folder / "manifest.json").exists():
            assert verify(folder) == []
        assert command(*switches, "--output", folder).code == 0, (name, at)
        assert tree(folder) == expected, (name, at)


@pytest.mark.guarantee("one-run-a-folder")
def test_a_second_run_on_the_same_folder_is_refused(command, tmp_path: Path, tree) -> None:
    with files.locked(tmp_path / "out"):
        outcome = command()
    assert outcome.code == 1
    assert (
        outcome.err
        == f"pipelines: {tmp_path / 'out'}: another run is writing to this folder: wait for that run, or stop it\n"
    )
    assert tree(tmp_path / "out") == {}
    assert command().code == 0


def test_an_output_among_the_inputs_is_refused_before_anything_is_written(direct, corpus: Path, tree) -> None:
    before = tree(corpus)
    outcome = direct("--input", corpus, "--output", corpus / "out")
    assert outcome.code == 1 and "is among the inputs: choose a folder outside of them" in outcome.err
    assert tree(corpus) == before
