"""Held-out texts as a retrieval collection that needs no labels: find a text by its title, or one crop by another.

    a dataset's held-out part: documents, sentences ──> texts ──> two crops that do not overlap ─┐
                               triplets ──────────────────────> sentence, positive               ├──> RetrievalSet
    a jsonl or csv file:       text ──────────────────────────> two crops                        │
                               title, text ───────────────────> title, text                      ┘
    its training part:         texts (or a crop of each) ──────────────────> further documents ──^

The queries are from held-out texts. The documents are all texts of the dataset, including its training part, as in a
search. Of more than `MOST_RANKED` texts, a sample is ranked: the held-out texts, and the texts with the lowest hashes
of their ids. The texts of a dataset are decoded from its token ids, without the prompts that a dataset of pairs puts
before them, since each model adds its own.

A dataset's held-out texts are halved by the hashes of the texts, or of the queries: training picks checkpoints by one
half (`training.eval_data: heldout`), and the evaluation scores the other half, so the choice favors no trained model.
Texts that differ only in white space, letter case or Unicode form are the same text (`common.same_text`): they give one
candidate and one query, in one half.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clearspan.common import same_text
from clearspan.common.flags import flag
from clearspan.common.records import DataError, csv_records, json_records, string_field
from clearspan.eval.data.crops import FEWEST_WORDS, MOST_WORDS, crops
from clearspan.eval.data.dataset_texts import DatasetTexts, Row, lowest
from clearspan.eval.data.heldout_folders import training_part
from clearspan.eval.data.retrieval_data import RetrievalSet
from clearspan.shards.manifest import NAME as MANIFEST

LIMIT = 10_000
"""Most queries of a half. From a larger half, the queries with the lowest hashes of their ids are taken."""
MOST_RANKED = 1_000_000
"""Most texts that are ranked."""
FEWEST_TEXTS = 10
"""Fewest queries of a collection: with fewer, ranks are meaningless."""


def hold_out_more() -> str:
    """Return advice for the user on too few held-out texts."""
    return f"hold out more, by a larger {flag('--holdout-fraction')} into a new folder, or give more texts"


@dataclass(frozen=True)
class HeldOutTexts:
    """A collection of held-out texts.

    Attributes:
        collection: the queries of the half that is evaluated.
        picking: the queries of the half that picks checkpoints, and the same documents; None: the texts have no halves.
        num_texts: number of texts in the dataset or file; more than the documents if a sample is ranked, or if texts
            are equal.
        files: sources of the collection: manifests of datasets, which hold the hashes of their shards, or a file.
        counts: further sizes: name of what is counted -> number.
        text: how the collection was made, for the report.
        are_titles: whether the queries are the first texts of pairs, such as titles, and not crops.
    """

    collection: RetrievalSet
    picking: RetrievalSet | None
    num_texts: int
    files: tuple[Path, ...]
    counts: dict[str, int] = field(default_factory=dict)
    text: str = ""
    are_titles: bool = False


class _Texts(NamedTuple):
    """The texts of a dataset or file, sorted by the hashes of their ids.

    Attributes:
        place: the held-out part of the dataset, or the file.
        held, trained: the texts of the held-out part, and of the training part.
        num_held, num_texts: number of texts in the held-out part, and in both parts, including texts that were not
            read.
        files: see `HeldOutTexts`.
        is_halved: whether half of the held-out texts is reserved for choosing checkpoints.
        is_whole: whether the training part was found, so that its texts are ranked too.
    """

    place: Path
    held: list[Row]
    trained: list[Row]
    num_held: int
    num_texts: int
    files: tuple[Path, ...]
    is_halved: bool
    is_whole: bool

    @property
    def are_pairs(self) -> bool:
        return any(len(parts) > 1 for _, parts in self.held)


class _Finding(NamedTuple):
    """A query and the texts that it should find; a text that is only ranked has an empty query."""

    query: str
    documents: Sequence[str]


def read(path: Path) -> HeldOutTexts:
    """Read a dataset's held-out texts, to be found among all its texts, or a jsonl or csv file, as a collection.

    Raises:
        DataError: the dataset or file is malformed, holds no text, or too few texts of at least 8 words.
    """
    texts = _of_dataset(path, training_part(path)) if path.is_dir() else _of_file(path)
    return _collected(texts, LIMIT)


def read_all(path: Path) -> dict[str, HeldOutTexts]:
    """Read a dataset or a file once; return its collections by the suffix of their task's name.

    The suffix "" has the collection of `read`. For pairs with long enough documents, "/passages" has crops of these.

    Raises:
        DataError: see `read`.
    """
    if not path.is_dir():
        return {"": read(path)}
    texts = _of_dataset(path, training_part(path))
    by_suffix = {"": _collected(texts, LIMIT)}
    if texts.are_pairs:
        with contextlib.suppress(DataError):  # too few documents are long enough
            by_suffix["/passages"] = _collected(texts, LIMIT, passages=True)
    return by_suffix


def read_dataset(
    folder: str | Path,
    limit: int = LIMIT,
    picking: bool = False,
    training: str | Path | None = None,
    most_ranked: int = MOST_RANKED,
) -> HeldOutTexts:
    """Read the held-out part of a dataset of documents, sentences or triplets as a collection.

    Args:
        limit: most queries; the choice depends only on the ids of their texts.
        picking: take the queries of the half that picks checkpoints, instead of the half that is evaluated.
        training: the dataset whose texts are ranked too; None: only the held-out texts are ranked.
        most_ranked: most texts that are ranked; of a larger training part, the texts of the first shards.

    Raises:
        DataError: the dataset is malformed, holds no text, or too few texts of at least 8 words.
    """
    return _collected(_of_dataset(folder, training, most_ranked), limit, picking)


def _of_dataset(folder: str | Path, training: str | Path | None, most_ranked: int = MOST_RANKED) -> _Texts:
    """Return the texts of the held-out part of a dataset, and of the dataset itself."""
    part = DatasetTexts(folder, most_ranked)
    held = lowest(part)
    trained = []
    num_texts = len(part)
    files: tuple[Path, ...] = (Path(folder) / MANIFEST,)
    if training is not None:
        rest = DatasetTexts(training, most_ranked - len(held), few_shards=most_ranked < MOST_RANKED)
        trained = list(rest)
        num_texts = num_texts + len(rest)
        files = (*files, Path(training) / MANIFEST)
    return _Texts(Path(folder), held, trained, len(part), num_texts, files, True, training is not None)


def _collected(texts: _Texts, limit: int, picking: bool = False, passages: bool = False) -> HeldOutTexts:
    """Make the collection of texts.

    Args:
        limit, picking: see `read_dataset`.
        passages: for pairs, take crops of the second texts instead of the pairs.
    """
    are_pairs = texts.are_pairs and not passages
    content = slice(1, 2) if passages else slice(None)
    known: set[tuple[bytes, ...]] = set()
    judged: list[_Finding] = []
    picks: list[_Finding] = []
    ranked: list[_Finding] = []
    for row, (number, parts) in enumerate(itertools.chain(texts.held, texts.trained)):
        if (key := tuple(map(same_text.digest, parts[content]))) in known:
            continue
        known.add(key)
        finding = _titled(parts) if are_pairs else _cropped(parts[content][0], number)
        half = ranked
        if row < len(texts.held):
            half = picks if texts.is_halved and is_of_picking_half(parts[0]) else judged
        (half if len(half) < limit else ranked).append(finding)
    copies = len(texts.held) + len(texts.trained) - len(known)
    mine, other = (picks, judged) if picking else (judged, picks)
    collection, others = _collections([mine, other], ranked)
    if len(collection.queries) < FEWEST_TEXTS:
        least = "" if are_pairs else f" of at least {2 * FEWEST_WORDS} words"
        raise DataError(
            f"{texts.place}: {len(collection.queries)} different texts{least} are too few to rank, {FEWEST_TEXTS} are "
            f"needed: {hold_out_more() if texts.place.is_dir() else 'give more'}"
        )
    left_out = sum(not (finding.query and finding.documents) for finding in mine)
    is_sample = texts.num_texts > len(texts.held) + len(texts.trained)
    counts = {
        "texts held out": texts.num_held if texts.is_halved or texts.num_held > len(mine) + copies else 0,
        "left out (copies)": copies,
        "left out (empty)" if are_pairs else "left out (too short)": left_out,
        "texts in the dataset": texts.num_texts if is_sample else 0,
    }
    return HeldOutTexts(
        collection,
        others if texts.is_halved and not picking and others.queries else None,
        texts.num_texts if is_sample else len(collection.documents),
        texts.files,
        {name: number for name, number in counts.items() if number},
        " ".join(_about(texts, are_pairs, len(mine), len(collection.documents))),
        are_pairs,
    )


def _about(texts: _Texts, are_pairs: bool, num_queries: int, num_documents: int) -> Iterator[str]:
    """Yield sentences that describe how a collection was made."""
    if are_pairs:
        yield "Each query is the first text of a held-out pair, and its document the second."
    else:
        yield (
            f"Each query is a crop of {FEWEST_WORDS} to {MOST_WORDS} words of a held-out text, and its document "
            "another crop of the same text that does not overlap."
        )
    if texts.num_held > num_queries:
        yield f"Of {texts.num_held:,} held-out texts, {num_queries:,} were chosen by the hashes of their ids."
    crop = "" if are_pairs else "a crop each of "
    if texts.num_texts > len(texts.held) + len(texts.trained):
        yield (
            f"Ranked are {crop}{num_documents:,} of the dataset's {texts.num_texts:,} texts: the held-out ones, and "
            "those with the lowest hashes of their ids."
        )
    elif texts.is_whole:
        yield f"Ranked are {crop}all {num_documents:,} different texts of the dataset, those trained on included."
    else:
        alone = f": no training part is beside {texts.place}" if texts.is_halved else ""
        yield f"Ranked are {crop}these {num_documents:,} texts alone{alone}."


def _titled(parts: tuple[str, ...]) -> _Finding:
    return _Finding(parts[0], [text for text in parts[1:] if text])


def _cropped(text: str, number: int) -> _Finding:
    """Return a text's first crop as the query for the second; a text too short for two crops is only ranked."""
    pair = crops(text, number)
    return _Finding(pair[0], pair[1:]) if pair else _Finding("", [text] if text else [])


