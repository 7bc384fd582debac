"""Datasets and tokenizers from Python: `python -m pipelines` with keyword arguments for options."""

from collections.abc import Sequence
from pathlib import Path

from clearspan.common.keywords import Option, RaisingParser, UsageError, words
from clearspan.pipelines import vocabulary
from clearspan.pipelines.__main__ import prepare
from clearspan.pipelines.run import Summary

Inputs = str | Path | Sequence[str | Path]


def make_dataset(
    kind: str, inputs: Inputs, output: str | Path, *, beam: Sequence[str] = (), **options: Option
) -> Summary:
    """Make a dataset of verified shards from a corpus. A call that was stopped continues when it is repeated.

    Args:
        kind: `documents`, `sentences`, `triplets`, `images`, `audio`, or `module:Class` for a kind of your own.
        inputs: files, folders and globs.
        output: a new or empty folder, or one of the same call to continue.
        beam: options of Beam, such as `--runner=DataflowRunner`.
        options: options of `python -m pipelines KIND --help` by their names with underscores: `min_tokens=512`,
            `dedup=True`, `no_dedup=True`, `exclude=["test.txt"]`.

    Returns:
        Counts, rates and the manifest; its `str` is the summary that the command prints.

    Raises:
        UsageError: an option is unknown, missing or cannot work.
        PipelineError, OSError: the dataset cannot be made; the message says why and what to do.
    """
    line = [kind, *words({"input": _listed(inputs), "output": output, **options}), *beam]
    summary = prepare(line, RaisingParser)[1]()
    if not isinstance(summary, Summary):
        raise UsageError(f"{kind} with {' '.join(beam) or 'these options'}: makes no dataset")
    return summary


def make_tokenizer(inputs: Inputs, output: str | Path, *, size: int = 32000, **options: Option) -> vocabulary.Summary:
    """Learn a byte-level BPE tokenizer from a corpus, for a domain or a language that has none.

    Args:
        inputs: files, folders and globs.
        output: a new or empty folder on this machine.
        size: number of token ids, special tokens included.
        options: options of `python -m pipelines vocabulary --help` by their names with underscores.

    Raises:
        UsageError: an option is unknown or cannot work.
        PipelineError, OSError: the tokenizer cannot be made; the message says why and what to do.
    """
    line = [vocabulary.NAME, *words({"input": _listed(inputs), "output": output, "size": size, **options})]
    summary = prepare(line, RaisingParser)[1]()
    assert isinstance(summary, vocabulary.Summary)
    return summary


def _listed(inputs: Inputs) -> list[str | Path]:
    return [inputs] if isinstance(inputs, str | Path) else list(inputs)
