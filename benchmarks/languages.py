"""Language identification: accuracy, texts/s and memory of py3langid, which the pipelines use, and of lingua.

    python -m benchmarks.languages --data DATA

Sentences are those of STS-B in German and Chinese and of the head of wiki1m in English; texts are eight such sentences
each, in English OpenWebText. A text counts as right if its language is the most probable of all that the detector
knows; Wu and Cantonese count as Chinese. Both detectors get the pipelines' excerpts. Each runs in a process of its own,
with one thread. Needs the extras `benchmarks` and `language`.
"""

import argparse
import csv
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.report import columns, command, finish, machine, option, timed
from clearspan.pipelines.text import language

SENTENCES = 8
"""Sentences of a text in German and Chinese."""


def corpora(data: Path, number: int) -> dict[str, list[str]]:
    """Return up to `number` sentences and texts of each language, by "LANGUAGE sentences" or "LANGUAGE texts"."""
    found = {}
    for code in ("de", "zh"):
        with (data / "stsb_multi_mt" / f"stsb-{code}-test.csv").open(encoding="utf-8", newline="") as lines:
            sentences = [row[0] for row in csv.reader(lines)]
        found[f"{code} sentences"] = sentences[:number]
        starts = range(0, len(sentences) - SENTENCES + 1, SENTENCES)
        found[f"{code} texts"] = [" ".join(sentences[start : start + SENTENCES]) for start in starts][:number]
    wiki = (data / "sentences" / "wiki1m_head_11914.txt").read_text(encoding="utf-8").splitlines()
    found["en sentences"] = [line for line in wiki if line.strip()][:number]
    with (data / "text" / "openwebtext_sample.jsonl").open(encoding="utf-8") as lines:
        found["en texts"] = [json.loads(line)["text"] for line in itertools.islice(lines, number)]
    return found


def with_py3langid() -> Callable[[str], str]:
    identifier = language.identifier()
    return lambda text: str(identifier.classify(text)[0])


def with_lingua(low_accuracy: bool = False) -> Callable[[str], str]:
    from lingua import LanguageDetectorBuilder

    builder = LanguageDetectorBuilder.from_all_languages()
    detector = (builder.with_low_accuracy_mode() if low_accuracy else builder).build()

    def code(text: str) -> str:
        found = detector.detect_language_of(text)
        return found.iso_code_639_1.name.lower() if found else ""

    return code


DETECTORS: dict[str, Callable[[], Callable[[str], str]]] = {
    "py3langid": with_py3langid,
    "lingua": with_lingua,
    "lingua, low accuracy": lambda: with_lingua(True),
}


def alone(name: str, data: Path, number: int) -> dict[str, Any]:
    """Measure one detector in this process."""
    import psutil

    texts = {kind: list(map(language.excerpt, some)) for kind, some in corpora(data, number).items()}
    loading, detect = timed(DETECTORS[name])
    detect("A text.")
    rows = {}
    for kind, some in texts.items():
        code = kind[:2]
        right = {code, *language.MEMBERS.get(code, ())}
        detect(some[0])  # lingua loads a language's models when it first needs them
        seconds, found = timed(lambda some=some: list(map(detect, some)))
        rows[kind] = {
            "number": len(some),
            "accuracy": round(sum(one in right for one in found) / len(some), 4),
            "texts_per_s": round(len(some) / seconds.processor),
        }
    megabytes = psutil.Process().memory_info().rss / 1e6
    return {"load_seconds": round(loading.processor, 2), "process_mb": round(megabytes), "texts": rows}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.languages", "--data", str(arguments.data)]
    results = {}
    for name in DETECTORS:
        process = [*words, "--number", str(arguments.number), "--alone", name]
        results[name] = json.loads(subprocess.run(process, check=True, capture_output=True, text=True).stdout)
    return {
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in ("py3langid", "lingua-language-detector")},
        "detectors": results,
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    detectors = result["detectors"]
    rows = [
        [
            kind,
            f"{row['number']:,}",
            *(
                f"{100 * of['texts'][kind]['accuracy']:.1f} %, {of['texts'][kind]['texts_per_s']:,}"
                for of in detectors.values()
            ),
        ]
        for kind, row in next(iter(detectors.values()))["texts"].items()
    ]
    rows.append(["process, MB", "", *(f"{of['process_mb']:,}" for of in detectors.values())])
    rows.append(["load, s", "", *(f"{of['load_seconds']}" for of in detectors.values())])
    return f"accuracy, texts/s on one core\n{columns(['', 'number', *detectors], rows)}"


def main() -> None:
    parser = command(__doc__, "languages")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the tests' data")
    option(parser, "number", 1000, "most texts of each kind")
    parser.add_argument("--alone", choices=DETECTORS, help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    if arguments.alone:
        print(json.dumps(alone(arguments.alone, arguments.data, arguments.number)))
    else:
        finish(parser, measure, table)


if __name__ == "__main__":
    main()
