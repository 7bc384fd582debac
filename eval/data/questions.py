"""Make a retrieval collection from a user's questions (`--queries FILE`) and all texts of a dataset.

    FILE: question, answer ──┐
    the dataset's texts ─────┴──> the position of each answer among the texts ──> RetrievalSet

An answer is tokenized, cut and decoded like the texts of the dataset, and then compared with them: letter case, white
space and Unicode form do not matter (`common.same_text`). An answer may be missing from the dataset, for example
because it was dropped as a near-duplicate. A row of FILE with such an answer is left out and counted. FILE cannot refer
to a text by the id that the text had in the input, because a dataset of token ids does not store these ids.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clearspan.common import same_text
from clearspan.common.progress import counted
from clearspan.common.queries import Query, read_queries
from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data.dataset_texts import DatasetTexts
from clearspan.eval.data.heldout_data import MAX_RANKED, HeldOutTexts
from clearspan.eval.data.heldout_folders import training_part
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.shards import held_out
from clearspan.shards.manifest import NAME as MANIFEST

NAMED = 3
"""The most rows that a message names."""


def read_questions(path: Path, data: Path) -> HeldOutTexts:
    """Make a retrieval collection from a file of questions and their answers. Its documents are the texts of a dataset.

    The texts of the dataset and of its held-out part are ranked. If one of the two has more than a million texts
    (`MAX_RANKED`), only a sample of a million of its texts is ranked, and the answers that are among its other texts.
    Questions whose answers are not in the dataset are left out and counted.

    Args:
        path: a csv, tsv or jsonl file with the columns or fields `query`, a question, and `text`, its answer.
        data: the folder of the dataset, or of its held-out part.

    Raises:
        DataError: the file or the dataset is malformed, a question has no answer or refers to its answer by an id, or
            no answer is in the dataset.
        MissingDataError: `data` is not a dataset.
    """
    queries = read_queries(path)
    if without := [query.place for query in queries if not query.has_answer]:
        raise DataError(
            f"{without[0]}: names no relevant document ({counted(len(without), 'such row')}): add the column text"
        )
    if by_id := next((query.place for query in queries if query.answer_id is not None), None):
        raise DataError(
            f"{by_id}: names a text by its id, but a dataset of tokens stores no ids: add the column text, or rank in "
            "a collection with `clearspan search --queries`"
        )
    if not held_out.is_dataset(str(data)):
        raise MissingDataError(
            f"{data} is not a dataset of shards ({MANIFEST}): name the dataset in which the answers of {path} are "
            "ranked"
        )
    whole = training_part(data) or data
    folders = list(map(Path, held_out.parts(str(whole))))
    datasets = [DatasetTexts(folder, MAX_RANKED) for folder in folders]
    documents, places = _ranked(queries, datasets)
    answered: dict[bytes, tuple[str, set[int]]] = {}
    missing = []
    for query in queries:
        place = places.get(same_text.digest(datasets[0].round_trip(query.answer_text or "")))
        if place is None:
            missing.append(query.place)
        else:
            answered.setdefault(same_text.digest(query.text), (query.text, set()))[1].add(place)
    named = ", ".join([*missing[:NAMED], "..."] if len(missing) > NAMED else missing)
    if not answered:
        raise DataError(
            f"{path}: no answer is a text of {whole} ({named}): write the texts as in the inputs of the dataset"
        )
    relevant = [np.array(sorted(positions), np.int64) for _, positions in answered.values()]
    grades = [np.ones(len(each), np.int64) for each in relevant]
    num_texts = sum(map(len, datasets))
    is_sample = num_texts > sum(min(len(dataset), MAX_RANKED) for dataset in datasets)
    about = f"Ranked are {'' if is_sample else 'all '}{len(documents):,} different texts of the dataset"
    about += f", a sample of its {num_texts:,} that holds the relevant ones." if is_sample else "."
    if missing:
        about += f" Left out: {counted(len(missing), 'row')} whose answer is no text of the dataset: {named}."
    return HeldOutTexts(
        RetrievalSet(documents, [text for text, _ in answered.values()], relevant, grades),
        None,
        num_texts if is_sample else len(documents),
        (path, *(folder / MANIFEST for folder in folders)),
        {"left out (answer not in the dataset)": len(missing)} if missing else {},
        about,
    )


def _ranked(queries: Sequence[Query], datasets: Sequence[DatasetTexts]) -> tuple[list[str], dict[bytes, int]]:
    """Return the different texts to rank, and a dict from the hash of each text to its position among them.

    The texts of all datasets are ranked. If a dataset has more than a million examples (`MAX_RANKED`), the texts of a
    sample of a million are ranked, and also the answers that the dataset holds. In a dataset of triplets, only the
    positives are ranked.

    The hash is `same_text.digest`: it is the same for texts that differ only in letter case, white space or Unicode
    form. Such texts are returned once.

    Args:
        queries: the questions with their answers.
        datasets: readers of the dataset and of its held-out part, or of one of them. A reader yields at most
            `MAX_RANKED` examples.
    """
    documents: list[str] = []
    places: dict[bytes, int] = {}
    answers = {same_text.digest(datasets[0].round_trip(query.answer_text or "")) for query in queries}
    for dataset in datasets:
        passes = [(dataset, False)]
        if len(dataset) > MAX_RANKED:
            passes.append((DatasetTexts(dataset.folder, len(dataset)), True))
        for texts, are_answers in passes:
            for _, parts in texts:
                for text in parts[1:] or parts:
                    digest = same_text.digest(text)
                    if are_answers and digest not in answers:
                        continue
                    place = places.setdefault(digest, len(places))
                    if place == len(documents):
                        documents.append(text)
    return documents, places
