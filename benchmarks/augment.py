"""CLEAR's augmentations: sentences a second on one core, beside nlpaug's nearest augmenters, in one run.

    python -m benchmarks.augment --sentences wiki1m.txt --tokenizer roberta-base --synonyms counterfitted_neighbors.json

One process, one thread, processor time; of --rounds alternating rounds the median. Ours go from token ids to token ids
in blocks, as the pipeline does (tokenizing is done once for any number of views; its speed is a line of its own).
nlpaug goes from text to text and tokenizes by its own rules; its augmenters are told to touch as large a share of words
without its usual bound of ten. Its synonym augmenter needs a tagger's data, so the nearest that runs on the same table
is ReservedAug. Needs the extra `benchmarks`.
"""

import argparse
import contextlib
import io
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import command, finish, machine
from clearspan.pipelines.augment.steps import DEL, Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import SynonymTable, read_synonyms
from clearspan.pipelines.text.tokenization import Tokenization
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged

STEPS = (
    "del-word",
    "del-span",
    "reorder",
    "subs",
    "subs+del-word",
    "subs+del-span",
    "del-word+reorder",
    "del-span+reorder",
    "subs+del-word+reorder",
)
NEAREST = {"del-word": "delete", "del-span": "crop", "reorder": "swap", "subs": "reserved words"}
"""nlpaug's augmenter nearest to each step; compositions are its `Sequential` of these."""


def peers(synonyms: dict[str, list[str]]) -> dict[str, Callable[[str], Any]]:
    """nlpaug's augmenters by the steps that they are nearest to."""
    import nlpaug.augmenter.word as naw
    import nlpaug.flow as naf

    groups = [[word, *others] for word, others in synonyms.items()]
    own: dict[str, Any] = {
        "del-word": lambda: naw.RandomWordAug(action="delete", aug_p=0.7, aug_max=None),
        "del-span": lambda: naw.RandomWordAug(action="crop", aug_p=0.25, aug_max=None),
        "reorder": lambda: naw.RandomWordAug(action="swap", aug_p=0.25, aug_max=None),
        "subs": lambda: naw.ReservedAug(reserved_tokens=groups, aug_p=0.3, aug_max=None),
    }
    found = {}
    for steps in STEPS:
        parts = [own[step]() for step in steps.split("+")]
        found[steps] = (naf.Sequential(parts) if len(parts) > 1 else parts[0]).augment
    return found


def peer_name(steps: str) -> str:
    return ", ".join(NEAREST[step] for step in steps.split("+"))


def seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from tokenizers import Tokenizer

    path = arguments.tokenizer
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    tokenizer.add_special_tokens([DEL])
    # Of 8 words or more: on some shorter ones nlpaug's crop fails.
    lines = arguments.sentences.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if len(line.split()) >= 8]
    tokenization = Tokenization(tokenizer.to_str().encode(), tokenizer.get_vocab_size())
    ids = tokenization.tokenize(lines, lines)
    block = Ragged.concatenate([ids] * arguments.times)
    keys = keyed.mix(42, np.arange(len(block)), 0)
    synonyms = read_synonyms(arguments.synonyms)
    start = time.process_time()
    table = SynonymTable.build(synonyms, tokenizer)
    built = time.process_time() - start
    augmenters = {steps: Augmenter(Augmentation.parse(steps), tokenizer, table) for steps in STEPS}
    others = peers(synonyms)
    few = lines[:: max(1, len(lines) // arguments.peer_sentences)]
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        times.setdefault("tokenize", []).append(seconds(lambda: tokenization.tokenize(lines, lines)) / len(lines))
        for steps, augmenter in augmenters.items():
            used = seconds(lambda augmenter=augmenter: augmenter(block, keys))
            times.setdefault(steps, []).append(used / len(block))
        for steps, augment in others.items():
            with contextlib.redirect_stdout(io.StringIO()):
                used = seconds(lambda augment=augment: [augment(line) for line in few])
            times.setdefault(f"nlpaug {peer_name(steps)}", []).append(used / len(few))
    rate = {name: round(1 / statistics.median(found)) for name, found in times.items()}
    covered, words = augmenters["subs"].coverage(block)
    return {
        "machine": machine(),
        "versions": {"numpy": np.__version__, "nlpaug": metadata.version("nlpaug")},
        "sentences": len(lines),
        "tokens_per_sentence": round(len(block.values) / len(block), 1),
        "rounds": arguments.rounds,
        "table_seconds": round(built, 2),
        "coverage": round(covered / words, 4),
        "sentences_per_s": rate,
        "times_nlpaug": {steps: round(rate[steps] / rate[f"nlpaug {peer_name(steps)}"]) for steps in STEPS},
    }


def table(result: dict[str, Any]) -> str:
    """What is printed, and quoted in the README."""
    rate = result["sentences_per_s"]
    lines = [
        f"{result['sentences']:,} sentences of {result['tokens_per_sentence']} tokens, one core of "
        f"{result['machine']['cpu']}, median of {result['rounds']} rounds",
        f"{'':<24} {'sentences/s':>12}  {'nearest in nlpaug':<28} {'sentences/s':>12} {'times':>6}",
    ]
    for steps in STEPS:
        peer = peer_name(steps)
        own, other = rate[steps], rate[f"nlpaug {peer}"]
        lines.append(f"{steps:<24} {own:>12,}  {peer:<28} {other:>12,} {result['times_nlpaug'][steps]:>6,}")
    lines.append(f"tokenizing: {rate['tokenize']:,} sentences/s; the synonym table: {result['table_seconds']} s, once")
    lines.append(f"{100 * result['coverage']:.1f} % of words have a synonym")
    return "\n".join(lines)


def main() -> None:
    parser = command(__doc__, "augment")
    parser.add_argument("--sentences", type=Path, required=True, metavar="FILE", help="one a line")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="PATH", help="tokenizer.json or its folder")
    parser.add_argument("--synonyms", type=Path, required=True, metavar="FILE", help="a table of synonyms")
    parser.add_argument("--times", type=int, default=5, metavar="N", help="repeat the sentences (default 5)")
    parser.add_argument("--peer-sentences", type=int, default=2000, metavar="N", help="for nlpaug (default 2000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="measure so often (default 3)")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
