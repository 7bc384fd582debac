"""Files that hold no plain text are refused, with what to do, and extensions have no letter case."""

import csv
import dataclasses
import gzip
import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import samples, tars
from clearspan.pipelines.readers.formats import FirstBytes
from clearspan.pipelines.readers.refused import BY_NAME, NOTHING, refusal
from clearspan.pipelines.readers.sniff import check_extensions
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.suffixes import suffixes_of, type_suffix
from clearspan.pipelines.units.plan import find_inputs
from tests.pipelines.conftest import Command, rows, summary
from tests.pipelines.packings import arrow, format_of, jsonl, parquet, read_all, tar

OWLS = "The owl hunts at night over quiet fields, while the farmers sleep."


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.txt", OWLS)
    return data.getvalue()


PAGE = b"<!DOCTYPE html>\n<html><head><title>Owls</title></head><body><p>" + OWLS.encode() + b"</p></body></html>"
CONTENTS = {
    "page.html": PAGE,
    "PAGE.HTM": PAGE,
    "page.html.gz": gzip.compress(PAGE),
    "page": PAGE,
    "feed.xml": b"<?xml version='1.0'?><feed>owls</feed>",
    "feed.cgi": b"<?xml version='1.0'?><feed>owls</feed>",
    "letter.rtf": rb"{\rtf1\ansi Owls}",
    "paper.pdf": b"%PDF-1.7\n1 0 obj\n",
    "paper.txt": b"%PDF-1.7\n1 0 obj\n",
    "report.docx": zipped(),
    "book.epub": zipped(),
    "corpus.zip": zipped(),
    "corpus": zipped(),
    "corpus.7z": b"7z\xbc\xaf\x27\x1c\0\4",
    "corpus.rar": b"Rar!\x1a\x07\x01\0",
    "table.xlsx": zipped(),
    "000017.cls": b"3",
}
WORDS = {"zip": "unpack it", "7z": "unpack it", "rar": "unpack it", "html": "--format clearspan.plugins.web:Pages"}


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_holds_no_plain_text_is_refused_with_what_to_do(direct: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(CONTENTS[name])
    outcome = direct("--input", tmp_path / name)
    assert outcome.code == 1 and outcome.err.count("\n") == 1
    assert str(tmp_path / name) in outcome.err
    mends = {mend.format(pages=WORDS["html"]) for _, mend in BY_NAME.values()}
    assert any(mend in outcome.err for mend in mends), outcome.err
    assert WORDS.get(name.rpartition(".")[2], "") in outcome.err


@pytest.mark.guarantee("no-markup")
def test_in_a_folder_such_files_are_skipped_if_the_user_says_so_and_counted(direct: Command, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(OWLS)
    (folder / "b.html").write_bytes(PAGE)
    (folder / "c.bin").write_bytes(b"\x89PNG\0\0")
    words = ("--input", folder, "--min-tokens", "1")
    refused = direct(*words)
    assert refused.code == 1 and "2 files of unknown type, e.g. b.html, c.bin" in refused.err
    assert "as --skip-unknown does where there are others; b.html is an HTML page: read its main text" in refused.err
    outcome = direct(*words, "--skip-unknown")
    assert outcome.code == 0 and "2 inputs of unknown type skipped" in outcome.out
    assert len(rows(tmp_path / "out")) == 1


@pytest.mark.guarantee("no-markup")
def test_in_a_tar_a_class_is_no_text_and_a_page_is_bad_or_skipped(direct: Command, tmp_path: Path) -> None:
    members = {"0.txt": OWLS.encode(), "0.cls": b"17", "1.txt": OWLS[:40].encode(), "1.CLS": b"4", "2.html": PAGE}
    (tmp_path / "a.tar").write_bytes(tar(members))
    words = ("--input", tmp_path / "a.tar", "--min-tokens", "1", "--json")
    told = direct(*words)
    assert told.code == 1 and "2.html: an HTML page: read its main text" in told.err
    shutil.rmtree(tmp_path / "out")
    counts = summary(direct(*words, "--skip-unknown"))
    assert (counts["kept"], counts["bad"], counts["filtered"]["class_label"]) == (2, 0, 2)
    assert counts["filtered"]["unknown_type"] == 1


@pytest.mark.guarantee("no-markup")
def test_a_zip_of_images_is_to_be_unpacked(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "train.ZIP").write_bytes(zipped())
    outcome = direct("images", "--input", tmp_path / "train.ZIP")
    assert outcome.code == 1 and "train.ZIP is an archive of files: unpack it" in outcome.err


@pytest.mark.guarantee("no-markup")
def test_pages_are_read_where_the_user_names_their_format(direct: Command, tmp_path: Path) -> None:
    pytest.importorskip("resiliparse", reason="extra `web`")
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("a.HTML", "b.htm.gz", "c")):
        page = PAGE.replace(b"farmers", b"farmers %d" % number)
        (tmp_path / "in" / name).write_bytes(gzip.compress(page) if name.endswith("gz") else page)
    words = ("--input", tmp_path / "in", "--format", "clearspan.plugins.web:Pages")
    assert summary(direct(*words, "--min-tokens", "1", "--json"))["kept"] == 3
    pairs = direct("pairs", *words, "--output", tmp_path / "pairs", "--json")
    assert summary(pairs)["kept"] == 3


def table(delimiter: str = ",") -> bytes:
    data = io.StringIO()
    csv.writer(data, delimiter=delimiter).writerows([("n", "text"), (1, OWLS), (2, f'"{OWLS}" she said')])
    return data.getvalue().encode()


CASES = {
    "DATA.CSV": table(),
    "DATA.TSV": table("\t"),
    "DATA.JSONL": jsonl([OWLS]),
    "Data.Jsonl.GZ": gzip.compress(jsonl([OWLS])),
    "DATA.JSON": json.dumps([{"text": OWLS}]).encode(),
    "DATA.TXT": OWLS.encode(),
    "DATA.TAR": tar({"A.CSV": table()}),
    "DATA.PARQUET": parquet({"text": [OWLS]}),
    "DATA.CSV.XZ": b"",
}


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("name", CASES)
def test_an_extension_has_no_letter_case(direct: Command, tmp_path: Path, name: str) -> None:
    import lzma

    data = CASES[name] or lzma.compress(table())
    for place, written in (("large", name), ("small", name.lower())):
        (tmp_path / place).mkdir()
        (tmp_path / place / written).write_bytes(data)
    assert format_of(tmp_path / "large" / name) == format_of(tmp_path / "small" / name.lower())
    outcomes = [
        direct("--input", tmp_path / place, "--min-tokens", "1", "--output", tmp_path / f"out-{place}")
        for place in ("large", "small")
    ]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes[0].err
    found = [[row["tokens"] for row in rows(tmp_path / f"out-{place}")] for place in ("large", "small")]
    assert found[0] == found[1]


@pytest.mark.guarantee("no-markup")
def test_an_empty_file_with_the_name_of_a_container_is_refused_in_any_case(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "A.PARQUET").write_bytes(b"")
    outcome = direct("--input", tmp_path / "A.PARQUET")
    assert outcome.code == 1 and "damaged or misnamed (a .parquet that is empty)" in outcome.err


@pytest.mark.guarantee("no-markup")
def test_tables_that_datasets_saved_are_found_in_any_case(direct: Command, tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "DATA.ARROW").write_bytes(arrow(pa.table({"text": [OWLS]})))
    (tmp_path / "in" / "dataset_info.json").write_text('{"citation": ""}')
    assert direct("--input", tmp_path / "in", "--min-tokens", "1").code == 0


def test_the_files_of_a_sample_are_grouped_as_webdataset_does_and_none_is_passed_over() -> None:
    from webdataset.tariterators import group_by_keys

    names = ["t/a.jpg", "t/a.cls", "t/b.jpg", "t/b.seg.jpg", "t/c/a.jpg", "t/Makefile", "t/d.jpg"]
    members = [(name, place, io.BytesIO(b"1")) for place, name in enumerate(names)]
    found = list(samples.listing(members, ReadOptions(as_bytes=True, extensions=(".jpg",))))
    listed = [[each.name for each in sample.listed] for sample in found if sample.listed]
    own = group_by_keys({"fname": name, "data": name, "__url__": ""} for name in names)
    assert listed == [[name for name in sample.values() if name.endswith(".jpg")] for sample in own]
    assert [sample.unknown for sample in found if not sample.listed] == [["t/Makefile"]]
    twice = [("t/a.jpg", 0, io.BytesIO(b"1")), ("t/a.jpg", 1, io.BytesIO(b"2"))]
    with pytest.raises(PipelineError, match=r"t/a\.jpg: occurs twice in a sample: rename one of the two"):
        list(samples.listing(twice, ReadOptions(as_bytes=True, extensions=(".jpg",))))


TYPES = {
    "an HTML page": ".html .htm .xhtml .shtml",
    "XML": ".xml .svg .rss .atom .xsl .xslt",
    "a spreadsheet": ".xls .xlsx .ods",
    "an archive of files": ".zip .7z .rar",
    "a class label": ".cls",
    "PDF": ".pdf",
    "rich text": ".rtf",
    "an e-book": ".epub",
    "an office document": ".doc .docx .odt .ppt .pptx .odp",
}
TEXTS = [OWLS.encode(), b"", b"<", b"html", b"7z", b"PK", b"% PDF", b"3", b"<!-- a note -->\n# Owls", b"see <html>"]


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("what", TYPES)
def test_an_extension_of_no_plain_text_is_refused_whatever_the_file_begins_with(what: str) -> None:
    for suffix in TYPES[what].split():
        for name in (f"in/a{suffix}", f"A{suffix.upper()}", f"a.b{suffix.title()}", f"a{suffix}.GZ", f"a.txt{suffix}"):
            for data in (*TEXTS, PAGE, b"%PDF-1.7"):
                assert refusal(name, FirstBytes(data, is_whole=True)).startswith(f"{what}: "), (name, data)
            assert refusal(name).startswith(f"{what}: ")
            advice = "`format` clearspan.plugins.web:Pages (extra web)"
            assert (f"read its main text with {advice}" in refusal(name)) == (what == "an HTML page")
    assert set(" ".join(TYPES.values()).split()) <= set(BY_NAME)


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"%PDF-1.7\n", "PDF"),
        (rb"{\rtf1\ansi Owls}", "rich text"),
        (b"PK\x03\x04", "an archive of files"),
        (b"PK\x05\x06", "an archive of files"),
        (b"Rar!\x1a\x07\x01\0", "an archive of files"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "an archive of files"),
        (b"\xd0\xcf\x11\xe0\xa1", "an office document"),
        (b"MSCF\0\0\0\0", "an archive of files"),
        (b"\x04\x22\x4d\x18\0", "compressed with lz4"),
        (b"\x89LZO\0\r\n\x1a\n", "compressed with lzop"),
    ],
)
def test_a_file_that_begins_as_no_text_does_is_refused_whatever_its_name(data: bytes, what: str) -> None:
    for name in ("paper", "paper.txt", "paper.MD", "paper.csv", "paper.jsonl", "paper.cgi", "paper.gz"):
        assert refusal(name, FirstBytes(data, is_whole=True)).startswith(f"{what}: ")
        assert not refusal(name, FirstBytes(b" " + data, is_whole=True))


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("name", ["Europarl.br", "EUROPARL.BR", "lines.jsonl.br", "a.lz4", "a.txt.Z", "a.deb", "a.lzh"])
def test_an_extension_of_a_compression_is_that_of_a_text_unless_the_content_is_packed_or_no_text(name: str) -> None:
    packed, packing = b"\x1b\x03\0\0\xa4\xe0", type_suffix(name)
    kinds = {".br": "compressed with brotli", ".lz4": "compressed with lz4", ".z": "compressed with compress"}
    for head in (FirstBytes(packed, is_whole=True), NOTHING):
        assert refusal(name, head).startswith(f"{kinds.get(packing, 'an archive of files')}: unpack it")
    for text in TEXTS:
        assert (refusal(name, FirstBytes(text, is_whole=True)) == "") == bool(text), text
    for data, what in ((PAGE, "an HTML page"), (b"<?xml version='1.0'?>", "XML"), (rb"{\rtf1\ansi Owls}", "rich text")):
        assert refusal(name, FirstBytes(data, is_whole=True)).startswith(f"{what}: ")


