"""Held-out texts as a retrieval collection that needs no labels: given one crop of a text, find the other.

    a dataset's held-out part: documents, sentences ──> texts ──> two crops that do not overlap ─┐
                               triplets ──────────────────────> sentence, positive               ├──> Collection
    a jsonl or csv file:       text ──────────────────────────> two crops                        │
                               title, text ───────────────────> title, text                      ┘

A crop is a run of whole words. Its place and length are drawn under a key of the text's id and `SEED`, so that they are
the same in every run and for every model. The texts of a dataset are what its tokenizer gives back for the ids, without
the prompts that a dataset of pairs has before them: each model gets its own.

A dataset's texts are halved by the hashes of the texts, or of the queries: training picks checkpoints by one half
(`training.eval_data: heldout`), and the evaluation scores the other, so that the choice favors no trained model.
Texts that differ in white space, letter case or Unicode form alone are one (`common.same_text`): one candidate, one
query, in one half.
"""

import contextlib
import hashlib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from clearspan.common import same_text
from clearspan.common.words import word_spans
from clearspan.eval.data.retrieval import Collection
from clearspan.eval.files import DataError, MissingDataError, csv_records, json_records, string_field

if TYPE_CHECKING:
    from clearspan.shards import Dataset

LIMIT = 10_000
"""Most texts of a collection; of more, those with the lowest hashes of their ids."""
OF_BOTH_HALVES = 3
"""Times LIMIT: the texts that are decoded to find those of one half; some in reserve, for halves of unequal size."""
FEWEST_TEXTS = 10
"""Fewest queries of a collection: among fewer, ranks say nothing."""
FEWEST_WORDS, MOST_WORDS = 4, 64
"""Bounds of a crop's length."""
SEED = 0
SUFFIXES = (".jsonl", ".csv")
FOLDER = "heldout"
Content = TypeVar("Content")
_MANIFEST = "manifest.json"
_HOLD_OUT = "hold out more, by a larger --holdout-fraction into a new folder, or give more texts"


@dataclass(frozen=True)
class HeldOut:
    """A collection of held-out texts.

    Attributes:
        files: what the collection was made of: a dataset's manifest, which holds the hashes of its shards, or a file.
        counts: sizes besides those of the collection.
        text: how the collection was made, for the report.
    """

    collection: Collection
    files: tuple[Path, ...]
    counts: dict[str, int] = field(default_factory=dict)
    text: str = ""


Texts = dict[int, tuple[str, ...]]
"""Id -> the text, or the query and the document."""


def find(data: Path) -> dict[str, Path]:
    """Return name -> folder of a held-out part, or file: one if `data` is a dataset, else those in `data/heldout/`.

    Raises:
        MissingDataError: there is none.
        DataError: the dataset has no held-out part, or two entries of `data/heldout/` have one name.
    """
    if (data / _MANIFEST).is_file():
        return {FOLDER: held_out_part(data)}
    found: dict[str, Path] = {}
    for path in sorted((data / FOLDER).glob("[!.]*")):
        if (path / _MANIFEST).is_file():
            inner = path / "validation"
            name, part = path.name, inner if (inner / _MANIFEST).is_file() else path
        elif path.suffix.lower() in SUFFIXES and path.is_file():
            name, part = path.stem, path
        else:
            continue
        if other := found.get(f"{FOLDER}/{name}"):
            raise DataError(f"{path}: would be the task {FOLDER}/{name}, as {other} is: rename one of them")
        found[f"{FOLDER}/{name}"] = part
    if not found:
        raise MissingDataError(
            f"{data} is no dataset of shards ({_MANIFEST}), and {data / FOLDER} holds none, nor a .jsonl or .csv file"
        )
    return found


def held_out_part(folder: Path) -> Path:
    """Return the held-out part of a dataset: its `validation`, or the folder itself if that is such a part.

    Raises:
        DataError: neither is.
    """
    from clearspan.shards.manifest import Manifest, ManifestError

    if (folder / "validation" / _MANIFEST).is_file():
        return folder / "validation"
    try:
        is_part = Manifest.load(str(folder)).fingerprint.get("split") == "validation"
    except ManifestError as error:
        raise DataError(str(error)) from None
    if not is_part:
        raise DataError(
            f"{folder}: a dataset without a held-out part (validation/): run its pipeline with --holdout-fraction "
            f"0.05; or put a dataset that no training reads at DIR/{FOLDER}/NAME, and give --data DIR"
        )
    return folder


