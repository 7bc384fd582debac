"""`clearspan mine`: hard negatives for a dataset of pairs or triplets, from its own texts.

    dataset ──> distinct texts ──> vectors, by a model ──> the texts nearest to each title ──┐
                             └──> BM25 ──────────────────> the texts with its words ─────────┴─> candidates
    candidates ──> negatives ──> a dataset of triplets

A title is the first text of a row. Candidates that may be relevant are left out: texts that score nearly as high
as the positive, a text that equals the title, and the positives of other rows with the same title.

The output has the ids, texts and positives of the source dataset, and replaces it in training. Held-out texts are never
read: `validation/` of the source is copied. Options and margins mean the same as in sentence-transformers'
`mine_hard_negatives`.
"""

import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from clearspan.cli.catalog import COMMANDS
from clearspan.cli.command import Result
from clearspan.common import same_text, words
from clearspan.common.compute import (
    AUTO,
    Compute,
    Device,
    Precision,
    batch_tokens_of,
    check_device,
    resolve,
    resolve_device,
)
from clearspan.common.encoder.cache import folder_of
from clearspan.common.encoder.embedder import Embedder, cache_of, encode_of, unit_vectors
from clearspan.common.encoder.fingerprint import model_sha256
from clearspan.common.encoder.folder import device_of, load_folder
from clearspan.common.encoder.pooling_names import recorded
from clearspan.common.encoder.prompts import Prompts, Sides, check_two
from clearspan.common.encoder.sentence_encoder import FolderEncoder, Pooling
from clearspan.common.errors import PipelineError, check_extra
from clearspan.common.hub import RECORD, hub_record, model_folder
from clearspan.common.model_folder import EncoderError
from clearspan.common.model_forms import check_folder
from clearspan.common.options import Flag, Json, Quiet
from clearspan.common.plain_json import Option
from clearspan.common.progress import counted, duration
from clearspan.common.terminal import as_printed, one_line, warn
from clearspan.common.typed import checked
from clearspan.retrieval.mining.choice import ChoiceOptions
from clearspan.retrieval.mining.miner import Figures, Miner, mine
from clearspan.retrieval.mining.nearest import LexicalSearch, Nearest
from clearspan.retrieval.mining.source import MiningSource
from clearspan.retrieval.scoring import ScoringOptions
from clearspan.retrieval.stemming import AUTO as AUTO_STEMMER
from clearspan.retrieval.stemming import Words, of_language, spread, versions_of, words_named
from clearspan.retrieval.topk import DECIMALS
from clearspan.shards import Manifest, held_out, storage
from clearspan.shards.command import StoreCommand, call_command
from clearspan.shards.manifest import NAME
from clearspan.shards.reader import Dataset
from clearspan.shards.schema import columns_named, numbered