MARKUP = {
    "an HTML page": [
        b"<!doctype html>",
        b"<HTML>",
        b"<html lang=en>",
        b" \r\n\t<!DOCTYPE\n  HTML>",
        b"\xef\xbb\xbf<Html>",
        b" \r\n" * 3000 + b"<html>",
    ],
    "XML": [b"<?xml version='1.0'?>", b"<?XML\tversion='1.0'?>", b"\n<?xml ?>", b"\xef\xbb\xbf\n<?xml ?>"],
}


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("what", MARKUP)
def test_markup_is_refused_unless_the_name_promises_a_text_that_may_begin_so(what: str) -> None:
    for data in MARKUP[what]:
        head = FirstBytes(data, is_whole=True)
        for name in ("page", "page.cgi", "page.json", "page.GZ", "page.txt.php", "txt", "._page.txt"):
            assert refusal(name, head).startswith(f"{what}: "), (name, data)
        for name in ("page.txt", "page.TXT.gz", "notes.Md", "a.text", "table.csv", "table.tsv", "rows.jsonl"):
            assert not refusal(name, head), (name, data)
    for data in (*TEXTS, b"<htmlx>", b"<!doctype>", b"<?xmlns?>", b"\xef\xbb\xbfowls"):
        assert not refusal("page", FirstBytes(data, is_whole=True)), data


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "auto"])
@pytest.mark.parametrize(
    ("page", "told"), [("<!doctype html>\n<p>Größe</p>", "an HTML page: "), ("<?xml version='1.0'?><p>ä</p>", "XML: ")]
)
def test_markup_in_another_encoding_is_refused_too(tmp_path: Path, encoding: str, page: str, told: str) -> None:
    data = page.encode("utf-16" if encoding == "auto" else encoding)
    for name, packed in (("page", data), ("page.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(packed)
        with pytest.raises(PipelineError, match=f"^{tmp_path / name}: {told}"):
            find_inputs([str(tmp_path / name)], ReadOptions(encoding=encoding))
    reading = ReadOptions(encoding=encoding)
    members = {"page": data, "page.txt": data, "b.txt": "Größe".encode("utf-16" if encoding == "auto" else encoding)}
    found = read_all({"a.tar": tar(members)}, tmp_path, 10**9, reading=reading)
    assert [record.value for record in found] == [None, page, "Größe"] and found[0].problem.startswith(told)
    skipped = read_all(
        {"a.tar": tar(members)}, tmp_path, 10**9, reading=dataclasses.replace(reading, skip_unknown=True)
    )
    assert [record.skipped for record in skipped] == ["unknown_type", "", ""]


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize(
    ("path", "suffixes", "of_type"),
    [
        ("in.HTML/a", (), ""),
        ("IN/A.CSV.GZ", (".csv", ".gz"), ".csv"),
        ("a.html.v2.XZ", (".v2", ".xz"), ".v2"),
        ("a.Zst", (".zst",), ""),
        ("a.txt.Html", (".txt", ".html"), ".html"),
        (".html", (), ""),
        (".hidden.htm", (".htm",), ".htm"),
        ("._a.pdf", (), ""),
        ("in/._a.pdf", (), ""),
        ("a.pdf.bz2.gz", (".bz2", ".gz"), ""),
    ],
)
def test_the_last_two_extensions_count_and_compressions_tell_no_type(
    path: str, suffixes: tuple[str, ...], of_type: str
) -> None:
    assert (suffixes_of(path), type_suffix(path)) == (suffixes, of_type)


def member(name: str, data: bytes, **options: bool) -> Record:
    """Return the one record of a member of a tar."""
    (record,) = tars.unpack(io.BytesIO(data), f"a.tar/{name}", ReadOptions(**options))
    return record


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("name", [name for name in CONTENTS if not name.endswith((".cls", ".gz"))])
def test_a_member_of_a_tar_that_holds_no_plain_text_is_bad_or_skipped(name: str) -> None:
    bad = member(name, CONTENTS[name])
    assert bad.value is None and not bad.skipped and bad.raw == CONTENTS[name][:1000]
    assert any(bad.problem.startswith(f"{what}: ") for what in TYPES)
    assert bad.problem.endswith(", or leave it out with `skip_unknown`")
    assert member(name, gzip.compress(CONTENTS[name])).problem == bad.problem
    assert member("page.html", PAGE + b"x" * 2000).raw == (PAGE + b"x" * 2000)[:1000]
    skipped = member(name, CONTENTS[name], skip_unknown=True)
    assert (skipped.value, skipped.problem, skipped.skipped) == (None, "", "unknown_type")


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("skip_unknown", [False, True])
@pytest.mark.parametrize("name", ["0.cls", "0.CLS", "b/0.seg.Cls"])
def test_a_class_label_in_a_tar_is_skipped_and_a_text_is_read(name: str, skip_unknown: bool) -> None:
    label = member(name, b"17", skip_unknown=skip_unknown)
    assert (label.value, label.problem, label.skipped) == (None, "", "class_label")
    text = member("0.txt", PAGE, skip_unknown=skip_unknown)
    assert (text.value, text.problem, text.skipped) == (PAGE.decode(), "", "")


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize("kind", ["a.parquet", "a.arrow", "a.warc", "renamed.txt"])
def test_a_container_in_a_tar_is_bad_whatever_its_name(kind: str) -> None:
    import pyarrow as pa

    data = {
        "a.arrow": arrow(pa.table({"text": [OWLS]})),
        "a.warc": b"WARC/1.0\r\nWARC-Type: response\r\n\r\n",
    }.get(kind, parquet({"text": [OWLS]}))
    for options in ({}, {"skip_unknown": True}):
        record = member(kind, data, **options)
        assert record.problem == "parquet, Arrow or WARC in a tar: unpack the tar" and record.value is None


@pytest.mark.guarantee("no-markup")
@pytest.mark.parametrize(
    ("name", "compression", "wrong"),
    [
        ("a.gz", None, ".gz"),
        ("a.txt.XZ", None, ".xz"),
        ("a.gz.txt", None, ""),
        ("a.parquet", None, ".parquet"),
        ("a.Arrow", None, ".arrow"),
        ("a.parquet.gz", "gzip", ""),
        ("a.txt.gz", "gzip", ""),
        ("a.txt", "gzip", ""),
        ("a.tar", None, ".tar"),
        ("a.tar", "gzip", ".tar"),
        ("a.tar.gz", "gzip", ".tar"),
        ("a.tgz", "gzip", ".tgz"),
        ("a.v2.tar", "gzip", ".tar"),
        ("a.tar.jsonl", None, ""),
        ("a.tar.txt", None, ".tar"),
        ("a.jsonl.gz", None, ".gz"),
        ("tar", None, ""),
        ("a.txt", None, ""),
    ],
)
def test_an_extension_that_the_content_contradicts_is_named(name: str, compression: str | None, wrong: str) -> None:
    for head, fault in ((b"Owls hunt at night.", "does not begin as one"), (b"", "is empty")):
        if not wrong:
            check_extensions(name, compression, head)
            continue
        with pytest.raises(PipelineError, match=rf"^{name}: damaged or misnamed \(a \{wrong} that {fault}\)"):
            check_extensions(name, compression, head)
