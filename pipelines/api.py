"""Datasets and tokenizers from Python: the commands of `clearspan` with keyword arguments.

Datasets and tokenizers are made in a separate process: in the process of a notebook, Beam would look for its
interactive runner, and a worker that dies would end the notebook.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from clearspan.common.parsing import did_you_mean
from clearspan.common.plain_json import Option
from clearspan.common.plugins import PluginError
from clearspan.common.terminal import UsageError
from clearspan.common.typed import checked
from clearspan.pipelines.dataset_command import making
from clearspan.pipelines.registry import BUILDERS, own_command
from clearspan.pipelines.vocabulary_command import Vocabulary
from clearspan.shards import Dataset
from clearspan.shards.command import PipelineCommand, call_command

Inputs = str | Path | Iterable[str | Path]


@checked
def make_dataset(
    kind: str,
    inputs: Inputs,
    output: str | Path,
    *,
    beam: str | Sequence[str] = (),
    quiet: bool = False,
    **options: Option,
) -> Dataset:
    """Make a dataset of verified shards from a corpus. A call that was stopped continues when it is repeated.

    Args:
        kind: `documents`, `sentences`, `pairs`, `triplets`, `images`, `audio`, `embed` for the vectors of texts,
            or `module:Class` for a kind of your own.
        inputs: files, folders and globs.
        output: a new or empty folder, or the folder of an earlier, identical call to continue.
        beam: options of Beam, such as `["--runner=DataflowRunner"]`.
        quiet: print no summary.
        options: options of `clearspan KIND --help`, with underscores in their names: `min_tokens=512`,
            `dedup=True`, `no_dedup=True`, `exclude=["test.txt"]`.

    Raises:
        UsageError: an option is unknown, missing or cannot work.
        PipelineError: the dataset cannot be made; the message says why and what to do.
    """
    call_command(_making(kind), {"input": _listed(inputs), "output": output, "beam": beam}, options, quiet)
    return Dataset(output)


@checked
def make_tokenizer(
    inputs: Inputs, output: str | Path, *, size: int = 32000, quiet: bool = False, **options: Option
) -> Path:
    """Learn a byte-level BPE tokenizer from a corpus, for a domain or a language that has none; return its folder.

    Args:
        inputs: files, folders and globs.
        output: a folder on this machine: new or empty, or the folder of an earlier, identical call, whose tokenizer
            is then returned unchanged.
        size: number of token ids, special tokens included.
        quiet: print no summary.
        options: options of `clearspan vocabulary --help`, with underscores in their names.

    Raises:
        UsageError: an option is unknown or cannot work.
        PipelineError: the tokenizer cannot be made; the message says why and what to do.
    """
    call_command(Vocabulary, {"input": _listed(inputs), "output": output, "size": size}, options, quiet)
    return Path(output)


def _listed(inputs: Inputs) -> list[str | Path]:
    return [inputs] if isinstance(inputs, str | Path) else list(inputs)


def _making(kind: str) -> type[PipelineCommand]:
    """Return the command that makes datasets of a kind, such as `documents` or `module:Class`.

    Raises:
        UsageError: there is no such kind.
    """
    if kind in BUILDERS:
        return making(BUILDERS[kind])
    if ":" not in kind:
        raise UsageError(f"no such kind: {kind!r}{did_you_mean(kind, BUILDERS)}; there are {', '.join(BUILDERS)}")
    try:
        return own_command(kind)
    except PluginError as error:
        raise UsageError(str(error)) from None
