"""Make a retrieval collection from held-out texts, without labels: find a text by its title, or one crop by another.

    a dataset's held-out part: documents, sentences ──> texts ──> two crops that do not overlap ─┐
                               triplets ──────────────> the anchor and its positives             ├──> RetrievalSet
    a jsonl or csv file:       text ──────────────────> two crops that do not overlap            │
                               title, text ───────────> the title and the text                   │
    a dataset's training part: texts, or one crop of each ──> further documents ─────────────────┘

The queries come from held-out texts. As in a search, the documents are all texts of the dataset, including its training
part. If the dataset has more than `MAX_RANKED` (a million) texts, a sample is ranked: the held-out texts, and the
training texts whose ids have the lowest hashes. The texts of a dataset are decoded from token ids. If the dataset
stores prompts in front of its texts, they are removed, because each model adds its own prompts.

A dataset's held-out texts are divided into two halves, by the hash of the text or, for a pair, of its first text.
Training chooses checkpoints by one half (`training.eval_data: heldout`), and the evaluation scores the other half, so
that the choice does not favor the trained model. Texts that differ only in white space, letter case or Unicode form are
the same text (`common.same_text`). Together they give one document and one query, in one half.
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
from clearspan.common.records import DataError, csv_records, json_records, string_field
from clearspan.eval.data.crops import MAX_WORDS, MIN_WORDS, crops
from clearspan.eval.data.dataset_texts import DatasetTexts, Row, sorted_by_hash
from clearspan.eval.data.heldout_folders import training_part
from clearspan.retrieval.retrieval_set import RetrievalSet, is_of_dev_half
from clearspan.shards.manifest import NAME as MANIFEST

LIMIT = 10_000
"""The most queries in a half. From a larger half, the queries whose ids have the lowest hashes are taken."""
MAX_RANKED = 1_000_000
"""The most texts that are ranked."""
MIN_TEXTS = 10
"""The fewest queries in a collection. With fewer queries, a mean of their ranks says nothing."""


def hold_out_more() -> str:
    """Return advice for a user whose dataset has too few held-out texts."""
    return "hold out more, by a larger `holdout_fraction` into a new folder, or give more texts"


@dataclass(frozen=True)
class HeldOutTexts:
    """A retrieval collection made from held-out texts.

    Attributes:
        collection: the queries to score, and the documents to rank for each of them.
        dev: a collection with the documents of `collection`, and the dev queries, by which training chooses
            checkpoints. None if `collection` itself has these queries, if there are none, or if the texts are not
            divided into halves.
        num_texts: the number of texts in the dataset if only a sample of them is ranked; otherwise the number of
            documents.
        files: the files that identify the collection: the manifests of the dataset's parts, which hold the hashes of
            their shards, or the jsonl or csv file.
        counts: numbers of texts for the report: description of what is counted, such as `left out (copies)` -> number.
        text: sentences for the report that say how the collection was made.
        are_titles: whether the queries are the first texts of pairs, such as titles; otherwise they are crops.
    """

    collection: RetrievalSet
    dev: RetrievalSet | None
    num_texts: int
    files: tuple[Path, ...]
    counts: dict[str, int] = field(default_factory=dict)
    text: str = ""
    are_titles: bool = False

    def required_dev(self) -> RetrievalSet:
        """Return `dev`, to choose weights and systems by.

        Raises:
            DataError: there are fewer than 10 dev queries (`MIN_TEXTS`).
        """
        if self.dev is None or len(self.dev.queries) < MIN_TEXTS:
            raise DataError(
                f"{self.files[0].parent}: too few texts to choose the weights ({MIN_TEXTS} are needed): "
                f"{hold_out_more()}"
            )
        return self.dev


class _Texts(NamedTuple):
    """The texts of a dataset, divided into held-out and training texts, or the texts of a file.

    Attributes:
        place: the folder of the dataset's held-out part, or the file.
        held: (id, texts) of each example in the held-out part or the file, in ascending order of the hashes of the ids.
        trained: (id, texts) of each example in the training part; empty if the training part is not ranked.
        num_held: the number of texts in the held-out part or file, including texts that were not read.
        num_texts: the number of texts in the held-out and the training part, including texts that were not read.
        files: the manifests of the dataset's parts, or the file; their content identifies the texts.
        is_halved: whether half of the held-out texts is reserved for choosing checkpoints.
        is_training_ranked: whether the texts of the training part are ranked too.
    """

    place: Path
    held: list[Row]
    trained: list[Row]
    num_held: int
    num_texts: int
    files: tuple[Path, ...]
    is_halved: bool
    is_training_ranked: bool

    @property
    def are_pairs(self) -> bool:
        return any(len(parts) > 1 for _, parts in self.held)


class _Finding(NamedTuple):
    """A query and the documents that it should find. If the query is "", there is no query for these documents.

    The query and its document are two crops of one text, or the texts of one pair, such as a title and a text.
    """

    query: str
    documents: Sequence[str]


def read(path: Path) -> HeldOutTexts:
    """Make a collection from the held-out part of a dataset, or from a jsonl or csv file.

    If the dataset itself is in the parent folder of the held-out part, its training texts are ranked too.

    Args:
        path: the folder of a held-out part, or the file.

    Raises:
        DataError: the dataset or file is malformed, or gives fewer than 10 queries (`MIN_TEXTS`), for example
            because most of its texts have fewer than 8 words.
        MissingDataError: the file does not exist.
    """
    texts = _texts_of_dataset(path, training_part(path)) if path.is_dir() else _texts_of_file(path)
    return _collection_of(texts, LIMIT)


def read_all(path: Path) -> dict[str, HeldOutTexts]:
    """Read a held-out part or a file once, and return the collections of all tasks that are made from it.

    Args:
        path: the folder of a held-out part, or a jsonl or csv file.

    Returns:
        Suffix of a task's name -> collection. The suffix "" has the collection that `read` returns. For a dataset of
        pairs, the suffix "/passages" has a collection of crops of the pairs' second texts, unless too few of these
        texts are long enough.

    Raises:
        DataError: the dataset or file is malformed, or gives fewer than 10 queries (`MIN_TEXTS`), for example
            because most of its texts have fewer than 8 words.
        MissingDataError: the file does not exist.
    """
    if not path.is_dir():
        return {"": read(path)}
    texts = _texts_of_dataset(path, training_part(path))
    by_suffix = {"": _collection_of(texts, LIMIT)}
    if texts.are_pairs:
        with contextlib.suppress(DataError):  # too few documents are long enough
            by_suffix["/passages"] = _collection_of(texts, LIMIT, passages=True)
    return by_suffix


def read_dataset(
    folder: str | Path,
    max_queries: int = LIMIT,
    dev: bool = False,
    training: str | Path | None = None,
    max_ranked: int = MAX_RANKED,
) -> HeldOutTexts:
    """Make a collection from the held-out part of a dataset of documents, sentences or triplets.

    Args:
        max_queries: the maximum number of queries. If there are more, those whose texts' ids have the lowest hashes are
            taken.
        dev: whether to take the dev queries, by which training chooses checkpoints, instead of the test queries.
        training: the folder of the dataset's training part, whose texts are ranked too; None to rank only the held-out
            texts.
        max_ranked: the maximum number of texts to rank. If it is below `MAX_RANKED` (a million), the training texts
            are the first in the shards instead of a sample of all, which is faster.

    Raises:
        DataError: the dataset is malformed, or gives fewer than 10 queries (`MIN_TEXTS`), for example because most
            of its texts have fewer than 8 words.
    """
    return _collection_of(_texts_of_dataset(folder, training, max_ranked), max_queries, dev)


def _texts_of_dataset(folder: str | Path, training: str | Path | None, max_ranked: int = MAX_RANKED) -> _Texts:
    """Read at most `max_ranked` texts of the held-out part and, if it is given, of the training part."""
    part = DatasetTexts(folder, max_ranked)
    held = sorted_by_hash(part)
    trained = []
    num_texts = len(part)
    files: tuple[Path, ...] = (Path(folder) / MANIFEST,)
    if training is not None:
        rest = DatasetTexts(training, max_ranked - len(held), few_shards=max_ranked < MAX_RANKED)
        trained = list(rest)
        num_texts = num_texts + len(rest)
        files = (*files, Path(training) / MANIFEST)
    return _Texts(Path(folder), held, trained, len(part), num_texts, files, True, training is not None)


def _collection_of(texts: _Texts, max_queries: int, dev: bool = False, passages: bool = False) -> HeldOutTexts:
    """Make a collection from texts.

    Args:
        texts: the held-out texts and the training texts.
        max_queries: the maximum number of queries. The texts of further queries are only ranked.
        dev: whether to take the dev queries, by which training chooses checkpoints, instead of the test queries.
        passages: if True, only the second text of each pair is used, and a query and its document are two crops of it.
            If False, the first text of a pair is a query, and the texts after it are its documents. A text that is not
            in a pair is always cut into two crops.

    Raises:
        DataError: there are fewer than 10 queries (`MIN_TEXTS`).
    """
    are_pairs = texts.are_pairs and not passages
    content = slice(1, 2) if passages else slice(None)
    known: set[tuple[bytes, ...]] = set()
    test: list[_Finding] = []
    development: list[_Finding] = []
    ranked: list[_Finding] = []
    for row, (number, parts) in enumerate(itertools.chain(texts.held, texts.trained)):
        if (key := tuple(map(same_text.digest, parts[content]))) in known:
            continue
        known.add(key)
        finding = _titled(parts) if are_pairs else _cropped(parts[content][0], number)
        half = ranked
        if row < len(texts.held):
            half = development if texts.is_halved and is_of_dev_half(parts[0]) else test
        (half if len(half) < max_queries else ranked).append(finding)
    copies = len(texts.held) + len(texts.trained) - len(known)
    mine, other = (development, test) if dev else (test, development)
    collection, others = _collections([mine, other], ranked)
    if len(collection.queries) < MIN_TEXTS:
        least = "" if are_pairs else f" of at least {2 * MIN_WORDS} words"
        raise DataError(
            f"{texts.place}: {len(collection.queries)} different texts{least} are too few to rank, {MIN_TEXTS} are "
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
        others if texts.is_halved and not dev and others.queries else None,
        texts.num_texts if is_sample else len(collection.documents),
        texts.files,
        {name: number for name, number in counts.items() if number},
        " ".join(_about(texts, are_pairs, len(mine), len(collection.documents))),
        are_pairs,
    )


def _about(texts: _Texts, are_pairs: bool, num_queries: int, num_documents: int) -> Iterator[str]:
    """Yield sentences for the report that say how a collection was made."""
    if are_pairs:
        yield "Each query is the first text of a held-out pair, and its document the second."
    else:
        yield (
            f"Each query is a crop of {MIN_WORDS} to {MAX_WORDS} words of a held-out text, and its document "
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
    elif texts.is_training_ranked:
        yield f"Ranked are {crop}all {num_documents:,} different texts of the dataset, those trained on included."
    else:
        alone = f": no training part is beside {texts.place}" if texts.is_halved else ""
        yield f"Ranked are {crop}these {num_documents:,} texts alone{alone}."


def _titled(parts: tuple[str, ...]) -> _Finding:
    return _Finding(parts[0], [text for text in parts[1:] if text])


def _cropped(text: str, number: int) -> _Finding:
    """Cut a query and its document from a text, by its id; a text too short for both becomes a document alone."""
    pair = crops(text, number)
    return _Finding(pair[0], pair[1:]) if pair else _Finding("", [text] if text else [])


def _collections(halves: Sequence[Iterable[_Finding]], others: Iterable[_Finding]) -> list[RetrievalSet]:
    """Make a collection for each half of the held-out texts. All collections have the same documents.

    If several queries of a half are equal, they become one query, for which the documents of all of them are relevant.

    Args:
        halves: for each half, its queries with the documents that they should find.
        others: further queries with the documents that they should find. The collections contain these documents, but
            not these queries. If such a query equals a query of a half, its documents are relevant for that query too.
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


def _texts_of_file(path: Path) -> _Texts:
    """Return the texts of a jsonl or csv file.

    All records have the field `text`. Either all records or none have the field `title`. The id of a record's texts is
    a hash of them.

    Raises:
        DataError: the file is malformed, or only some of its records have a field `text` or `title`.
        MissingDataError: the file does not exist.
    """
    texts: dict[int, tuple[str, ...]] = {}
    fields: list[str] = []
    for place, record in csv_records(path, ("text",)) if path.suffix.lower() == ".csv" else json_records(path):
        fields = fields or [name for name in ("title", "text") if name in record]
        if "text" not in fields or ("title" in record) != ("title" in fields):
            raise DataError(f"{place}: expected the fields of the first record, which must have text")
        parts = tuple(string_field(record, name, place).strip() for name in fields)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
        texts[int.from_bytes(digest, "little", signed=True)] = parts
    rows = sorted_by_hash(texts.items())
    return _Texts(path, rows[:MAX_RANKED], [], len(rows), len(rows), (path,), False, False)
