"""Input formats: `--format module:name` names a class like those of the built-in ones, in one file."""

import contextlib
import gzip
import importlib
import inspect
import json
import mailbox
import random
import re
import sys
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.errors import PipelineError
from clearspan.common.plugins import PluginError
from clearspan.pipelines.readers import formats as known_formats
from clearspan.pipelines.readers import read_splits, sniff
from clearspan.pipelines.readers.formats import BUILT_IN, Format, built_in, described, naming_own_format
from clearspan.pipelines.readers.streams import DamagedFileError
from clearspan.pipelines.records import ReadOptions, Split
from clearspan.pipelines.units.plan import cut, find_inputs
from tests.conftest import ROOT
from tests.processes import environment, run_commands

FORTUNES = '''
"""Fortune files: texts, each followed by a line with a percent sign alone."""

import dataclasses
import sys

from clearspan.pipelines.readers.formats import Format
from clearspan.pipelines.records import Record


class Fortunes(Format):
    def recognizes(self, head, path):
        return b"\\n%\\n" in head

    def read(self, stream, piece, reading):
        offset = 0
        for data in stream.read().split(b"%\\n"):
            if data:
                problem = "longer than allowed" if len(data) > reading.max_bytes else ""
                yield Record(piece.input.name, offset, None if problem else data.decode(), data, problem)
            offset += len(data) + 2


class Hasty(Fortunes):
    def read(self, stream, piece, reading):
        yield Record(piece.input.name, 0, stream.readline().decode(), b"")


class Unread(Format):
    def recognizes(self, head, path):
        return True


class Unsure(Fortunes):
    def recognizes(self, head, path):
        return self.names[path]


class Uncut(Fortunes):
    def cut(self, path, num_bytes, unit_bytes, whole):
        raise IndexError(path)


class Badly(Fortunes):
    def cut(self, path, num_bytes, unit_bytes, whole):
        return PIECES


class Broken(Fortunes):
    def read(self, stream, piece, reading):
        yield from list(super().read(stream, piece, reading))[:2]
        raise EOFError("no\\nlast line")


class Latin(Fortunes):
    def read(self, stream, piece, reading):
        stream.read()
        b"caf\\xe9".decode()
        yield


class Texts(Fortunes):
    def read(self, stream, piece, reading):
        yield stream.read().decode()


class Ended(Fortunes):
    def read(self, stream, piece, reading):
        yield from list(super().read(stream, piece, reading))[:1]
        sys.exit(0)


class Asked(Fortunes):
    def recognizes(self, head, path):
        sys.exit()


class Speechless(Exception):
    def __str__(self):
        return self.message


class Mute(Fortunes):
    def read(self, stream, piece, reading):
        raise Speechless


class Counted(Fortunes):
    def read(self, stream, piece, reading):
        for record in super().read(stream, piece, reading):
            yield dataclasses.replace(record, **CHANGES)


class Text(Fortunes):
    def read(self, stream, piece, reading):
        yield from (Record(piece.input.name, 0, "one of many", b"") for _ in range(3000))
        yield Record(piece.input.name, 0, stream.read(), "the last")


class Costly(Fortunes):
    def __init__(self):
        raise SystemExit("no license")


class Former:
    recognizes, read = Fortunes.recognizes, Fortunes.read
'''
SAYINGS = [
    "The moving finger writes; and, having writ, moves on.",
    "Call me Ishmael.",
    "It was the best of times, it was the worst of times.",
]


