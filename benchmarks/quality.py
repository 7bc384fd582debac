"""Gopher's and C4's heuristics: MB/s on one core beside datatrove's filters, and on how many texts both agree.

    python -m benchmarks.quality --text CORPUS.jsonl

Times are processor time, medians over alternating rounds, in one process. datatrove's filters get words split at
whitespace and sentences of the same segmenter as ours: the judgements are then comparable, and its usual tokenizer
(spaCy) is several times slower. Its C4 filter wants 5 sentences and 3 words a line by default, and is given the paper's
3 and 5. Needs the extra `benchmarks`.
"""

import argparse
import itertools
import statistics
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.report import alternating, columns, command, finish, machine, option, read_texts, timed
from clearspan.pipelines.text import quality
from clearspan.pipelines.text.segmentation import segment

Judge = Callable[[str], bool]


def peers() -> dict[str, Judge]:
    """Return datatrove's filters as functions: whether a text is kept."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import C4QualityFilter, GopherQualityFilter, GopherRepetitionFilter
    from datatrove.utils.word_tokenizers import WordTokenizer

    class Whitespace(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

        def sent_tokenize(self, text: str) -> list[str]:
            return segment(text, "en")

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            ends = list(itertools.accumulate(map(len, self.sent_tokenize(text))))
            return list(zip([0, *ends], ends, strict=False))

    words: Any = Whitespace("en")
    pages = C4QualityFilter(min_num_sentences=quality.SENTENCES, min_words_per_line=quality.LINE_WORDS, language=words)
    gopher = GopherQualityFilter(language=words), GopherRepetitionFilter(language=words)

    def keeps(rule: Any, text: str) -> bool:
        return rule.filter(Document(text=text, id="")) is True

    return {
        "gopher": lambda text: all(keeps(rule, text) for rule in gopher),
        "c4": lambda text: keeps(pages, text),
    }


def ours(name: str) -> Judge:
    return lambda text: not quality.FILTERS[name](text, None).reason


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    texts, num_bytes = read_texts(arguments.text, arguments.megabytes * 1e6)
    judges = {f"{name}, ours": ours(name) for name in quality.FILTERS}
    judges |= {f"{name}, datatrove": judge for name, judge in peers().items()}

    def run(judge: Judge) -> tuple[float, list[bool]]:
        seconds, kept = timed(lambda: list(map(judge, texts)))
        return seconds.processor, kept

    rounds = alternating({name: (lambda judge=judge: run(judge)) for name, judge in judges.items()}, arguments.rounds)
    rows = {}
    for name in quality.FILTERS:
        mine, theirs = rounds[f"{name}, ours"], rounds[f"{name}, datatrove"]
        rates = [num_bytes / 1e6 / statistics.median(seconds for seconds, _ in some) for some in (mine, theirs)]
        agreed = sum(one == other for one, other in zip(mine[0][1], theirs[0][1], strict=True))
        rows[name] = {
            "mb_per_s": round(rates[0], 1),
            "datatrove_mb_per_s": round(rates[1], 2),
            "times": round(rates[0] / rates[1], 1),
            "kept": round(sum(mine[0][1]) / len(texts), 4),
            "datatrove_kept": round(sum(theirs[0][1]) / len(texts), 4),
            "agreement": round(agreed / len(texts), 4),
        }
    return {
        "machine": machine(),
        "versions": {"datatrove": metadata.version("datatrove")},
        "texts": len(texts),
        "megabytes": round(num_bytes / 1e6, 2),
        "rounds": arguments.rounds,
        "filters": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    rows = [
        [
            name,
            f"{row['mb_per_s']:,}",
            f"{row['datatrove_mb_per_s']:,}",
            f"{row['times']:g}",
            f"{100 * row['kept']:.1f} %",
            f"{100 * row['datatrove_kept']:.1f} %",
            f"{100 * row['agreement']:.1f} %",
        ]
        for name, row in result["filters"].items()
    ]
    headings = ["", "MB/s", "datatrove", "times", "kept", "datatrove", "agreement"]
    return f"{result['texts']:,} texts, {result['megabytes']} MB, one core\n{columns(headings, rows)}"


def main() -> None:
    parser = command(__doc__, "quality")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="JSON lines with the field text")
    option(parser, "megabytes", 8, "text to read, at most, in MB")
    option(parser, "rounds", 3, "rounds")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
