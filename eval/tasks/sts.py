"""Semantic textual similarity (STS): correlate the cosine of each pair's embeddings with human judgments.

    pairs ──> cosine of each pair ──> Pearson and Spearman correlation of each subset ──> one main score for each task

The tasks are STS12 to STS16, which have several subsets each; STS-B and SICK-R, which have a test and a dev split;
STS-B in other languages; and the user's own pairs (`--pairs FILE`).

This is the unsupervised protocol of SimCSE's fork of SentEval: nothing is fitted. The original SentEval trains a
regressor on STS-B and SICK-R (`eval.tasks.relatedness`), so its scores differ.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.delimited import TABLE_SUFFIXES
from clearspan.common.encoder.embedder import Encode
from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data.senteval import find_downstream
from clearspan.eval.data.sts_data import ScoredPairs, read_pairs, read_sick, read_sts_subset, read_stsb
from clearspan.eval.details import Details, Table
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.similarity import Similarity
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import Family, Loaded, Task, TaskContext, load_each
from clearspan.retrieval.products import Floats

# STS13 lacks its fourth subset, SMT, whose license keeps it out of SentEval's data.
YEARS: dict[str, tuple[str, ...]] = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SPLITS = {
    "STSBenchmark": (
        Path("STS", "STSBenchmark"),
        read_stsb,
        {"test": "sts-test.csv", "dev": "sts-dev.csv", "train": "sts-train.csv"},
    ),
    "SICKRelatedness": (
        Path("SICK"),
        read_sick,
        {"test": "SICK_test_annotated.txt", "dev": "SICK_trial.txt", "train": "SICK_train.txt"},
    ),
}


def correlations(cosine: Floats, gold: Floats) -> dict[str, float]:
    """Return the correlations `pearson` and `spearman` of n pairs' cosines with their gold scores, in percent.

    Both are NaN if n < 2, or if all cosines or all gold scores are equal.

    Args:
        cosine: the cosine of each pair, (n,).
        gold: the gold score of each pair, (n,).
    """
    return {metric: figure(Examples.of(metric, cosine, gold)) for metric in ("pearson", "spearman")}


def aggregate(subsets: Mapping[str, tuple[Floats, Floats]]) -> dict[str, float]:
    """Return the scores of an STS year (STS12 to STS16), in percent: its subsets' correlations, combined in three ways.

    `pearson_all` and `spearman_all` are the correlations over the pairs of all subsets together (as in SBERT and
    SimCSE); `pearson_mean` and `spearman_mean` are the means of the subsets' correlations (SentEval, DeCLUTR);
    `pearson_wmean` and `spearman_wmean` are these means, weighted by the subsets' numbers of pairs (SentEval,
    BERT-flow).

    Args:
        subsets: name of a subset -> the cosines and the gold scores of its n pairs, (n,) each.
    """
    per_subset = [correlations(cosine, gold) for cosine, gold in subsets.values()]
    sizes = [len(gold) for _, gold in subsets.values()]
    together = correlations(*(np.concatenate(arrays) for arrays in zip(*subsets.values(), strict=True)))
    scores = {}
    for metric in ("spearman", "pearson"):
        values = [subset[metric] for subset in per_subset]
        scores[f"{metric}_all"] = together[metric]
        scores[f"{metric}_mean"] = float(np.mean(values))
        scores[f"{metric}_wmean"] = float(np.average(values, weights=sizes))
    return scores


def read_stsb_dev(data: str | Path) -> ScoredPairs:
    """Read STS-B's dev split from a SentEval data folder, or the pairs of the user's own csv or tsv file.

    Args:
        data: the SentEval data folder, or the user's file.

    Raises:
        MissingDataError: the file to read does not exist.
        DataError: the file is malformed.
    """
    path = stsb_dev_file(data)
    return read_pairs(path) if path == Path(data) else SPLITS["STSBenchmark"][1](path)


def stsb_dev_file(data: str | Path) -> Path:
    """Return the path of the file with STS-B's dev split, or with the user's own pairs. The file need not exist.

    Args:
        data: a SentEval data folder; or the user's file, which is returned as a path. `data` is the user's file if it
            exists as a file, or if its name ends with `.csv` or `.tsv` and it is not a folder.

    Raises:
        MissingDataError: `data` is not the user's file, and is not a SentEval data folder.
    """
    data = Path(data)
    if data.is_file() or (data.suffix.lower() in TABLE_SUFFIXES and not data.is_dir()):
        return data
    return _split_file(data, "STSBenchmark", "dev")


def _split_file(data: Path, task: str, split: str) -> Path:
    folder, _, names = SPLITS[task]
    return find_downstream(data) / folder / names[split]


def read_all_splits(data: Path, task: str) -> tuple[dict[str, ScoredPairs], tuple[Path, ...]]:
    """Read the splits `train`, `dev` and `test` of a task from a SentEval data folder.

    Args:
        task: the name of the task, `STSBenchmark` or `SICKRelatedness`.

    Returns:
        (Name of a split -> its pairs, the paths of the three files).

    Raises:
        MissingDataError: one of the three splits is missing.
        DataError: a file is malformed.
    """
    files = {split: _split_file(data, task, split) for split in ("train", "dev", "test")}
    return {split: SPLITS[task][1](file) for split, file in files.items()}, tuple(files.values())


def pairs_spearman(encode: Encode, pairs: ScoredPairs) -> float:
    """Return the Spearman correlation of the pairs' cosines with their gold scores, in percent.

    It is NaN if all cosines are equal, because the embeddings have collapsed. SimCSE chooses the best checkpoint by
    this correlation on STS-B's dev split.

    Args:
        encode: function from n texts to their embeddings, (n, dim).
        pairs: the pairs with their gold scores.
    """
    return correlations(_similarities({"dev": pairs}, EmbeddingSimilarity(encode))["dev"], pairs.gold)["spearman"]


@dataclass(frozen=True)
class StsTask:
    """A task of semantic textual similarity.

    Attributes:
        name: the name of the task.
        subsets: name of a subset -> its pairs. An STS year (STS12 to STS16) has subsets such as `headlines`; its scores
            combine the correlations of all of them. STS-B, SICK-R and the user's pairs have the subset `test`, whose
            correlations are the main scores, and may have the subset `dev`.
        files: the paths of the data files.
    """

    name: str
    subsets: dict[str, ScoredPairs]
    files: tuple[Path, ...] = ()

    def score(self, run: TaskContext) -> TaskScores:
        """Return the correlations of the pairs' similarities with their gold scores, in percent.

        The scores of an STS year combine the correlations of its subsets: `spearman_all`, `pearson_mean`, etc.
        (`aggregate`). Any other task has the scores `spearman` and `pearson` of its subset `test`; if it has the subset
        `dev`, it also has the scores `spearman_dev` and `pearson_dev`.

        Raises:
            UnscoredError: the model cannot compare pairs of texts, for example because it can only rank documents.
        """
        cosine = _similarities(self.subsets, run.embedder)
        by_subset = {subset: correlations(cosine[subset], pairs.gold) for subset, pairs in self.subsets.items()}
        if "test" in self.subsets:
            scores = {
                f"{metric}{'' if subset == 'test' else f'_{subset}'}": values[metric]
                for subset, values in by_subset.items()
                for metric in ("spearman", "pearson")
            }
            headline = tuple(metric for metric in scores if metric.startswith("spearman"))
            examples = {"spearman": Examples.of("spearman", cosine["test"], self.subsets["test"].gold)}
        else:
            scores = aggregate({subset: (cosine[subset], pairs.gold) for subset, pairs in self.subsets.items()})
            headline = ("spearman_all", "spearman_mean", "spearman_wmean")
            predicted = np.concatenate(list(cosine.values()))
            gold = np.concatenate([pairs.gold for pairs in self.subsets.values()])
            groups = np.repeat(np.arange(len(self.subsets)), [len(pairs) for pairs in self.subsets.values()])
            examples = {
                "spearman_all": Examples.of("spearman", predicted, gold),
                "spearman_mean": Examples.of("spearman", predicted, gold, groups),
            }
        undefined = [
            f"{subset}: undefined, since there are fewer than two pairs, or all have the same score or the same "
            f"{run.embedder.measure}."
            for subset, values in by_subset.items()
            if np.isnan(values["spearman"])
        ]
        sizes = {subset: len(pairs) for subset, pairs in self.subsets.items()}
        rows = [(subset, sizes[subset], each["spearman"], each["pearson"]) for subset, each in by_subset.items()]
        return TaskScores(
            scores=scores,
            main=headline[0],
            headline=headline,
            counts={"pairs": sum(size for subset, size in sizes.items() if subset != "dev")},
            details=Details("\n\n".join(undefined), [Table(("subset", "pairs", "Spearman", "Pearson"), rows)]),
            subsets={subset: {**values, "num_pairs": sizes[subset]} for subset, values in by_subset.items()},
            examples=examples,
        )


def load(data: Path) -> Loaded:
    """Read STS12 to STS16, STS-B and SICK-R from a SentEval data folder.

    If the file of a task's test split or of one subset of a year does not exist, the whole task is left out, and
    `Loaded.missing` has the reason. The scores of a year without one of its subsets would not be comparable with
    published scores.

    Raises:
        DataError: a file is malformed.
    """
    years = load_each({year: partial(_read_year, data, year) for year in YEARS})
    return years.joined(_load_splits(task, SPLITS[task][1], partial(_split_file, data, task)) for task in SPLITS)


def load_languages(data: Path) -> Loaded:
    """Read STS-B in all languages that a data folder has. The name of a task is, for example, `stsb/de`.

    The files are in `data/stsb_multi_mt`, or in `data` itself if there is no such folder. A language without a test
    split is left out, and `Loaded.missing` has the reason. It also has a reason if there is no language at all.

    Raises:
        DataError: a file is malformed.
    """
    folder = data / "stsb_multi_mt" if (data / "stsb_multi_mt").is_dir() else data
    names = [re.fullmatch(r"stsb-(.+)-(test|dev)\.csv", path.name) for path in folder.glob("stsb-*.csv")]
    languages = sorted({name[1] for name in names if name})
    if not languages:
        return Loaded([], {"stsb-multilingual": f"no stsb-<language>-test.csv in {folder}"})

    def of(language: str) -> Loaded:
        return _load_splits(f"stsb/{language}", read_pairs, lambda split: folder / f"stsb-{language}-{split}.csv")

    return Loaded([], {}).joined(map(of, languages))


def load_pairs(paths: Sequence[Path]) -> list[Task]:
    """Read the user's files of pairs (`eval.data.sts_data.read_pairs`), and return one task for each file.

    The name of a task is `pairs/` followed by the name of its file without the suffix: `pairs/dev`. Where several tasks
    would have the same name, the suffix is kept, and then parent folders are put before the name of the file, until all
    names differ: `pairs/de/dev.csv`, `pairs/fr/dev.csv`.

    Raises:
        MissingDataError: a file does not exist.
        DataError: a row is malformed, or a file is given twice.
    """
    resolved = [path.resolve() for path in paths]
    if twice := next((path for path, real in zip(paths, resolved, strict=True) if resolved.count(real) > 1), None):
        raise DataError(f"{twice} is given twice: leave one out")
    names = [path.stem for path in paths]
    depth = 1
    while clashing := [i for i, name in enumerate(names) if names.count(name) > 1]:
        for i in clashing:
            names[i] = "/".join(paths[i].absolute().parts[-depth:])
        depth += 1
    return [
        StsTask(f"pairs/{name}", {"test": read_pairs(path)}, (path,)) for name, path in zip(names, paths, strict=True)
    ]


FAMILY = Family(load, "DIR/downstream/STS/... and DIR/downstream/SICK/, SentEval's layout; by cosine similarity")
LANGUAGES = Family(load_languages, "DIR/stsb_multi_mt/stsb-<language>-{test,dev}.csv; by cosine similarity")


def _read_year(data: Path, year: str) -> StsTask:
    folder = find_downstream(data) / "STS" / f"{year}-en-test"
    subsets = {subset: read_sts_subset(folder, subset) for subset in YEARS[year]}
    files = tuple(folder / f"STS.{kind}.{subset}.txt" for subset in subsets for kind in ("input", "gs"))
    return StsTask(year, subsets, files)


def _load_splits(name: str, read: Callable[[Path], ScoredPairs], file_of: Callable[[str], Path]) -> Loaded:
    """Read one task: the file of its `test` split, and the file of its `dev` split if there is one.

    Args:
        read: function that reads the pairs of a file.
        file_of: function from the name of a split to the path of its file.

    Returns:
        The task; there is none if its `test` split is missing. `missing` has the reason for a missing `test` or `dev`
        split.

    Raises:
        DataError: a file is malformed.
    """
    splits: dict[str, ScoredPairs] = {}
    missing: dict[str, str] = {}
    for split in ("test", "dev"):
        try:
            splits[split] = read(file_of(split))
        except MissingDataError as error:
            missing[name if split == "test" else f"{name} {split}"] = str(error)
        if "test" not in splits:
            return Loaded([], missing)
    return Loaded([StsTask(name, splits, tuple(map(file_of, splits)))], missing)


def _similarities(subsets: Mapping[str, ScoredPairs], model: Similarity) -> dict[str, NDArray[np.float64]]:
    return model.pairs({name: (pairs.left, pairs.right) for name, pairs in subsets.items()})