def _collections(halves: Sequence[Iterable[_Finding]], others: Iterable[_Finding]) -> list[RetrievalSet]:
    """Return a collection for each half: its distinct queries, and the documents of all halves and of `others`.

    Equal queries are merged into one query, whose right documents are the right documents of all of them, including
    equal queries in `others`.
    """
    documents: dict[bytes, tuple[str, int]] = {}
    queries: list[dict[bytes, tuple[str, set[int]]]] = [{} for _ in halves]

    def places(finding: _Finding) -> Iterator[int]:
        for text in finding.documents:
            yield documents.setdefault(same_text.digest(text), (text, len(documents)))[1]

    for half, findings in zip(queries, halves, strict=True):
        for finding in findings:
            positions = [*places(finding)]
            if finding.query and positions:
                half.setdefault(same_text.digest(finding.query), (finding.query, set()))[1].update(positions)
    for finding in others:
        positions = [*places(finding)]
        for half in queries:
            if finding.query and (known := half.get(same_text.digest(finding.query))):
                known[1].update(positions)
    texts = [text for text, _ in documents.values()]
    collections = []
    for half in queries:
        relevant = [np.array(sorted(positions), np.int64) for _, positions in half.values()]
        grades = [np.ones(len(rows), np.int64) for rows in relevant]
        collections.append(RetrievalSet(texts, [text for text, _ in half.values()], relevant, grades))
    return collections


def is_of_picking_half(text: str) -> bool:
    """Return whether a text, or the first text of a pair, belongs to the half that picks checkpoints."""
    return bool(same_text.digest(text)[0] & 1)


def _of_file(path: Path) -> _Texts:
    """Return the records of a file, each `text` or (`title`, `text`); the id of a text is its hash."""
    texts: dict[int, tuple[str, ...]] = {}
    fields: list[str] = []
    for place, record in csv_records(path, ("text",)) if path.suffix.lower() == ".csv" else json_records(path):
        fields = fields or [name for name in ("title", "text") if name in record]
        if "text" not in fields or ("title" in record) != ("title" in fields):
            raise DataError(f"{place}: expected the fields of the first record, which must have text")
        parts = tuple(string_field(record, name, place).strip() for name in fields)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
        texts[int.from_bytes(digest, "little", signed=True)] = parts
    rows = lowest(texts.items())
    return _Texts(path, rows[:MOST_RANKED], [], len(rows), len(rows), (path,), False, False)
