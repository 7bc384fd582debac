"""Rank the texts of a collection with BM25 and with models, and write to a file which of them finds the texts best.

    dataset, models, questions ──> eval.verdict.judge ──> verdict.json: held_out, questions
    the model before training ─┐
    all of the trained weights ┴──> 1/4, 1/2 and all of them, of which 50 questions or more choose one

The file is checksummed, and holds a fingerprint of everything on which the verdicts depend. If the file exists and has
the fingerprint of the current inputs, the verdicts are not computed again. Embeddings that mining or an earlier call
has computed come from the cache. A verdict of an earlier version stays, too, with the k1 and b that it had: its folder
is searched as it was.
"""

import dataclasses
import functools
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from clearspan.adapt.options import UNTRAINED
from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.common import files, words
from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.checksummed_folder import FolderChangedError, set_aside
from clearspan.common.compute import AUTO, Precision, resolve
from clearspan.common.encoder.cache import folder_of
from clearspan.common.encoder.fingerprint import digest, model_sha256
from clearspan.common.encoder.sentence_encoder import Encoder, FolderEncoder
from clearspan.common.errors import PipelineError
from clearspan.common.files import sha256
from clearspan.common.hub import model_folder
from clearspan.common.model_folder import EncoderError
from clearspan.common.options import Flag
from clearspan.common.queries import read_queries
from clearspan.common.records import DataError
from clearspan.common.terminal import notice
from clearspan.eval.tasks.queries import FEW
from clearspan.eval.verdict import TRAINED, Candidate, Verdict, judge
from clearspan.pipelines.text.chunks import Chunker
from clearspan.retrieval.ranks import Chunks
from clearspan.retrieval.stemming import STEMMERS, versions_of
from clearspan.shards import held_out
from clearspan.train.interpolate import interpolate, is_interpolated, share_of
from clearspan.train.run_folder import check_model

VERSION = 3
"""Version of how a verdict is reached, increased whenever that changes."""
EARLIER = 2
"""The version of verdicts whose k1 and b were not chosen, and whose fingerprints had no versions of a stemmer."""
QUESTION_SHARES = (0.25, 0.5, 1.0)
"""Shares of the trained weights of which the questions choose one: the model before training takes part by itself."""
BLOCK_TEXTS = 8192
"""Number of documents that are cut into chunks at a time."""


def named_folder(value: str) -> str:
    """Return NAME=DIR with the folder of a model of the hub in place of its reference."""
    name, equals, folder = value.partition("=")
    return f"{name}{equals}{model_folder(folder)}"


@dataclass(frozen=True, kw_only=True)
class Judging(Command):
    """Command that ranks the texts of a collection with each system, and writes which system finds them best."""

    error_prefix: ClassVar[str] = "judge"
    expected: ClassVar[Errors] = (DataError, EncoderError, PipelineError, ValueError, OSError)

    data: Annotated[Path, Flag("DIR")]
    """Dataset with a held-out part."""
    trained: Annotated[Path, Flag("DIR")]
    """Folder of the model that was trained on the dataset."""
    untrained: Annotated[tuple[str, ...], Flag("NAME=DIR", resolve=named_folder)] = ()
    """Base model to compare, which needs no training here, and its name; may be repeated."""
    stemmer: Annotated[str | None, Flag("LANGUAGE", choices=STEMMERS)] = None
    """Language whose word endings BM25 ignores."""
    queries: Annotated[Path | None, Flag("FILE")] = None
    """File of questions with their texts, to judge by as well."""
    start: Annotated[Path | None, Flag("DIR", resolve=model_folder)] = None
    """Model before training, for 50 questions or more to choose the share of the trained weights."""
    exported: Annotated[Path | None, Flag("DIR")] = None
    """Model with all of the trained weights, as training exported it."""
    shares: Annotated[Path | None, Flag("DIR")] = None
    """Folder to which the models with the shares 0.25 and 0.5 are written."""
    prompt_name: Annotated[tuple[str, ...], Flag("NAME", commas=True)] = ()
    """Names of the models' prompts, as for `clearspan eval`."""
    chunk_tokens: Annotated[int | None, Flag("N"), Ge(8)] = None
    """Rank texts by their best chunk of at most N tokens."""
    precision: Precision = "fp32"
    """Precision of the transformer; auto: bf16 if the hardware computes in bf16, else fp32."""
    output: Annotated[Path, Flag("FILE")]
    """File to write."""

    @property
    def candidates(self) -> list[Candidate]:
        """The models to compare: the trained model first, then the models that need no training."""
        named = [each.partition("=") for each in self.untrained]
        about = {UNTRAINED: "a static encoder before training"}
        untrained = [Candidate(name, path, about.get(name, f"{name}, the base model")) for name, _, path in named]
        return [_trained(self.trained, share_of(self.trained)), *untrained]

    @property
    def choose_share(self) -> bool:
        """Return whether there are at least 50 questions (`FEW`), which then choose the share of trained weights."""
        if None in (self.start, self.exported, self.shares) or self.queries is None:
            return False
        return len({query.text for query in read_queries(self.queries)}) >= FEW

    def run(self) -> Result:
        """Rank the systems and write the verdicts to the file `output`.

        Do nothing if that file already has verdicts on the same models, dataset, questions and options.
        """
        write_verdicts(self)
        return Printed()