def read(path: Path) -> HeldOut:
    """Read the folder of a dataset, or a jsonl or csv file, as a collection.

    Raises:
        DataError: the dataset or file is malformed, holds no text, or too few texts of at least 8 words.
    """
    return read_dataset(path) if path.is_dir() else _collected(path, *_of_file(path, LIMIT))


def read_all(path: Path) -> dict[str, HeldOut]:
    """Read a dataset or a file once; return the collection of `read` by "", and by "/passages", of a dataset of pairs
    whose documents are long enough, crops of the documents.

    Raises:
        DataError: as `read`.
    """
    if not path.is_dir():
        return {"": read(path)}
    texts, num_read = _of_dataset(path, LIMIT, picking=False)
    found = {"": _collected(path, texts, num_read)}
    if all(len(parts) == 2 for parts in texts.values()):
        documents = {number: parts[1:] for number, parts in texts.items()}
        with contextlib.suppress(DataError):  # too few of them are long enough
            found["/passages"] = _collected(path, documents, num_read)
    return found


def read_dataset(folder: str | Path, limit: int = LIMIT, picking: bool = False) -> HeldOut:
    """Read half of a dataset of documents, sentences or triplets as a collection.

    Args:
        limit: most texts to take; the choice depends only on their ids.
        picking: read the half that picks checkpoints in training, not the half that is evaluated.

    Raises:
        DataError: the dataset is malformed, holds no text, or too few texts of at least 8 words.
    """
    return _collected(Path(folder), *_of_dataset(folder, limit, picking))


def _collected(place: Path, texts: Texts, num_read: int) -> HeldOut:
    file, remedy = (place / _MANIFEST, _HOLD_OUT) if place.is_dir() else (place, "give more")
    of_pairs = any(len(parts) == 2 for parts in texts.values())
    distinct: dict[tuple[str, ...], int] = {}
    for number, parts in texts.items():
        distinct.setdefault(tuple(map(same_text.key, parts)), number)
    pairs = [texts[number] if of_pairs else crops(texts[number][0], number) for number in distinct.values()]
    whole = [(pair[0], pair[1]) for pair in pairs if pair and all(pair)]
    counts = {"texts held out": num_read} if num_read > len(texts) else {}
    if copies := len(texts) - len(distinct):
        counts["left out (copies)"] = copies
    if left_out := len(pairs) - len(whole):
        counts["left out (empty)" if of_pairs else "left out (too short)"] = left_out
    collection = _collection(whole)
    if len(collection.queries) < FEWEST_TEXTS:
        least = "" if of_pairs else f" of at least {2 * FEWEST_WORDS} words"
        raise DataError(
            f"{place}: {len(collection.queries)} different texts{least} are too few to rank, {FEWEST_TEXTS} are "
            f"needed: {remedy}"
        )
    how = (
        "Each query is the first text of a held-out pair, and its document the second."
        if of_pairs
        else f"Each query is a crop of {FEWEST_WORDS} to {MOST_WORDS} words of a held-out text, and its document "
        "another crop of the same text that does not overlap."
    )
    if num_read > len(texts):
        how += f" Of {num_read:,} texts, {len(texts):,} were chosen by the hashes of their ids."
    return HeldOut(collection, (file,), counts, how)


