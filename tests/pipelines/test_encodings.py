"""Text in another encoding than UTF-8: `--encoding` reads it in every format and packing, as UTF-8; `auto` finds it."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from clearspan.common.errors import PipelineError
from clearspan.pipelines.builders.text_inputs import encoding_named
from clearspan.pipelines.readers import first_records, read_splits, streams
from clearspan.pipelines.readers.encodings import detected
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.units import preflight
from clearspan.pipelines.units.plan import cut, describe
from clearspan.shards import Dataset
from tests.pipelines.conftest import Command, logged, rows, summary
from tests.pipelines.packings import arrow, parquet, tar

GERMAN = ["Größe lässt sich streiten.", 'Müller rief: "Schöne Grüße,\naus Köln!"', "Über Äpfel – nur für 5 €."]
JAPANESE = ["吾輩は猫である。", "名前はまだ無い。", "表示できる能力"]
"""The last one has letters whose second byte in Shift JIS is an ASCII backslash."""


def read(name: str, data: bytes, folder: Path, encoding: str, text_per: str = "file") -> list[Record]:
    """Read a file in units of 10 bytes, if it can be cut."""
    (folder / name).write_bytes(data)
    reading = ReadOptions(10**6, encoding=encoding, text_per=text_per)
    entries = list(describe(str(folder), {name: len(data)}, reading))
    first_records(str(folder), entries, reading, 1, any_format=True)  # the look before a long run
    pieces = [piece for unit in cut(str(folder), entries, 10, whole=reading.uncut) for piece in unit.splits]
    return list(read_splits(str(folder), pieces, reading))


def csv_of(texts: list[str]) -> str:
    cells = (text.replace('"', '""') for text in texts)
    return "größe,text\n" + "".join(f'{number},"{cell}"\n' for number, cell in enumerate(cells))


@pytest.mark.parametrize("packing", ["plain", "gzip", "tar"])
def test_a_table_of_a_windows_program_is_read(packing: str, tmp_path: Path) -> None:
    data = csv_of(GERMAN).encode("cp1252")
    name, packed = {
        "plain": ("a.csv", data),
        "gzip": ("a.csv.gz", gzip.compress(data)),
        "tar": ("a.tar", tar({"b.csv": data})),
    }[packing]
    assert [record.value for record in read(name, packed, tmp_path, "cp1252")] == GERMAN


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030", "utf-16", "utf-32-be"])
def test_lines_in_an_encoding_of_several_bytes_are_read(encoding: str, tmp_path: Path) -> None:
    data = "".join(f"{text}\r\n" for text in JAPANESE).encode(encoding)
    assert [record.value for record in read("a.txt", data, tmp_path, encoding, "line")] == JAPANESE


def test_a_character_may_lie_across_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BUFFER_BYTES", 3)
    assert [record.value for record in read("a.txt", "".join(JAPANESE).encode("utf-16"), tmp_path, "utf-16")] == [
        "".join(JAPANESE)
    ]


@pytest.mark.guarantee("encoding-auto")
@pytest.mark.parametrize(
    ("encoding", "data"),
    [("shift_jis", b"A\n\x82\xff\nB\n"), ("cp1252", b"A\n\x81\xc3\xa4\nB\n"), ("ascii", b"A\n\xe4\nB\n")],
)
def test_a_byte_that_the_encoding_does_not_have_is_a_bad_record(encoding: str, data: bytes, tmp_path: Path) -> None:
    found = read("a.txt", data, tmp_path, encoding, "line")
    assert [record.value for record in found] == ["A", None, "B"]
    assert found[1].problem.startswith("invalid UTF-8 at byte 0")


def test_utf_16_without_its_mark_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match="`encoding` utf-16: UTF-16 stream does not start with BOM: name the encoding of"
    ):
        read("a.txt", "hello there".encode("utf-16-le"), tmp_path, "utf-16")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_file_that_is_utf8_is_not_read_as_another_encoding(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"{name}: UTF-8, not cp1252: leave `encoding` out, or use auto"):
        read(name, "\n".join(GERMAN).encode(), tmp_path, "cp1252", "line")


@pytest.mark.parametrize(("name", "usual"), [("windows-1252", "cp1252"), ("Latin1", "iso8859-1"), ("UTF8", None)])
def test_an_encoding_has_one_name_and_utf8_is_none(name: str, usual: str | None) -> None:
    assert encoding_named(name) == usual


@pytest.mark.parametrize("name", ["cp1225", "base64", "", "undefined", "\0"])
def test_what_is_no_encoding_of_text_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no such encoding of text"):
        encoding_named(name)


def test_the_dataset_records_the_encoding_and_does_not_continue_with_another(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(csv_of(GERMAN).encode("cp1252"))
    words = ("--input", tmp_path / "a.csv", "--min-tokens", "1")
    refused = direct(*words)
    assert refused.code == 1 and "name the encoding of text that is not UTF-8, e.g. --encoding cp1252" in refused.err
    shutil.rmtree(tmp_path / "out")
    assert direct(*words, "--encoding", "Windows-1252").code == 0
    dataset = Dataset(tmp_path / "out")
    assert dataset.num_examples == 3 and dataset.manifest.fingerprint["options"]["encoding"] == "cp1252"
    other = direct(*words, "--encoding", "cp1250")
    assert other.code == 1 and 'options.encoding: "cp1252" there, "cp1250" now' in other.err


RUSSIAN = "Сова охотится ночью над тихими полями, пока крестьяне спят в своих домах."
POLISH = "Sowa poluje nocą nad cichymi polami, podczas gdy rolnicy śpią; źrebię, żółw i łoś też."


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize("shift", range(4))
def test_text_is_utf8_although_a_character_lies_across_the_end_of_the_look(shift: int, tmp_path: Path) -> None:
    line = f"{RUSSIAN} {JAPANESE[0]}\n"
    data = ("x" * shift + line * (preflight.FIRST_BYTES // len(line))).encode()
    (tmp_path / "a.txt").write_bytes(data)
    entries = list(describe(str(tmp_path), {"a.txt": len(data)}, ReadOptions()))
    preflight.check_first(str(tmp_path), entries, ReadOptions(), lambda record: None, 0.001)
    with pytest.raises(PipelineError, match="UTF-8, not cp1251"):
        read("a.txt", data, tmp_path, "cp1251")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two hundred texts of a folder, of which five are not UTF-8, and one is damaged UTF-8."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(194):
        (folder / f"{number:03}.txt").write_text(f"{GERMAN[number % 3]} {number}", encoding="utf-8")
    (folder / "cp1252.txt").write_bytes(" ".join(GERMAN).encode("cp1252"))
    (folder / "koi8.txt").write_bytes(RUSSIAN.encode("koi8_r"))
    (folder / "polish.txt").write_bytes(POLISH.encode("cp1250"))
    (folder / "japanese.txt").write_bytes("".join(JAPANESE).encode("shift_jis"))
    (folder / "utf16.txt").write_bytes(RUSSIAN.encode("utf-16"))
    (folder / "damaged.txt").write_bytes(" ".join(GERMAN).encode() + b" \xff")
    return folder


FOUND = {"cp1252": 1, "koi8-r": 1, "cp1250": 1, "cp932": 1, "utf-16": 1}


@pytest.mark.guarantee("encoding-auto")
def test_auto_reads_each_file_in_its_own_encoding_and_names_it(
    direct: Command, mixed: Path, tmp_path: Path, roberta_tokenizer: Path
) -> None:
    words = ("--input", mixed, "--min-tokens", "1", "--encoding", "auto", "--max-bad-fraction", "0.01")
    outcome = summary(direct(*words, "--json"))
    assert outcome["encodings"] == FOUND and (outcome["kept"], outcome["bad"]) == (199, 1)
    assert ["koi8.txt", "koi8-r"] in outcome["recoded"] and len(outcome["recoded"]) == 5
    tokenizer = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    texts = {row["source"]: tokenizer.decode(row["tokens"]) for row in rows(tmp_path / "out")}
    assert texts["cp1252.txt"] == " ".join(GERMAN) and texts["000.txt"] == f"{GERMAN[0]} 0"
    assert texts["koi8.txt"] == texts["utf16.txt"] == RUSSIAN and texts["polish.txt"] == POLISH
    assert texts["japanese.txt"] == "".join(JAPANESE)
    (rejected,) = logged(tmp_path / "out" / "_rejected")
    assert rejected["source"] == "damaged.txt"
    said = direct(*words).out
    assert "1 cp1252, 1 cp932, 1 koi8-r, 1 utf-16: cp1252.txt (cp1252)" in said
    (mixed / "koi8.txt").write_bytes(RUSSIAN.encode("cp866"))
    (mixed / "damaged.txt").unlink()
    again = summary(direct(*words, "--output", tmp_path / "again", "--json"))
    assert again["encodings"] == {"cp866" if name == "koi8-r" else name: 1 for name in FOUND} and again["kept"] == 199


@pytest.mark.guarantee("encoding-auto")
@pytest.mark.parametrize("packing", ["units of one file", "a tar"])
def test_what_auto_finds_does_not_depend_on_units_or_packing(
    direct: Command, mixed: Path, tmp_path: Path, packing: str
) -> None:
    words = ("--min-tokens", "1", "--encoding", "auto", "--max-bad-fraction", "0.01", "--json")
    assert direct("--input", mixed, *words).code == 0
    inputs, options = mixed, ("--unit-bytes", "1")
    if packing == "a tar":
        (tmp_path / "a.tar").write_bytes(tar({path.name: path.read_bytes() for path in sorted(mixed.iterdir())}))
        inputs, options = tmp_path / "a.tar", ()
    outcome = summary(direct("--input", inputs, *words, *options, "--output", tmp_path / "other"))
    assert outcome["encodings"] == FOUND
    one, other = ({(row["id"], tuple(row["tokens"])) for row in rows(tmp_path / name)} for name in ("out", "other"))
    assert one == other


@pytest.mark.parametrize("text", ["It was £5, and he said “no”: it’s a pity.", "A cup® of ½ a pint, £1."])
@pytest.mark.parametrize("times", [1, 20])
def test_signs_of_english_texts_are_no_letters_of_other_languages(text: str, times: int) -> None:
    assert detected([f"{text}\n".encode("cp1252") * times]) == "cp1252"


@pytest.mark.guarantee("encoding-auto")
def test_auto_finds_what_lies_behind_the_beginning_of_a_file(tmp_path: Path) -> None:
    lines = [b"plain ascii text" * 99 + b"\n"] * 1000 + [GERMAN[0].encode("cp1252")]
    data = b"".join(lines)
    for name, packed in (("a.txt", data), ("a.txt.gz", gzip.compress(data, 1)), ("a.csv", b"text\n" + data)):
        found = read(name, packed, tmp_path, "auto", "line")
        assert found[-1].value == GERMAN[0] and found[-1].encoding == "cp1252"
    many = [f'{{"text": "{RUSSIAN} {number}"}}\n'.encode("cp1251") for number in range(40)]
    records = read("a.jsonl", b"".join(many), tmp_path, "auto")
    assert [record.value["text"] for record in records] == [f"{RUSSIAN} {number}" for number in range(40)]


@pytest.mark.guarantee("encoding-auto")
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.tar", "a.tar.gz"])
def test_a_long_text_in_another_encoding_is_read_to_its_end(name: str, tmp_path: Path) -> None:
    text = "\n".join(f"{GERMAN[0]} {number}" for number in range(9000))
    data = text.encode("cp1252")
    assert len(data) > 250_000
    packed = tar({"a.txt": data}) if ".tar" in name else data
    (record,) = read(name, gzip.compress(packed) if name.endswith("gz") else packed, tmp_path, "auto")
    assert (record.value, record.encoding) == (text, "cp1252")


def parts(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.guarantee("encoding-auto")
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_mark_at_the_start_names_the_encoding_wherever_the_parts_end(encoding: str, size: int) -> None:
    long = f"\ufeff{RUSSIAN} " + "owls " * 300_000 if size > 3 else f"\ufeff{RUSSIAN}"
    assert detected(parts(long.encode(encoding), size)) == encoding[:6]
    assert detected(parts(f"owls {long}".encode(), size)) is None  # a mark elsewhere is a character


@pytest.mark.guarantee("encoding-auto")
@pytest.mark.parametrize(("letters", "damages", "expected"), [(3, 3, None), (3, 4, "cp1252"), (0, 1, "cp1252")])
def test_utf8_with_as_many_letters_as_damages_is_damaged_utf8(letters: int, damages: int, expected: str | None) -> None:
    assert detected(["Grün ".encode() * letters + "Äpfel ".encode("cp1252") * damages]) == expected
    assert detected(["Grün ".encode() * letters, "Äpfel ".encode("cp1252") * damages]) == expected


@pytest.mark.guarantee("encoding-auto")
def test_a_character_of_utf8_may_lie_across_parts() -> None:
    assert detected(parts("".join(GERMAN).encode(), 1)) is None


@pytest.mark.guarantee("encoding-auto")
def test_every_line_that_is_not_ascii_tells_the_encoding() -> None:
    lines = ["£5\n".encode("cp1252"), *(f"{RUSSIAN}\n".encode("cp1251") for _ in range(3))]
    assert detected([b"".join(lines)]) == detected(lines) == "cp1251"
    assert detected([b"plain ascii text\n" * 10_000 + b"".join(lines)]) == "cp1251"


@pytest.mark.guarantee("encoding-auto")
def test_each_text_is_judged_by_all_of_its_own_lines_and_one_that_fits_no_encoding_is_none() -> None:
    first = "The café of the owls is open at night, and the rivers run cold in winter, as all know.\n".encode("cp1252")
    for text, encoding in ((GERMAN[0], "cp1252"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (POLISH, "cp1250")):
        assert detected([first + f"{text}\n".encode(encoding)]) == encoding
    assert detected([bytes(range(0x80, 0x100)) * 9]) is None


def test_the_tokenizer_is_learned_from_the_same_texts(direct: Command, mixed: Path, tmp_path: Path) -> None:
    words = ("--encoding", "auto", "--max-bad-fraction", "0.01", "--size", "300", "--output", tmp_path / "words")
    learned = json.loads(direct("vocabulary", "--input", mixed, *words, "--json").out)
    assert learned["encodings"] == FOUND and learned["texts"] == 199


@pytest.fixture
def long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all work for long, so that the first records are looked at."""
    monkeypatch.setattr(preflight, "LONG_S", 0.0)