def _trained(folder: Path, share: float) -> Candidate:
    about = "trained on these texts"
    if share == 0:
        about = "the model before training: held-out texts are not found better with trained weights"
    elif share != 1:
        about += f", with {share:g} of the trained weights and {1 - share:g} of those before training"
    return Candidate(TRAINED, str(folder), about, is_trained=True)


def candidates_for_questions(options: Judging) -> list[Candidate]:
    """Return the models to compare by the questions: if these are at least 50, the trained model has several shares."""
    trained, *untrained = options.candidates
    shares = write_shares(options)
    variants = [replace(_trained(folder, share), share=share) for share, folder in shares.items()]
    return [*(variants or [trained]), *untrained]


def write_shares(options: Judging) -> dict[float, Path]:
    """Write the models of the shares that the questions choose from, unless undamaged copies exist.

    Returns:
        The share -> the folder of the model, the share of `options.trained` first; {} if there is no choice.
    """
    if options.start is None or options.exported is None or options.shares is None or not options.choose_share:
        return {}
    kept = share_of(options.trained)
    folders = {kept: options.trained} if kept in QUESTION_SHARES else {}
    for share in QUESTION_SHARES:
        if share not in folders:
            folders[share] = _interpolated(options.start, options.exported, share, options.shares)
    return folders


def _interpolated(start: Path, exported: Path, share: float, folder: Path) -> Path:
    """Return the folder of the model with a share of the trained weights; write it unless it is there, undamaged."""
    model = folder / f"{share:g}"
    if share == 1:
        return exported
    try:
        check_model(model)
        if is_interpolated(model, start, exported):
            return model
        shutil.rmtree(model)  # of another training
    except FolderChangedError as error:
        if model.exists():
            notice(f"{error} (moved to {set_aside(model)})")
    folder.mkdir(parents=True, exist_ok=True)
    interpolate(start, exported, share, model)
    return model


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """The content of verdict.json: the verdict on held-out texts, and the verdict on the user's questions, if any."""

    held_out: Verdict
    questions: Verdict | None = None

    @classmethod
    def read(cls, path: Path) -> "Verdicts":
        """Read verdict.json, which `Judging` wrote.

        Raises:
            ValueError: the file is damaged.
            OSError: the file cannot be read.
        """
        return cls.from_json(load_checksummed(path.read_bytes()))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Verdicts":
        """Return the verdicts in `record`, the content of verdict.json."""
        questions = record["questions"]
        return cls(Verdict.from_json(record["held_out"]), questions and Verdict.from_json(questions))


