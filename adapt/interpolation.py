"""Choose how much of the training to keep: the share of the trained weights, the rest being those before training.

    the model before training ─┐                  dev titles, a sample of the texts
                               ├──> share 0, 1/4, 1/2 ──> MRR with BM25 ──> DIR/model, DIR/shares.json
    the trained model ─────────┘

What titles teach is not always what questions ask: on five collections, half of the trained weights finds questions
better than all of them (docs/adapt-figures.md, "Questions"). So half of them is taken, or a quarter or none if the MRR
on the dev half of the held-out titles is better by more than one standard error. The other half of the titles, by which
the verdict judges, chooses nothing. If a user has 50 questions or more, these choose a share of their own, in the
verdict (`adapt.judging`).
"""

import dataclasses
import itertools
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.common import files, words
from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.checksummed_folder import FolderChangedError, set_aside
from clearspan.common.compute import AUTO, Precision, resolve
from clearspan.common.encoder.cache import folder_of
from clearspan.common.encoder.fingerprint import digest, model_sha256
from clearspan.common.errors import PipelineError
from clearspan.common.hub import model_folder
from clearspan.common.model_folder import EncoderError
from clearspan.common.options import Flag
from clearspan.common.records import DataError
from clearspan.common.terminal import notice
from clearspan.eval.data import heldout_data
from clearspan.eval.data.heldout_folders import held_out_part
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.load import load_encoder
from clearspan.eval.models.prompted import Prompted
from clearspan.retrieval.hybrid import CombinedVectors
from clearspan.retrieval.stemming import NO_STEMMER, STEMMERS, versions_of
from clearspan.shards import held_out
from clearspan.train.interpolate import interpolate
from clearspan.train.run_folder import check_model

VERSION = 1
"""Version of how a share is chosen, increased whenever that changes."""
SHARES = (0.0, 0.25, 0.5)
"""Shares of the trained weights to choose from."""
MAX_QUERIES, MAX_TEXTS = 500, 2000
"""Most dev queries, and most texts, by which the share is chosen: each share is a model that embeds them."""
MODEL, CHOICE = "model", "shares.json"
"""Names in the output folder."""


@dataclass(frozen=True, kw_only=True)
class Interpolation(Command):
    """Command that interpolates a trained model with the model before training, by held-out texts."""

    error_prefix: ClassVar[str] = "interpolate"
    expected: ClassVar[Errors] = (DataError, EncoderError, PipelineError, ValueError, OSError)

    data: Annotated[Path, Flag("DIR")]
    """Dataset with a held-out part."""
    start: Annotated[Path, Flag("DIR", resolve=model_folder)]
    """Folder of the model from which training started."""
    trained: Annotated[Path, Flag("DIR")]
    """Folder of the model that was trained on the dataset."""
    share: Annotated[float | None, Flag("F"), Ge(0), Le(1)] = None
    """Share of the trained weights (default: chosen by the held-out texts)."""
    stemmer: Annotated[str | None, Flag("LANGUAGE", choices=STEMMERS)] = None
    """Language whose word endings BM25 ignores."""
    prompt_name: Annotated[tuple[str, ...], Flag("NAME", commas=True)] = ()
    """Names of the models' prompts, as for `clearspan eval`."""
    precision: Precision = "fp32"
    """Precision of the transformer; auto: bf16 if the hardware computes in bf16, else fp32."""
    output: Annotated[Path, Flag("DIR")]
    """Folder to write."""

    def run(self) -> Result:
        """Choose a share, and write the model with this share of the trained weights, and the scores of all shares.

        Do nothing if the folder already has the model of the same inputs and options, undamaged.
        """
        return Printed(write_model(self))


@dataclass(frozen=True)
class Shares:
    """The content of shares.json.

    Attributes:
        share: the share of the trained weights in the model.
        mrr: for each share, the MRR on the dev queries with BM25, in percent, with the weight that is best for it;
            empty if the user gave the share.
        num_queries, num_texts: the number of dev queries, and of the texts that were ranked.
    """

    share: float
    mrr: Mapping[str, float] = dataclasses.field(default_factory=dict)
    num_queries: int = 0
    num_texts: int = 0

    def __str__(self) -> str:
        scores = ", ".join(f"{share} {mrr:.1f}" for share, mrr in self.mrr.items())
        return (
            f"share of the trained weights: {self.share:g}; MRR of {self.num_queries:,} held-out texts among "
            f"{self.num_texts:,}, with BM25, by share: {scores}"
        )