def crops(text: str, number: int) -> tuple[str, str] | None:
    """Return two random crops of a text that do not overlap; None for a text of fewer than 8 words.

    A crop's length is uniform between half of the most and the most words that it can have: half of the text's, at most
    `MOST_WORDS`. The words that are left over fall at random before, between and after the two.

    Args:
        number: id of the text, which with SEED determines the draws.
    """
    from clearspan.shards import keyed

    spans = word_spans(text)
    most = min(MOST_WORDS, len(spans) // 2)
    if most < FEWEST_WORDS:
        return None
    fewest = max(FEWEST_WORDS, most // 2)
    key = keyed.mix(SEED, number)
    draws = [keyed.shift(keyed.draw(key, j), 1) for j in range(1, 6)]
    first, second = (fewest + draw % (most - fewest + 1) for draw in draws[:2])
    free = len(spans) - first - second
    before, until = sorted(draw % (free + 1) for draw in draws[2:4])
    one, other = (
        text[spans[start][0] : spans[start + length - 1][1]]
        for start, length in ((before, first), (until + first, second))
    )
    return (one, other) if draws[4] % 2 else (other, one)


def _collection(pairs: Iterable[tuple[str, str]]) -> Collection:
    """Build a collection of distinct queries and documents: equal texts are one, with the documents of all of them."""
    queries: dict[str, tuple[str, set[int]]] = {}
    documents: dict[str, tuple[str, int]] = {}
    for query, document in pairs:
        _, position = documents.setdefault(same_text.key(document), (document, len(documents)))
        queries.setdefault(same_text.key(query), (query, set()))[1].add(position)
    relevant = [np.array(sorted(positions), np.int64) for _, positions in queries.values()]
    grades = [np.ones(len(each), np.int64) for each in relevant]
    return Collection(
        [text for text, _ in documents.values()], [text for text, _ in queries.values()], relevant, grades
    )


def _of_dataset(folder: str | Path, limit: int, picking: bool) -> tuple[Texts, int]:
    """Return the chosen texts of a dataset, and the number of all its examples."""
    from clearspan.common.fast_tokenizer import load
    from clearspan.common.token_ids import without_prompt
    from clearspan.shards import Dataset, ShardError
    from clearspan.shards.manifest import ManifestError

    try:
        dataset = Dataset(folder)
        if not dataset.kind.has_tokens:
            raise DataError(f"{folder}: holds {dataset.kind.name}, not text: give documents, sentences or triplets")
        known = dataset.manifest.prompts
        tokenizer = load((dataset.local_tokenizer() / "tokenizer.json").read_bytes(), prompts=known.values())
        chosen = _chosen(dataset, OF_BOTH_HALVES * limit)
    except (ManifestError, ShardError) as error:
        raise DataError(str(error)) from None
    prompts = [known.get(column, "") for column in ("tokens", "positive")]
    columns = (
        without_prompt(tokenizer, column, prompt)
        for column, prompt in zip(zip(*chosen.values(), strict=True), prompts, strict=False)
    )
    rows = zip(chosen, zip(*columns, strict=True), strict=True)
    half = {number: row for number, row in rows if _picks(row[0]) == picking}
    return _lowest(half, limit), dataset.num_examples


def _picks(text: str) -> bool:
    """Return whether a text, or the first of a pair, is of the half that picks checkpoints."""
    return bool(same_text.digest(text)[0] & 1)


def _chosen(dataset: "Dataset", limit: int) -> dict[int, list[list[int]]]:
    """Return id -> token ids of each column, of the examples with the lowest hashes of their ids, in this order.

    Memory holds twice as many examples at most. Examples of one id are copies, and count once.
    """
    from clearspan.shards import keyed

    kept: dict[int, list[list[int]]] = {}
    highest = np.iinfo(np.int64).max
    for batch in dataset:
        names = ["tokens", *({"positive"} & set(batch.schema.names))]
        numbers = batch.column("id").to_numpy()
        hashes = keyed.mix(SEED, numbers)
        for row in np.flatnonzero(hashes <= highest).tolist():
            kept[int(numbers[row])] = [batch.column(name)[row].as_py() for name in names]
        if len(kept) > 2 * limit:
            kept = _lowest(kept, limit)
            highest = keyed.mix(SEED, next(reversed(kept)))
    return _lowest(kept, limit)


def _lowest(texts: dict[int, Content], limit: int) -> dict[int, Content]:
    """Return the texts with the lowest hashes of their ids, lowest first."""
    from clearspan.shards import keyed

    return {number: texts[number] for number in heapq.nsmallest(limit, texts, lambda number: keyed.mix(SEED, number))}


def _of_file(path: Path, limit: int) -> tuple[Texts, int]:
    """Return the chosen records of a file, `text` or (`title`, `text`), and their number; an id is a text's hash."""
    texts: Texts = {}
    fields: list[str] = []
    for place, record in csv_records(path, ("text",)) if path.suffix.lower() == ".csv" else json_records(path):
        fields = fields or [name for name in ("title", "text") if name in record]
        if "text" not in fields or ("title" in record) != ("title" in fields):
            raise DataError(f"{place}: expected the fields of the first record, which must have text")
        parts = tuple(string_field(record, name, place).strip() for name in fields)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
        texts[int.from_bytes(digest, "little", signed=True)] = parts
    return _lowest(texts, limit), len(texts)