def write_verdicts(options: Judging) -> None:
    """Rank the systems and write the verdicts to the file `options.output`.

    Do nothing if that file already has verdicts on the same models, dataset, questions and options.
    """
    inputs = fingerprint(options)
    if options.output.is_file():
        try:
            known = load_checksummed(options.output.read_bytes())["inputs"]
            if known == inputs or known == fingerprint(options, EARLIER):
                write_shares(options)
                return
        except (ValueError, KeyError) as error:
            notice(f"{options.output}: damaged ({error}): the verdict is computed again")
    cut, notes = None, tuple[str, ...]()
    if options.chunk_tokens is not None:
        cut = functools.partial(chunks_of, options.chunk_tokens)
        notes = (f"a text has the rank of its best chunk of at most {options.chunk_tokens} tokens, as in a search",)
    judged = functools.partial(
        judge,
        data=options.data,
        stemmer=options.stemmer,
        cut=cut,
        prompt_name=options.prompt_name,
        cache=folder_of(None),
        compute=resolve(AUTO, options.precision),
        progress=sys.stderr.isatty(),
        say=notice,
    )
    of_questions = judged(candidates_for_questions(options), queries=options.queries) if options.queries else None
    every = {"held_out": judged(options.candidates), "questions": of_questions}
    found = {
        name: each and dataclasses.replace(each, notes=(*each.notes, *notes)).to_json() for name, each in every.items()
    }
    files.write_bytes(options.output, dump_checksummed(json.loads(json.dumps({"inputs": inputs, **found})), indent=1))


def chunks_of(chunk_tokens: int, model: Encoder, prompt: str, documents: Sequence[str]) -> Chunks:
    """Cut documents into chunks, as `clearspan embed --chunk-tokens` cuts them for a search.

    Args:
        chunk_tokens: the most tokens of a chunk.
        model: the model that embeds the chunks; its tokenizer counts the tokens.
        prompt: the model's prompt for documents, which counts towards the model's limit.
        documents: the texts of the documents.

    Raises:
        EncoderError: the model has no tokenizer, or a text cannot be tokenized.
    """
    if not isinstance(model, FolderEncoder):
        raise EncoderError("`chunk_tokens`: a model without a folder has no tokenizer to cut texts with")
    chunker = Chunker(model.count_tokens, chunk_tokens, 0, model.most_tokens)
    texts: list[str] = []
    starts = np.empty(len(documents), np.int64)
    for first in range(0, len(documents), BLOCK_TEXTS):
        block = documents[first : first + BLOCK_TEXTS]
        for row, spans in enumerate(chunker.chunks(block, [prompt] * len(block))):
            starts[first + row] = len(texts)
            texts += [block[row][start:end].strip() for start, end in spans]
    return Chunks(texts, starts)


def fingerprint(options: Judging, of_version: int | None = None) -> str:
    """Return a hash of everything that the verdicts depend on: models, dataset, questions and options.

    The language of the texts was identified before, and the options name it, so what identifies it has no part here.

    Args:
        of_version: the version of how a verdict is reached: EARLIER, or None for this version.
    """
    of_version = VERSION if of_version is None else of_version
    models = [(each.name, model_sha256(Path(each.model))) for each in options.candidates]
    if options.stemmer:
        stemmer = {"stemmer": options.stemmer} if of_version == EARLIER else versions_of(options.stemmer)
        models += [(name, str(value)) for name, value in stemmer.items()]
    models += [("chunks", str(options.chunk_tokens))] if options.chunk_tokens else []
    if options.choose_share:
        between = [each for each in (options.start, options.exported) if each is not None]
        models += [(str(QUESTION_SHARES), model_sha256(each)) for each in between]
    parts = held_out.manifest_sha256s(options.data)
    queries = options.queries and sha256(options.queries)
    how = {"prompts": options.prompt_name, "precision": options.precision}
    return digest(version=of_version, words=words.VERSION, models=models, data=parts, queries=queries, **how)


main = Judging.main


if __name__ == "__main__":
    sys.exit(main())