def write_model(options: Interpolation) -> str:
    """Choose a share and write the model, unless the folder has it already; return a line on the choice, or ""."""
    inputs = fingerprint(options)
    model, choice = options.output / MODEL, options.output / CHOICE
    try:
        if load_checksummed(choice.read_bytes())["inputs"] == inputs:
            check_model(model)
            return ""
    except FileNotFoundError:
        pass
    except (FolderChangedError, ValueError, KeyError) as error:
        notice(f"{error}: the share is chosen again")
    files.remove_temporaries(options.output)
    options.output.mkdir(parents=True, exist_ok=True)
    with files.temporary_folder(options.output) as folder:
        chosen = choose(options, Path(folder)) if options.share is None else Shares(options.share)
        made = Path(folder, f"{chosen.share:g}")
        if not made.is_dir():
            interpolate(options.start, options.trained, chosen.share, made)
        choice.unlink(missing_ok=True)  # from here on, the folder has no choice until it has the model of this one
        if model.exists():
            try:
                check_model(model)
                shutil.rmtree(model)
            except FolderChangedError as error:
                notice(f"{error} (moved to {set_aside(model)})")
        made.rename(model)
    record = {"inputs": inputs, **dataclasses.asdict(chosen)}
    files.write_bytes(choice, dump_checksummed(json.loads(json.dumps(record)), indent=1))
    return str(chosen) if options.share is None else ""


def choose(options: Interpolation, folder: Path) -> Shares:
    """Rank a sample of the texts for the dev queries with each share; return the choice.

    Args:
        folder: an empty folder, in which each model gets the name of its share, such as 0.5; none is made of share 0.
    """
    sample = heldout_data.read(held_out_part(options.data)).required_dev().sample(MAX_QUERIES, MAX_TEXTS)
    by_words = Lexical(f"bm25:{options.stemmer or NO_STEMMER}").ranking(sample.queries, sample.documents)
    compute = resolve(AUTO, options.precision)
    by_share = []
    for share in SHARES:
        model = folder / f"{share:g}" if share else options.start
        if share:
            interpolate(options.start, options.trained, share, model)
        encoder = load_encoder(str(model), None, compute.precision, compute.device)
        cache = None if share else folder_of(None)
        similarity = Prompted.of(encoder, options.prompt_name, cache, None, sys.stderr.isatty())
        vectors = similarity.ranking(sample.queries, sample.documents)
        by_weight = CombinedVectors.of(vectors, by_words).reciprocal_ranks(sample)
        by_share.append(by_weight[by_weight.mean(axis=1).round(12).argmax()])
    scores = {f"{share:g}": 100 * float(ranks.mean()) for share, ranks in zip(SHARES, by_share, strict=True)}
    return Shares(largest_good(np.array(by_share)), scores, len(sample.queries), len(sample.documents))


def largest_good(reciprocal_ranks: NDArray[np.float64]) -> float:
    """Return the largest share whose MRR is within one standard error of the best.

    Args:
        reciprocal_ranks: the reciprocal rank of each of m queries with each of the SHARES, (3, m). The standard error
            is that of the differences from the best share, since all shares have the same queries.
    """
    if reciprocal_ranks.shape[1] < 2:  # which have no standard error
        return SHARES[-1]
    best = reciprocal_ranks[reciprocal_ranks.mean(axis=1).round(12).argmax()]
    lost = best - reciprocal_ranks
    errors = lost.std(axis=1, ddof=1) / np.sqrt(lost.shape[1])
    return max(itertools.compress(SHARES, lost.mean(axis=1).round(12) <= errors))


def fingerprint(options: Interpolation) -> str:
    """Return a hash of everything that the choice depends on: models, dataset and options."""
    models = [model_sha256(folder) for folder in (options.start, options.trained)]
    parts = held_out.manifest_sha256s(options.data)
    how: dict[str, Any] = {"prompts": options.prompt_name, "precision": options.precision, "share": options.share}
    how |= {"words": words.VERSION, **versions_of(options.stemmer or NO_STEMMER)}
    return digest(version=VERSION, models=models, data=parts, **how)


main = Interpolation.main


if __name__ == "__main__":
    sys.exit(main())
