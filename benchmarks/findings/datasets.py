"""The study's datasets, made by the pipelines' commands, which do nothing where they have finished already.

    text -> tokenizer -> sentences -> documents, triplets, pairs of a sentence and a changed copy    images    audio

SimCSE compares dropout alone with changed copies (Gao et al. 2021, Table 1): `deleted` lacks a tenth of the words,
`cropped` has nine tenths of them in a row.

A prepared work folder holds the evaluation sets too: it travels to a machine with a GPU and without Beam.
"""

import argparse
import csv
import io
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.commands import run_module
from benchmarks.findings.scales import Scale
from benchmarks.findings.systems import systems
from clearspan.common.files import write_text
from clearspan.eval.data.senteval import find_downstream
from clearspan.shards import Dataset
from clearspan.train.model.tokenizer import load_shards_tokenizer

SHARE = 0.1
"""Fraction of the words that are left out."""
MIN_WORDS = 5
"""Shorter sentences are left out."""
HELD_OUT = 0.08
"""Fraction of the documents that are held out for retrieval."""
PREPARED = "prepared.json"
"""The file of a prepared work folder, written last: option -> the file or folder that was copied, in it."""
Words = list[str]


def deleted(words: Words, draws: random.Random) -> Words:
    """Return the words without a random tenth of them, at least one."""
    gone = set(draws.sample(range(len(words)), max(1, round(SHARE * len(words)))))
    return [word for place, word in enumerate(words) if place not in gone]


def cropped(words: Words, draws: random.Random) -> Words:
    """Return nine tenths of the words in a row, from a random place."""
    length = len(words) - max(1, round(SHARE * len(words)))
    start = draws.randint(0, len(words) - length)
    return words[start : start + length]


CHANGES: dict[str, Callable[[Words, random.Random], Words]] = {"deleted": deleted, "cropped": cropped}
"""Dataset -> how its positives are made."""


def write_pairs(sentences: Path, name: str, file: Path) -> None:
    """Write a csv file of each sentence of a folder of shards and its changed copy."""
    dataset, draws, rows = Dataset(sentences), random.Random(name), io.StringIO()
    tokenizer = load_shards_tokenizer(dataset.local_tokenizer())
    writer = csv.writer(rows)
    writer.writerow(("sent0", "sent1"))
    for batch in dataset:
        for tokens in batch["tokens"].to_pylist():
            words = tokenizer.decode(tokens).split()
            if len(words) >= MIN_WORDS:
                writer.writerow((" ".join(words), " ".join(CHANGES[name](words, draws))))
    write_text(file, rows.getvalue())


def make(options: argparse.Namespace, scale: Scale, held_out: float = HELD_OUT) -> Path:
    """Make all datasets whose files are given and that the scale's systems read; return the folder of their folders."""
    shards, learned = options.work / "shards", options.work / "tokenizer"

    def shard(kind: str, files: Sequence[str | Path], *words: str, name: str = "") -> None:
        line = [kind, "--input", *map(str, files), f"--output={shards / (name or kind)}", "--quiet", *words]
        run_module("clearspan.pipelines", line)

    line = ["vocabulary", "--input", *options.text, f"--output={learned}", f"--size={scale.vocabulary}", "--quiet"]
    run_module("clearspan.pipelines", line)
    downstream = find_downstream(options.data)
    text = [f"--exclude={downstream / name}" for name in ("STS", "SICK") if (downstream / name).is_dir()]
    short = [*text, f"--max-tokens={min(62, scale.positions - 2)}"]
    lines = ("--text-per=line", "--no-split", "--del-token")
    shard("sentences", options.sentences, f"--tokenizer={learned}", *short, *lines)
    tokenizer = f"--tokenizer={shards / 'sentences' / 'tokenizer'}"
    longest = f"--min-tokens={4 * scale.max_span}"  # two anchors, a span's distance between them, an adjacent positive
    parts = ("--unit-bytes=2000000", f"--holdout-fraction={held_out}")
    shard("documents", options.text, tokenizer, *text, longest, *parts)
    known = systems(scale)
    read = {data for name in scale.systems or known for data in known[name].batches}
    for name in filter(read.__contains__, CHANGES):
        file = options.work / "pairs" / f"{name}.csv"
        write_pairs(shards / "sentences", name, file)
        shard("triplets", [file], tokenizer, *short, name=name)
    if options.nli:
        shard("triplets", options.nli, tokenizer, *short)
    for kind in ("images", "audio"):
        if files := getattr(options, kind):
            shard(kind, files)
    return Path(shards)


def prepare(options: argparse.Namespace, scale: Scale, held_out: float = HELD_OUT) -> Path:
    """Make all datasets and copy what scoring needs, so that the work folder is all that another machine needs."""
    shards, inputs = make(options, scale, held_out), options.work / "inputs"
    copied: dict[str, str] = {}
    shutil.rmtree(inputs, ignore_errors=True)
    downstream = find_downstream(options.data)
    for source in [downstream / name for name in scale.sets] or [downstream]:
        if source.is_dir():
            shutil.copytree(source, inputs / "downstream" / source.relative_to(downstream), dirs_exist_ok=True)
            copied["data"] = inputs.name
    for name in ("vectors", "synonyms"):
        if source := getattr(options, name):
            copied[name] = str(Path(inputs.name, f"{name}{source.suffix}"))
            shutil.copyfile(source, options.work / copied[name])
    write_text(options.work / PREPARED, json.dumps(copied))
    return shards


def prepared(work: Path) -> dict[str, Path]:
    """Return the options of a prepared work folder; empty if it is not one."""
    file = work / PREPARED
    names = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {name: work / path for name, path in names.items()}
