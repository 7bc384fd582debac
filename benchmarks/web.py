"""Web archives: MB/s on one core of this reader, of a bare loop of the libraries that it uses, and of other libraries.

    python -m benchmarks.web --text CORPUS.jsonl

The archive holds the texts of CORPUS as HTML pages with a menu, links and a footer, one gzip member a record, as Common
Crawl's files do. Contenders: this reader (fastwarc and resiliparse, with framing and digests of its own), the same two
libraries in a loop, warcio with resiliparse, and fastwarc with trafilatura. The figure is MB of HTML per second of
processor time, the median over alternating rounds, and the mean share of a text's words that are extracted. Needs the
extras `benchmarks` and `web`.
"""

import argparse
import gzip
import html
import io
import statistics
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.report import alternating, columns, command, finish, machine, option, read_texts, timed
from clearspan.pipelines.readers import read_pieces
from clearspan.pipelines.records import Reading
from clearspan.pipelines.units.plan import cut, describe

LINKS = "".join(f'<li><a href="/section/{number}">Section {number}</a></li>' for number in range(40))
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"


def page(text: str) -> str:
    paragraphs = "".join(f"<p>{html.escape(line)}</p>\n" for line in text.split("\n") if line.strip())
    return (
        f"<!DOCTYPE html><html><head><title>A page</title><style>p {{margin: 0}}</style></head><body><nav><ul>{LINKS}"
        f"</ul></nav><main><article>{paragraphs}</article></main><footer><ul>{LINKS}</ul></footer></body></html>"
    )


def archive(texts: list[str]) -> bytes:
    """Return the crawl of these texts, a gzip member a record."""
    from fastwarc.warc import WarcRecord, WarcRecordType

    members = []
    for number, text in enumerate(texts):
        record, data = WarcRecord(), io.BytesIO()
        record.init_headers(WarcRecordType.response)
        record.headers["WARC-Target-URI"] = f"https://example.org/{number}"
        record.headers["Content-Type"] = "application/http; msgtype=response"
        record.is_http = True
        record.set_bytes_content((HEAD + page(text)).encode())
        record.write(data, checksum_data=True)
        members.append(gzip.compress(data.getvalue(), 6))
    return b"".join(members)


def reader(path: Path) -> Iterator[str]:
    inputs = list(describe(str(path.parent), {path.name: path.stat().st_size}, Reading()))
    for unit in cut(inputs, 1 << 40):
        yield from (record.value["text"] for record in read_pieces(str(path.parent), unit.pieces, Reading()))


def with_fastwarc(path: Path, extract: Callable[[str], str]) -> Iterator[str]:
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    with path.open("rb") as stream:
        for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
            yield extract(record.reader.read().decode("utf-8"))


def with_warcio(path: Path, extract: Callable[[str], str]) -> Iterator[str]:
    from warcio.archiveiterator import ArchiveIterator

    with path.open("rb") as stream:
        for record in ArchiveIterator(stream):
            if record.rec_type == "response":
                yield extract(record.content_stream().read().decode("utf-8"))


def with_resiliparse(text: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return extract_plain_text(text, main_content=True, alt_texts=False, comments=False, post_meta=False)


def with_trafilatura(text: str) -> str:
    import trafilatura

    return trafilatura.extract(text, include_comments=False) or ""


CONTENDERS: dict[str, Callable[[Path], Iterator[str]]] = {
    "this reader": reader,
    "fastwarc, resiliparse": lambda path: with_fastwarc(path, with_resiliparse),
    "warcio, resiliparse": lambda path: with_warcio(path, with_resiliparse),
    "fastwarc, trafilatura": lambda path: with_fastwarc(path, with_trafilatura),
}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    texts, num_bytes = read_texts(arguments.text, arguments.megabytes * 1e6, page)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "crawl.warc.gz")
        path.write_bytes(archive(texts))

        def run(contender: Callable[[Path], Iterator[str]]) -> tuple[float, list[str]]:
            seconds, found = timed(lambda: list(contender(path)))
            return seconds.processor, found

        work = {name: (lambda contender=contender: run(contender)) for name, contender in CONTENDERS.items()}
        rounds = alternating(work, arguments.rounds)
    rows = {}
    for name, results in rounds.items():
        found = results[0][1]
        shares = [len(mine.split()) / max(1, len(text.split())) for mine, text in zip(found, texts, strict=True)]
        rows[name] = {
            "mb_per_s": round(num_bytes / 1e6 / statistics.median(seconds for seconds, _ in results), 2),
            "words": round(statistics.mean(shares), 4),
        }
    packages = ("fastwarc", "resiliparse", "trafilatura", "warcio")
    return {
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in packages},
        "pages": len(texts),
        "megabytes": round(num_bytes / 1e6, 2),
        "rounds": arguments.rounds,
        "contenders": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    rows = [[name, f"{row['mb_per_s']:,}", f"{100 * row['words']:.1f} %"] for name, row in result["contenders"].items()]
    heading = f"{result['pages']:,} pages, {result['megabytes']} MB of HTML, one core"
    return f"{heading}\n{columns(['', 'MB/s', 'words of the text'], rows)}"


def main() -> None:
    parser = command(__doc__, "web")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="JSON lines with the field text")
    option(parser, "megabytes", 16, "HTML, at most, in MB")
    option(parser, "rounds", 3, "rounds")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
