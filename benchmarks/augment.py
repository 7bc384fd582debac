"""CLEAR's augmentations: sentences/s on one core, beside the nearest augmenters of nlpaug.

    python -m benchmarks.augment --sentences wiki1m.txt --tokenizer roberta-base --synonyms counterfitted_neighbors.json

Figures are medians of processor time over alternating rounds, in one process with one thread. Ours map blocks of token
ids to token ids, as in the pipeline; tokenization, done once for any number of views, is reported separately. nlpaug
maps text to text and tokenizes by its own rules; its augmenters are set to change the same share of words, without
their usual limit of ten. Its synonym augmenter needs the data of a tagger; ReservedAug is the nearest one that uses the
same table. Needs the extra `benchmarks`.
"""

import argparse
import contextlib
import io
import statistics
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import alternating, columns, command, finish, machine, option, timed
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
"""nlpaug's nearest augmenter to each step; compositions are its `Sequential` of these."""


def peers(synonyms: dict[str, list[str]]) -> dict[str, Callable[[str], Any]]:
    """Return nlpaug's augmenters by the steps that they resemble."""
    import nlpaug.augmenter.word as naw
    import nlpaug.flow as naf

    groups = [[word, *others] for word, others in synonyms.items()]
    makers: dict[str, Any] = {
        "del-word": lambda: naw.RandomWordAug(action="delete", aug_p=0.7, aug_max=None),
        "del-span": lambda: naw.RandomWordAug(action="crop", aug_p=0.25, aug_max=None),
        "reorder": lambda: naw.RandomWordAug(action="swap", aug_p=0.25, aug_max=None),
        "subs": lambda: naw.ReservedAug(reserved_tokens=groups, aug_p=0.3, aug_max=None),
    }
    augmenters = {}
    for steps in STEPS:
        parts = [makers[step]() for step in steps.split("+")]
        augmenters[steps] = (naf.Sequential(parts) if len(parts) > 1 else parts[0]).augment
    return augmenters


def peer_name(steps: str) -> str:
    return ", ".join(NEAREST[step] for step in steps.split("+"))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from tokenizers import Tokenizer

    path = arguments.tokenizer
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    tokenizer.add_special_tokens([DEL])
    lines = arguments.sentences.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if len(line.split()) >= 8]  # nlpaug's crop fails on some shorter sentences
    tokenization = Tokenization(tokenizer.to_str().encode(), tokenizer.get_vocab_size())
    ids = tokenization.tokenize(lines, lines)
    block = Ragged.concatenate([ids] * arguments.times)
    keys = keyed.mix(42, np.arange(len(block)), 0)
    synonyms = read_synonyms(arguments.synonyms)
    building, table = timed(lambda: SynonymTable.build(synonyms, tokenizer))
    augmenters = {steps: Augmenter(Augmentation.parse(steps), tokenizer, table) for steps in STEPS}
    few = lines[:: max(1, len(lines) // arguments.peer_sentences)]

    def per_sentence(work: Callable[[], Any], count: int) -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            return timed(work)[0].processor / count

    contenders = {"tokenize": lambda: per_sentence(lambda: tokenization.tokenize(lines, lines), len(lines))}
    for steps, augmenter in augmenters.items():
        contenders[steps] = lambda augmenter=augmenter: per_sentence(lambda: augmenter(block, keys), len(block))
    for steps, augment in peers(synonyms).items():
        contenders[f"nlpaug {peer_name(steps)}"] = lambda augment=augment: per_sentence(
            lambda: [augment(line) for line in few], len(few)
        )
    rounds = alternating(contenders, arguments.rounds)
    rate = {name: round(1 / statistics.median(seconds)) for name, seconds in rounds.items()}
    covered, words = augmenters["subs"].coverage(block)
    return {
        "machine": machine(),
        "versions": {"numpy": np.__version__, "nlpaug": metadata.version("nlpaug")},
        "sentences": len(lines),
        "tokens_per_sentence": round(len(block.values) / len(block), 1),
        "rounds": arguments.rounds,
        "table_seconds": round(building.processor, 2),
        "coverage": round(covered / words, 4),
        "sentences_per_s": rate,
        "times_nlpaug": {steps: round(rate[steps] / rate[f"nlpaug {peer_name(steps)}"]) for steps in STEPS},
    }


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    rate, rows = result["sentences_per_s"], []
    for steps in STEPS:
        peer = peer_name(steps)
        rates = f"{rate[steps]:,}", f"{rate[f'nlpaug {peer}']:,}", f"{result['times_nlpaug'][steps]:,}"
        rows.append([f"{steps} (nlpaug: {peer})", *rates])
    return (
        f"{result['sentences']:,} sentences of {result['tokens_per_sentence']} tokens, one core of "
        f"{result['machine']['cpu']}, median of {result['rounds']} rounds\n"
        f"{columns(['', 'sentences/s', 'nlpaug', 'times'], rows)}\n"
        f"tokenization: {rate['tokenize']:,} sentences/s; synonym table: {result['table_seconds']} s, once\n"
        f"{100 * result['coverage']:.1f} % of words have a synonym"
    )


def main() -> None:
    parser = command(__doc__, "augment")
    parser.add_argument("--sentences", type=Path, required=True, metavar="FILE", help="sentences, one a line")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="PATH", help="tokenizer.json or its folder")
    parser.add_argument("--synonyms", type=Path, required=True, metavar="FILE", help="a table of synonyms")
    option(parser, "times", 5, "repetitions of the sentences")
    option(parser, "peer-sentences", 2000, "sentences for nlpaug")
    option(parser, "rounds", 3, "rounds")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