@pytest.mark.guarantee("wrong-input-fails-first")
def test_files_that_are_not_utf8_are_told_before_the_work(
    direct: Command, mixed: Path, tmp_path: Path, long_work: None
) -> None:
    outcome = direct("--input", mixed, "--min-tokens", "1")
    assert outcome.code == 1 and "utf16.txt: UTF-16 text: convert it to UTF-8, or pass --encoding" in outcome.err
    (mixed / "utf16.txt").unlink()
    outcome = direct("--input", mixed, "--min-tokens", "1")
    assert outcome.code == 1 and not (tmp_path / "out").exists()
    assert "not UTF-8: 5 of 199 files, e.g. cp1252.txt, damaged.txt, japanese.txt" in outcome.err
    assert "or auto to detect it" in outcome.err
    assert direct("--input", mixed, "--min-tokens", "1", "--max-bad-fraction", "0.1").code == 0


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("documents", "--text-field", "body"), 'no field "body" among text, n'),
        (("pairs", "--fields", "x,y"), "no fields x,y among text, n: name them in order with --fields"),
        (("vocabulary", "--text-field", "body"), 'no field "body" among text, n'),
        (("triplets", "--columns", "a,b"), "no fields a,b among text, n: name them in order with --columns"),
    ],
)
def test_a_wrong_field_or_encoding_is_told_before_the_work_whatever_the_first_file_holds(
    direct: Command, tmp_path: Path, long_work: None, words: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20):
        lines = (json.dumps({"text": f"{GERMAN[0]} {line}", "n": line}, ensure_ascii=False) for line in range(30))
        (tmp_path / "in" / f"{number:02}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "in" / "00.jsonl").write_text('{"title": "a", "text": "b", "body": "c", "a": "d", "b": "e"}\n')
    for inputs in (tmp_path / "in", tmp_path / "in" / "07.jsonl"):
        outcome = direct(words[0], "--input", inputs, "--output", tmp_path / "out", *words[1:])
        assert outcome.code == 1 and not (tmp_path / "out").exists()
        assert complaint in outcome.err and outcome.err.count("\n") == 1
        assert outcome.err.startswith("pipelines: of the first records of the inputs, ")


@pytest.mark.guarantee("wrong-input-fails-first")
@pytest.mark.parametrize("form", ["csv", "tsv.gz", "parquet", "arrow", "damaged"])
def test_a_table_without_the_column_or_a_damaged_file_is_told_before_the_work(
    direct: Command, tmp_path: Path, long_work: None, form: str
) -> None:
    table = {"text": [f"{text} {row}" for row in range(30) for text in GERMAN[:1]], "n": [*range(30)]}
    of_rows = "".join(f"{text}\t{row}\n" for text, row in zip(*table.values(), strict=True))
    data = {
        "csv": ("text\tn\n" + of_rows).replace("\t", ";").encode(),
        "tsv.gz": gzip.compress(("text\tn\n" + of_rows).encode()),
        "parquet": parquet(pa.table(table)),
        "arrow": arrow(pa.table(table)),
        "damaged": b"text,n\nowls,1\n" + bytes(999),
    }[form]
    (tmp_path / "in").mkdir()
    for number in range(12):
        (tmp_path / "in" / f"{number:02}.{form.replace('damaged', 'csv')}").write_bytes(data)
    names = ("text", "text,n") if form == "damaged" else ("body", "x,y")
    for command, option, name in zip(("documents", "pairs"), ("--text-field", "--fields"), names, strict=True):
        outcome = direct(command, "--input", tmp_path / "in", option, name)
        complaint = {"damaged": "00.csv: damaged or cut short"}.get(form, f"00.{form}: no column")
        assert outcome.code == 1 and complaint in outcome.err and outcome.err.count("\n") == 1
        assert not (tmp_path / "out").exists()


@pytest.mark.guarantee("wrong-input-fails-first")
def test_a_few_bad_first_records_do_not_end_a_run(direct: Command, tmp_path: Path, long_work: None) -> None:
    lines = ["# a comment", *(json.dumps({"text": f"{GERMAN[0]} {line}"}) for line in range(2000))]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert direct("--input", tmp_path / "a.jsonl", "--min-tokens", "1").code == 0