VERSION = 1
"""Version of the rules for choosing negatives, increased whenever they change: part of the fingerprint."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(ChoiceOptions, ScoringOptions, StoreCommand):
    """The command `mine`: adds hard negatives to a dataset of pairs or triplets."""

    error_prefix: ClassVar[str] = "mine"
    summary: ClassVar[str] = COMMANDS["mine"].summary
    description: ClassVar[str] = (
        "Add hard negatives to a dataset of pairs or triplets: texts of other rows that a model, or BM25, ranks\n"
        "close to the relevant document of a row."
    )
    example: ClassVar[str] = "clearspan mine data/pairs --model MODEL --negatives 4 --output data/mined"

    folder: Annotated[str, Flag("PAIRS", positional=True, path=True)]
    """Dataset that `pairs` or `triplets` wrote."""
    output: Annotated[str, Flag("DIR", output=True)]
    """Folder to write: a new or empty one, or the folder of an unfinished run, which is continued."""
    model: Annotated[str | None, Flag("DIR", path=True, resolve=model_folder)] = None
    """Folder of a sentence-transformers or Hugging Face model, or hf:ORG/NAME[@REVISION], which is fetched from the hub
    (not needed if BM25 finds all negatives).
    """
    pooling: Pooling = None
    """Pooling of a plain Hugging Face model (default mean)."""
    prompt_name: Annotated[tuple[str, ...], Flag("NAME", commas=True)] = ()
    """Name of the model's prompt before every text; QUERY,DOCUMENT: two names, before titles and before texts; none: no
    prompt (default: as encode_query and encode_document choose).
    """
    candidates: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Search negatives among N texts, selected by a hash, to save time (default: among all)."""
    device: Device = AUTO
    """Device to use: cpu, cuda, cuda:1, ...; auto: cuda if there is a GPU, else cpu."""
    precision: Precision = "fp32"
    """Precision of the transformer; auto: bf16 if the hardware computes in bf16, else fp32."""
    batch_tokens: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Maximum number of tokens of a batch (default: 1024 on a CPU, 65536 on a GPU, 16384 if it has less than 36 GiB).
    """
    cache: Annotated[Path | None, Flag("DIR", output=True)] = None
    """Folder that caches embeddings across runs; none: no cache (default: embeddings/ in CLEARSPAN_CACHE or
    ~/.cache/clearspan).
    """
    quiet: Quiet = False
    """Show no progress bar."""
    json: Json = False
    """Print JSON instead of text."""

    def validate(self) -> None:
        super().validate()
        check_device(self.device)
        check_two(self.prompt_name)
        if self.model is not None:
            check_folder(self.model)
            self.prompts.sides(self.prompt_name)
        elif self.bm25 < self.negatives:
            raise ValueError(
                f"`model` DIR is missing: name a model, or let BM25 find all negatives with `bm25` {self.negatives}"
            )
        elif unused := [name for name in ("pooling", "prompt_name", "batch_tokens") if getattr(self, name)]:
            raise ValueError(f"`{unused[0]}` has no effect without `model`: leave it out")
        given = [name for name in ("stemmer", "k1", "b") if getattr(self, name) is not None]
        if given and not self.bm25:
            raise ValueError(f"`{given[0]}` has no effect without `bm25`: leave it out, or add `bm25`")

    def paths(self) -> list[str]:
        return [self.folder, self.output]

    @property
    def prompts(self) -> Prompts:
        return Prompts.read(Path(self.model)) if self.model else Prompts()

    def run(self) -> "MiningSummary":
        """Mine the negatives and write the new dataset to the output folder; return a summary.

        If the folder holds an unfinished run with the same options, that run is continued.

        Raises:
            PipelineError, OSError: negatives cannot be mined; the message says why and what to do.
            ManifestError, ShardError: the dataset is damaged.
        """
        self.use_store()
        start = time.perf_counter()
        dataset = Dataset(self.folder)
        self._check(dataset)
        compute = Compute("cpu", "fp32")
        if self.model is not None:
            compute = resolve(device_of(Path(self.model), self.device), self.precision)
        if compute.message:
            warn(compute.message)
        fingerprint = self._fingerprint(dataset, compute)
        warnings: list[str] = []

        def prepare(source: MiningSource) -> Miner:
            return self._miner(source, compute, warnings)

        manifest, figures, source = mine(dataset, self.output, fingerprint, prepare, self.quiet)
        if self.model and not self.prompt_name and (unused := self.prompts.unused("query", "document")):
            warnings.append(unused)
        shared = source.num_shared if source else None
        seconds = time.perf_counter() - start
        texts = len(source.texts) if source else None
        return MiningSummary(self.output, manifest, figures, self.negatives, texts, shared, seconds, compute, warnings)

    def _check(self, dataset: Dataset) -> None:
        """Raise PipelineError if negatives cannot be mined for a dataset.

        The error is raised if the dataset holds no pairs or triplets, is the held-out part of another dataset, or
        already has mined negatives; or if the output folder lies in the dataset's folder, or contains it.
        """
        manifest = dataset.manifest
        if manifest.kind != "triplets":
            raise PipelineError(
                f"{self.folder}: holds {manifest.kind}, not pairs: make them with `clearspan pairs` or "
                "`clearspan triplets`"
            )
        if held_out.is_held_out(manifest):
            raise PipelineError(
                f"{self.folder}: is the held-out part of a dataset, which training never reads: name the folder that "
                "contains it"
            )
        if "mining" in manifest.fingerprint.get("options", {}):
            raise PipelineError(f"{self.folder}: already has mined negatives: name the dataset from which it was made")
        if storage.is_remote(self.output) or storage.is_remote(self.folder):
            return
        source, output = Path(self.folder).resolve(), Path(self.output).resolve()
        if output.is_relative_to(source) or source.is_relative_to(output):
            raise PipelineError(
                f"`output` {self.output}: is inside {self.folder}, or contains it: choose another folder"
            )

    def _fingerprint(self, dataset: Dataset, compute: Compute) -> dict[str, Any]:
        """Return the fingerprint of the output: the fingerprint of the source dataset, extended by everything that
        affects the choice of the negatives.

        Args:
            dataset: the source dataset.
            compute: the device and the precision of the model.
        """
        before, prompts = dataset.manifest.fingerprint, dataset.manifest.prompts
        choice = {field.name: getattr(self, field.name) for field in dataclasses.fields(ChoiceOptions)}
        part = held_out.find(self.folder)
        mining = {
            "version": VERSION,
            "words": words.VERSION if self.bm25 else None,
            "source": _sha256(self.folder),
            "held_out": _sha256(part) if part else None,
            "model": model_sha256(Path(self.model)) if self.model else None,
            "pooling": recorded(self.pooling),
            "prompts": self._sides._asdict() if self.model else None,
            "device": check_device(compute.device),
            "precision": compute.precision,
            "candidates": self.candidates,
            **choice,
            **(self._bm25_record if self.bm25 else {}),
        }
        options = {**before.get("options", {}), "mining": mining}
        if prompts:
            sorts = [columns_named(sort, list(dataset.manifest.lengths)) for sort in ("positive", "negative")]
            names = [*sorts[0], *numbered("negative", len(sorts[1]) + self.negatives)]
            behind = prompts.get("positive", "")
            options["prompts"] = {"tokens": prompts.get("tokens", ""), **dict.fromkeys(names, behind)}
        own = hub_record(mining=self.model) if self.model else {}
        hub = {**before.get(RECORD, {}), **own.get(RECORD, {})}
        return {**before, "options": options, **({RECORD: hub} if hub else {})}

    @property
    def _bm25_record(self) -> dict[str, str | int | float]:
        scoring = self.scoring()
        return {**versions_of(self.stemmer or AUTO_STEMMER), "k1": scoring.k1, "b": scoring.b}

    @property
    def _sides(self) -> Sides:
        return self.prompts.sides(self.prompt_name)

    def _miner(self, source: MiningSource, compute: Compute, warnings: list[str]) -> Miner:
        """Embed the texts of a dataset if there is a model; return the object that finds negatives for the rows.

        Args:
            source: the rows and texts of the dataset.
            compute: the device and the precision of the model.
            warnings: list to which warnings about the embeddings are added, for the summary.

        Raises:
            PipelineError: the model cannot be loaded or cannot embed the texts; the message says why.
        """
        pool = self._pool(source.texts)
        lexical = LexicalSearch(source.texts, pool, self.scoring(self._words(source.texts))) if self.bm25 else None
        if self.model is None:
            return Miner(source, self, None, None, lexical)
        model = self._loaded(compute)
        by_prompt: dict[str, Embedder] = {}
        made = []
        for prompt, texts in zip(self._sides[:2], (source.titles, source.texts), strict=True):
            if prompt not in by_prompt:
                by_prompt[prompt] = self._embedder(model, prompt, compute)
            try:
                made.append(unit_vectors(by_prompt[prompt].embed(texts)))
            except EncoderError as error:
                raise PipelineError(one_line(error)) from None
        warnings += dict.fromkeys(warning for embedder in by_prompt.values() for warning in embedder.warnings())
        nearest = Nearest(made[1], pool, resolve_device(self.device))
        return Miner(source, self, made[0], nearest, lexical)

    def _words(self, texts: Sequence[str]) -> Words:
        """Return the words that BM25 compares, and print a stemmer that the user has not named."""
        words = words_named(self.stemmer or AUTO_STEMMER, lambda: spread(texts))
        if words.stemmer and not self.stemmer and not self.quiet:
            warn(of_language(words.stemmer))
        return words

    def _loaded(self, compute: Compute) -> FolderEncoder:
        assert self.model is not None
        if compute.device != "cpu":
            check_extra("embed", "torch", "sentence_transformers", feature="embedding")
        try:
            return load_folder(Path(self.model), self.pooling, compute.device, compute.precision)
        except EncoderError as error:
            raise PipelineError(one_line(error)) from None

    def _embedder(self, model: FolderEncoder, prompt: str, compute: Compute) -> Embedder:
        tokens = self.batch_tokens or batch_tokens_of(compute.device)
        return Embedder(
            encode_of(model, prompt, tokens, not self.quiet), cache_of(model, prompt, folder_of(self.cache))
        )

    def _pool(self, texts: list[str]) -> np.ndarray | None:
        """Return, in ascending order, the indices of the texts among which negatives are searched; None to search all
        texts.

        If the option `candidates` limits their number, they are the texts with the smallest hashes.
        """
        if self.candidates is None or self.candidates >= len(texts):
            return None
        hashes = same_text.digests(texts)
        return np.sort(np.lexsort((hashes[:, 1], hashes[:, 0]))[: self.candidates])


def _sha256(folder: str) -> str:
    return hashlib.sha256(storage.read_bytes(storage.join(folder, NAME))).hexdigest()


@dataclasses.dataclass(frozen=True)
class MiningSummary(Result):
    """Summary of a run that mined negatives.

    Attributes:
        output: the output folder.
        manifest: the manifest of the new dataset.
        figures: counts of rows, positives and negatives, and sums of the scores.
        wanted: the number of negatives that each row should have got.
        num_texts: number of distinct texts that are a positive or a negative of a row; None if the dataset was
            already finished before this run.
        num_shared: number of rows whose first text is also the first text of another row; None if the dataset was
            already finished.
        seconds: the duration of the run.
        compute: the device and the precision of the model.
        warnings: warnings for the user, such as about a prompt of the model that is not used.
    """

    output: str
    manifest: Manifest
    figures: Figures
    wanted: int
    num_texts: int | None
    num_shared: int | None
    seconds: float
    compute: Compute
    warnings: list[str]

    @property
    def mean_positive(self) -> float | None:
        return self.figures.positive / self.figures.positives / 10**DECIMALS if self.figures.positives else None

    @property
    def mean_negative(self) -> float | None:
        return self.figures.negative / self.figures.negatives / 10**DECIMALS if self.figures.negatives else None

    def to_json(self) -> str:
        """Return the summary as one line of JSON."""
        figures = self.figures
        record = {
            "output": self.output,
            "rows": figures.rows,
            "texts": self.num_texts,
            "negatives": figures.negatives,
            "rows_by_negatives": figures.by_number,
            "left_out": figures.left_out,
            "rows_with_shared_title": self.num_shared,
            "mean_score": {"positive": self.mean_positive, "negative": self.mean_negative},
            "warnings": self.warnings,
            "seconds": round(self.seconds, 3),
        }
        return json.dumps(record)

    def __str__(self) -> str:
        figures = self.figures
        full = figures.by_number.get(str(self.wanted), 0)
        none = figures.by_number.get("0", 0)
        fewer = figures.rows - full - none
        lines = [
            f"{self.output}: triplets, {len(self.manifest.shards):,} shards, {self.manifest.totals['bytes']:,} bytes",
            f"  {counted(figures.rows, 'row')}: {full:,} with {counted(self.wanted, 'negative')}, {fewer:,} with "
            f"fewer, {none:,} with none",
        ]
        if self.num_texts is not None:
            lines.append(f"  from {counted(self.num_texts, 'distinct text')}; {self.num_shared:,} rows share a title")
        if out := [f"{number:,} by `{name}`" for name, number in figures.left_out.items()]:
            lines.append(f"  near texts left out, since they may be right too: {', '.join(out)}")
        if self.mean_positive is not None and self.mean_negative is not None:
            means = f"positives {self.mean_positive:.3f}, negatives {self.mean_negative:.3f}"
            lines.append(f"  mean score of {means}")
        lines += [f"  {warning}" for warning in self.warnings]
        is_new = self.num_texts is not None
        lines.append(f"  {duration(self.seconds)}" if is_new else "  was already finished: nothing to do")
        return as_printed("\n".join(lines))


@checked
def mine_negatives(
    pairs: str | Path,
    output: str | Path,
    *,
    model: str | Path | None = None,
    negatives: int = 4,
    bm25: int = 0,
    quiet: bool = False,
    **options: Option,
) -> Dataset:
    """Add hard negatives to the rows of a dataset of pairs or triplets; return the result as a new dataset.

    The hard negatives are chosen from the texts of this dataset. A call that was stopped continues when it is repeated.

    Args:
        pairs: a dataset that `make_dataset("pairs", ...)` or `make_dataset("triplets", ...)` made.
        output: a new or empty folder, or the folder of an earlier, identical call to continue.
        model: the folder of the model that finds the negatives; not needed if BM25 finds all of them.
        negatives: number of hard negatives to add to each row.
        bm25: number of these negatives that BM25 finds instead of the model.
        quiet: print no summary.
        options: options of `clearspan mine --help`, with underscores in their names: `relative_margin=0.1`,
            `sampling_strategy="random"`.

    Raises:
        UsageError: an option is unknown or cannot work.
        PipelineError: the negatives cannot be mined; the message says why and what to do.
    """
    own = {"folder": pairs, "output": output, "model": model, "negatives": negatives, "bm25": bm25}
    call_command(Mine, own, options, quiet)
    return Dataset(output)


main = Mine.main


if __name__ == "__main__":
    sys.exit(main())