@pytest.fixture
def fortunes(tmp_path: Path, own_module: Callable[[str], str]) -> str:
    """Write a format's module, two files of it, and a plain text; return the module's name."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.fortunes").write_text("%\n".join(f"{text}\n" for text in SAYINGS))
    (tmp_path / "texts" / "b.gz").write_bytes(gzip.compress(f"{SAYINGS[0]}\n%\n{SAYINGS[1]} Really.\n".encode()))
    (tmp_path / "texts" / "c.txt").write_text("All happy families are alike.")
    return own_module(FORTUNES)


OPTIONS = ("--input", "texts", "--min-tokens", "1", "--dedup")


@pytest.mark.guarantee("own-format")
@pytest.mark.exhaustive
def test_files_that_a_format_recognizes_are_read_by_it_and_others_as_before(
    fortunes: str, pipeline, tmp_path: Path, roberta_tokenizer: Path
) -> None:
    command = ["-m", "clearspan.pipelines", "documents", "--format", f"{fortunes}:Fortunes", *OPTIONS]
    more = ["--output", "out", "--tokenizer", str(roberta_tokenizer), "--workers", "2", "--unit-bytes", "60", "--json"]
    made = run_commands([*command, *more], [environment()], folder=tmp_path)
    assert made.returncode == 0, made.stderr
    summary = json.loads(made.stdout)
    assert (summary["read"], summary["kept"], summary["filtered"]["duplicate"]) == (6, 5, 1)
    printed = run_commands(["-m", "clearspan.shards", "cat", "out", "--json"], [environment()], folder=tmp_path)
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [row["source"] for row in rows] == [
        "a.fortunes:0",
        f"a.fortunes:{len(SAYINGS[0]) + 3}",
        f"a.fortunes:{len(SAYINGS[0] + SAYINGS[1]) + 6}",
        f"b.gz:{len(SAYINGS[0]) + 3}",
        "c.txt",
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["fingerprint"]["options"]["formats"] == [f"{fortunes}:Fortunes"]


@pytest.mark.guarantee("own-format")
@pytest.mark.guarantee("records-counted")
@pytest.mark.slow
def test_records_that_a_format_calls_bad_are_rejected(fortunes: str, pipeline, tmp_path: Path) -> None:
    some_bad = ["--max-document-bytes", "30", "--max-bad-fraction", "1"]
    ended = pipeline("--format", f"{fortunes}:Fortunes", *OPTIONS, *some_bad, "--json")
    summary = json.loads(ended.out)
    assert (summary["bad"], summary["kept"]) == (3, 3)


@pytest.mark.guarantee("own-format")
@pytest.mark.slow
def test_a_format_that_leaves_bytes_unread_is_one_line(fortunes: str, pipeline) -> None:
    ended = pipeline("--format", f"{fortunes}:Hasty", *OPTIONS)
    assert ended.code == 1 and f"a.fortunes: {fortunes}:Hasty read " in ended.err and "bytes, not all" in ended.err


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("Unsure", "AttributeError: 'Unsure' object has no attribute 'names'"),
        ("Uncut", "IndexError: "),
        ("Broken", "EOFError: no last line"),
        ("Latin", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9"),
        ("Texts", "TypeError: read must yield records, not '"),
        ("Ended", "SystemExit: 0"),
        ("Asked", "SystemExit"),
        ("Mute", "Speechless: Speechless"),
        ("Text", "TypeError: the raw of a record must be bytes, not 'the last'"),
    ],
)
def test_a_format_that_raises_is_one_line_with_the_file_the_format_and_the_error(
    fortunes: str, direct, tmp_path: Path, name: str, error: str
) -> None:
    (tmp_path / "texts" / "c.txt").unlink()
    ended = direct("--format", f"{fortunes}:{name}", *OPTIONS)
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert f"texts/a.fortunes: the format {fortunes}:{name} raised {error}" in ended.err


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"raw": "Call me Ishmael."}, "the raw of a record must be bytes, not 'Call me Ishmael.'"),
        ({"offset": "first"}, "the offset of a record must be an integer or None, not 'first'"),
        ({"name": None}, "the name of a record must be a text, not None"),
        ({"value": {5: "Call me Ishmael."}}, "the names of a record's fields must be texts, not 5"),
        (
            {"value": {"text": "Call me", "n": 1, None: "Ishmael."}},
            "the names of a record's fields must be texts, not None",
        ),
    ],
)
def test_a_record_with_a_wrong_attribute_is_one_line(
    fortunes: str, direct, changes: dict[str, object], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_inputs(["texts"], ReadOptions(formats=(f"{fortunes}:Counted",)))  # loads the module
    monkeypatch.setattr(sys.modules[fortunes], "CHANGES", changes, raising=False)
    ended = direct("--format", f"{fortunes}:Counted", *OPTIONS)
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert f"a.fortunes: the format {fortunes}:Counted raised TypeError: {error}" in ended.err


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize("value", [5, b"Call me Ishmael.", ["Call me Ishmael."], object(), {"text": 1.5}])
def test_a_value_that_is_no_text_is_a_bad_record(
    fortunes: str, direct, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"value": value, "offset": np.int64(7)}
    find_inputs(["texts"], ReadOptions(formats=(f"{fortunes}:Counted",)))  # loads the module
    monkeypatch.setattr(sys.modules[fortunes], "CHANGES", changes, raising=False)
    (tmp_path / "texts" / "b.gz").unlink()
    ended = direct("--format", f"{fortunes}:Counted", *OPTIONS)
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert "3 of 4 records are bad, e.g. a.fortunes:7: " in ended.err
    assert "is not a " in ended.err


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            [(0, 10), (5, None)],
            "cuts out a split from 5 to None, after byte 10",
        ),
        ([(20, None), (0, 20)], "cuts out a split from 20 to None, after byte 0"),
        ([(0, 9), (10, None)], "cuts out a split from 10 to None, after byte 9"),
        ([(0, 9), (9, 5)], "cuts out a split from 9 to 5"),
        ([(-1, None)], "cuts out a split from -1 to None"),
        ([(0, 10**6)], "cuts out a split from 0 to 1000000"),
        ([(0, None), (5, 9)], "cuts out a split from 5 to 9"),
        ([(0, 7.5), (7.5, None)], "cuts out a split from 0 to 7.5"),
        ([("0", None)], "cuts out a split from '0' to None"),
        ([(0.0, None)], "cuts out a split from 0.0 to None"),
        ([(0, 9)], "cuts out no split from 9 to "),
        ([], "cuts out no split from 0 to "),
        ([4, 9], "raised TypeError: "),
        (None, "raised TypeError: 'NoneType'"),
    ],
)
def test_a_format_that_cuts_badly_is_one_line(
    pieces: object, message: str, fortunes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts" / "b.gz").unlink()
    spec = f"{fortunes}:Badly"
    inputs = find_inputs(["texts"], ReadOptions(formats=(spec,)))
    monkeypatch.setattr(sys.modules[fortunes], "PIECES", pieces, raising=False)
    with pytest.raises(PipelineError, match=f"^{tmp_path}/texts/a.fortunes: the format {spec} {re.escape(message)}"):
        cut(inputs.root, inputs.files, 10)


@pytest.mark.guarantee("own-format")
def test_ends_of_numpy_are_whole_numbers(fortunes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = find_inputs(["texts/a.fortunes"], ReadOptions(formats=(f"{fortunes}:Badly",)))
    size = inputs.files[0].bytes
    monkeypatch.setattr(sys.modules[fortunes], "PIECES", np.array([[0, 9], [9, size]]), raising=False)
    (unit,) = cut(inputs.root, inputs.files, 1000)
    assert [(piece.start, piece.end) for piece in unit.splits] == [(0, 9), (9, size)]
    assert all(type(piece.start) is type(piece.end) is int for piece in unit.splits)


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":Costly", "raised SystemExit: no license when called without arguments"),
        (":Nothing", "has no 'Nothing'"),
        (":Unread", "not an input format: it lacks read (see clearspan.pipelines.readers.formats.Format)"),
        (":Former", "Former, not an input format (a subclass of clearspan.pipelines.readers.formats.Format)"),
        ("", "not of the form module:name"),
    ],
)
def test_what_is_no_format_is_bad_usage(fortunes: str, pipeline, name: str, message: str) -> None:
    ended = pipeline("--format", f"{fortunes}{name}", *OPTIONS)
    assert ended.code == 2 and message in ended.err


@pytest.mark.guarantee("own-format")
def test_a_format_of_ones_own_is_one_file_that_says_how_it_is_cut_and_which_fields_it_has(
    texts: list[str], tmp_path: Path, own_module: Callable[[str], str]
) -> None:
    name = own_module((ROOT / "examples" / "extend" / "mbox.py").read_text(encoding="utf-8"))
    with contextlib.closing(mailbox.mbox(tmp_path / "wiki.mbox")) as box:
        for number, text in enumerate(texts[:20]):
            mail = EmailMessage()
            mail["From"], mail["Subject"] = "owl@example.org", f"Article {number}"
            mail.set_content(text)
            box.add(mail)
        mail.set_param("charset", "nonsense")
        box.add(mail)
    reading = ReadOptions(formats=(f"{name}:Mbox",))
    inputs = find_inputs([str(tmp_path / "wiki.mbox")], reading)
    assert [entry.format for entry in inputs.files] == [f"{name}:Mbox"]
    units = cut(inputs.root, inputs.files, 10_000)
    assert len(units) > 3
    identities: list[str] = []
    pieces = [piece for unit in units for piece in unit.splits]
    *found, bad = read_splits(inputs.root, pieces, reading, identities)
    assert bad.value is None and bad.problem == "unknown encoding: nonsense"
    assert [record.value["subject"] for record in found] == [f"Article {number}" for number in range(20)]
    assert [record.value["text"].split() for record in found] == [text.split() for text in texts[:20]]
    assert len(set(identities)) == len(pieces)
    data = (tmp_path / "wiki.mbox").read_bytes()
    assert all(data[record.offset :].startswith(b"From ") for record in found)


STANZAS = '''
"""Formats that know their files by the first word."""

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers.formats import Format
from clearspan.pipelines.records import Record

CUT = []


class Poems(Format):
    word = b"POEM"

    def recognizes(self, head, path):
        return head.startswith(self.word) and head.is_whole and path.endswith("a.stanzas")

    def read(self, stream, piece, reading):
        for line in stream.read().splitlines():
            yield Record(piece.input.name, None, line.decode(), b"", number=7)

    def cut(self, *arguments):
        CUT.append(arguments)
        return super().cut(*arguments)


class Plays(Poems):
    word = b"PLAY"


class Verses(Poems):
    word = b"P"
    is_numbered = True


class Sought(Poems):
    seeks = True


class Needy(Poems):
    def check(self, path):
        raise PipelineError(f"{path}: install elocution")
'''


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        ((), "POEM", None),
        (("Poems",), "POEM", "Poems"),
        (("Poems",), "PROSE", None),
        (("Poems", "Plays", "Sought"), "POEM", "Poems"),
        (("Plays", "Sought", "Poems"), "POEM", "Sought"),
        (("Plays", "Poems", "Verses"), "PROSE", "Verses"),
        (("Verses", "Plays", "Poems"), "POEM", "Verses"),
        (("Plays", "Verses", "Needy"), "POEM", "Verses"),
        (("Plays", "Needy"), "PLAY", "Plays"),
        (("Plays", "Needy"), "PROSE", None),
        (("Plays", "Needy", "Verses"), "POEM", "install elocution"),
    ],
)
def test_each_format_is_asked_and_the_first_that_recognizes_a_file_reads_it(
    names: tuple[str, ...], text: str, expected: str | None, own_module: Callable[[str], str], tmp_path: Path
) -> None:
    module = own_module(STANZAS)
    specs = [f"{module}:{name}" for name in names]
    path = tmp_path / "a.stanzas"
    for compression, packed in ((None, text.encode()), ("gzip", gzip.compress(text.encode()))):
        path.write_bytes(packed)
        if expected and " " in expected:
            with pytest.raises(PipelineError, match=f"^{path}: {expected}$"):
                sniff.recognized(str(path), specs)
            continue
        if expected == "Sought" and compression:  # it cannot seek in what is decompressed as it is read
            expected = "Poems"
        found = sniff.recognized(str(path), specs)
        assert found == (expected and (f"{module}:{expected}", compression))


@pytest.mark.guarantee("own-format")
def test_all_formats_that_the_user_names_are_asked_in_their_order(own_module: Callable[[str], str], direct) -> None:
    module = own_module(STANZAS)
    for name, text in (("a", "POEM\n"), ("b", "PLAY\nof three\nacts\n"), ("c", "PROSE,\nnot in verse\n")):
        Path(name).mkdir()
        Path(name, "a.stanzas").write_text(text)
    words = [word for name in ("Plays", "Poems", "Verses") for word in ("--format", f"{module}:{name}")]
    ended = direct("--input", "[abc]", *words, "--min-tokens", "1", "--json")
    assert ended.code == 0 and json.loads(ended.out)["read"] == 6
    manifest = json.loads(Path("out", "manifest.json").read_text())
    assert manifest["fingerprint"]["options"]["formats"] == words[1::2]


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize("suffixes", [(), (".stanzas",)])
@pytest.mark.parametrize("name", ["a", "a.jsonl", "a.csv.gz", "a.txt", "a.parquet", "a.tar"])
def test_a_format_is_asked_about_files_of_any_extension_and_is_told_the_whole_path(
    own_module: Callable[[str], str], tmp_path: Path, name: str, suffixes: tuple[str, ...]
) -> None:
    source = STANZAS.replace(
        'head.startswith(self.word) and head.is_whole and path.endswith("a.stanzas")', "'/poems/' in path"
    ).replace('word = b"POEM"', f"suffixes = {suffixes}")
    spec = f"{own_module(source)}:Poems"
    reading = ReadOptions(10**6, formats=(spec,))
    for folder in ("poems", "prose"):
        (tmp_path / folder).mkdir()
        data = b'{"text": "An owl.",\n "n": 1}'
        (tmp_path / folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (entry,) = find_inputs([str(tmp_path / "poems" / name)], reading).files
    assert entry.format == spec
    found = read_splits(str(tmp_path / "poems"), [Split(entry, 0, None)], reading)
    assert [record.value for record in found] == ['{"text": "An owl.",', ' "n": 1}']
    assert sniff.recognized(str(tmp_path / "prose" / name), [spec]) is None


@pytest.mark.guarantee("own-format")
def test_a_damaged_compressed_file_is_named_before_a_format_is_asked(
    own_module: Callable[[str], str], tmp_path: Path
) -> None:
    path = tmp_path / "a.stanzas"
    path.write_bytes(gzip.compress(b"POEM" * 999)[:-9])
    with pytest.raises(PipelineError, match=f"^{path}: damaged or cut short"):
        sniff.recognized(str(path), [f"{own_module(STANZAS)}:Poems"])


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(
    ("name", "compression", "error", "told"),
    [
        ("own:Poems", None, PipelineError("a: a line is missing"), None),
        ("own:Poems", None, DamagedFileError("it ends at byte 9"), None),
        ("own:Poems", None, FileNotFoundError(2, "No such file"), None),
        ("own:Poems", None, OSError("Not a gzipped file"), "OSError: Not a gzipped file"),
        ("own:Poems", None, EOFError("It ended\nbefore the end"), "EOFError: It ended before the end"),
        ("own:Poems", "gzip", EOFError("It ended before the end"), None),
        ("own:Poems", "gzip", OSError("Not a gzipped file"), None),
        ("own:Poems", "gzip", ValueError("No rhyme"), "ValueError: No rhyme"),
        ("own:Poems", None, ValueError("No rhyme"), "ValueError: No rhyme"),
        ("own:Poems", None, SystemExit(0), "SystemExit: 0"),
        ("own:Poems", None, KeyboardInterrupt(), None),
        ("jsonl", None, ValueError("No rhyme"), None),
        ("jsonl", "gzip", EOFError("It ended before the end"), None),
    ],
)
def test_what_the_code_of_a_format_raises_is_blamed_on_it_and_nothing_else(
    name: str, compression: str | None, error: BaseException, told: str | None
) -> None:
    with pytest.raises(BaseException) as caught, naming_own_format(name, "a", compression):
        raise error
    if told is None:
        assert caught.value is error
    else:
        assert type(caught.value) is PipelineError and str(caught.value) == f"a: the format {name} raised {told}"


@pytest.mark.guarantee("own-format")
def test_a_format_is_asked_for_pieces_of_the_wanted_size_and_has_the_name_that_the_user_writes(
    own_module: Callable[[str], str], tmp_path: Path
) -> None:
    module = own_module(STANZAS)
    spec, path = f"{module}:Poems", str(tmp_path / "a.stanzas")
    assert known_formats.splits(spec, path, 90, 40, True) == [(0, None)]
    assert [(path, 90, 40, True)] == sys.modules[module].CUT
    assert known_formats.own_format(spec).name == known_formats.format_named(spec).name == spec
    with pytest.raises(PluginError, match="not an input format"):
        known_formats.own_format("json:JSONDecoder")


@pytest.mark.guarantee("own-format")
def test_a_piece_may_be_empty_and_an_empty_file_has_one(fortunes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = f"{fortunes}:Badly"
    assert known_formats.own_format(spec).name == spec  # loads the module

    def pieces(num_bytes: int, *ranges: tuple[int, int | None]) -> list[tuple[int, int | None]]:
        monkeypatch.setattr(sys.modules[fortunes], "PIECES", ranges, raising=False)
        return known_formats.splits(spec, "a.fortunes", num_bytes, 10, False)

    assert pieces(9, (0, 0), (0, 4), (4, 4), (4, 9), (9, None)) == [(0, 0), (0, 4), (4, 4), (4, 9), (9, None)]
    assert pieces(0, (0, None)) == [(0, None)] and pieces(0, (0, 0)) == [(0, 0)]
    with pytest.raises(PipelineError, match=f"^a.fortunes: the format {spec} cuts out no split from 0 to 0: "):
        pieces(0)


@pytest.mark.guarantee("own-format")
def test_damage_behind_the_beginning_of_a_compressed_file_is_no_fault_of_its_format(
    own_module: Callable[[str], str], tmp_path: Path
) -> None:
    path, line = tmp_path / "a.stanzas", random.Random(0).randbytes(2_000_000).hex()
    path.write_bytes(gzip.compress(f"POEM\n{line}".encode(), 1)[:-9])
    spec = own_module(STANZAS.replace(" and head.is_whole", "")) + ":Poems"
    reading = ReadOptions(10**6, formats=(spec,))
    inputs = find_inputs([str(path)], reading)
    assert [entry.format for entry in inputs.files] == [spec]
    with pytest.raises(PipelineError, match=f"^{path}: damaged or cut short"):
        list(read_splits(inputs.root, [Split(inputs.files[0], 0, None)], reading))


@pytest.mark.guarantee("own-format")
@pytest.mark.parametrize(("name", "numbers"), [("Poems", [1, 2, 3]), ("Verses", [7, 7, 7])])
def test_records_are_numbered_unless_their_format_does(
    name: str, numbers: list[int], own_module: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "a.stanzas").write_text("POEM\nof two\nlines\n")
    reading = ReadOptions(10**6, formats=(f"{own_module(STANZAS)}:{name}",))
    inputs = find_inputs([str(tmp_path / "a.stanzas")], reading)
    pieces = [piece for unit in cut(inputs.root, inputs.files, 1000) for piece in unit.splits]
    assert [record.number for record in read_splits(inputs.root, pieces, reading)] == numbers


def test_every_format_of_the_package_is_registered() -> None:
    written = set[str]()
    for path in [*(ROOT / "pipelines" / "readers").glob("*.py"), ROOT / "plugins" / "web.py"]:
        module = "clearspan." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name, value in vars(importlib.import_module(module.removesuffix(".__init__"))).items():
            if inspect.isclass(value) and issubclass(value, Format) and not inspect.isabstract(value):
                written.add(f"{value.__module__}:{name}")
    assert written - set(BUILT_IN) == {"clearspan.plugins.web:Pages"}, "add it to BUILT_IN"
    assert not set(BUILT_IN) - written


def test_what_a_built_in_format_says_of_itself_agrees(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("An owl.\n\n")
    for name, known in built_in().items():
        assert known.name == name and name.isidentifier()
        assert not known.seeks or known.is_container, (
            f"{name}: recognized by its first bytes, since it is not compressed"
        )
        assert not known.by_name or known.suffixes
        assert not (known.is_container and known.is_text)
        assert not known.by_lines or known.cut(str(path), 10, 4, False) == [(0, 4), (4, 8), (8, 10)]
    assert described() == (
        "JSON lines or an array, UTF-8 text, csv, tar (plain, .gz, .bz2, .xz or .zst), parquet, Arrow or WARC"
    )
