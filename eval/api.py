"""Evaluation from Python: functions that do the same as the commands `clearspan eval` and `clearspan compare`."""

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from clearspan.common.compute import AUTO, resolve
from clearspan.common.encoder.folder import device_of
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.options import from_keywords
from clearspan.common.plain_json import Option
from clearspan.common.terminal import UsageError, warn
from clearspan.common.typed import checked
from clearspan.eval.compare import Comparison, compare_folders
from clearspan.eval.models.load import load_encoder
from clearspan.eval.request import EvalOptions
from clearspan.eval.results import Results
from clearspan.eval.run import evaluate as run


@checked
def evaluate(
    model: str | Path,
    tasks: str | Sequence[str] = (),
    data: str | Path | None = None,
    output: str | Path | None = None,
    **options: Option,
) -> Results:
    """Score a model by the published protocols.

    Args:
        model: a model folder, a file of word vectors, or, as `module:function`, a Python function that maps a list of n
            texts to an array (n, dim). Baselines such as `bm25` are allowed too.
        tasks: families of tasks, such as `["sts", "transfer"]` or `"sts,transfer"`. They may be empty if the option
            `pairs` names a file of your own, or `queries` a file of your own questions.
        data: the folder with the data of the tasks; None if no task needs it.
        output: the folder for `results.json`, `examples.npz` and `report.html`, which `compare` and the tables read;
            None writes none of them.
        options: options of `clearspan eval --help` by their names with underscores: `protocol="fast"`,
            `pairs="mine.csv"`, `pooling="pooler"`, `device="cuda"`.

    Returns:
        The content of `results.json`: `results.scores["STSBenchmark"]["spearman"]` is in percent.

    Raises:
        UsageError: an option is unknown or cannot work.
        EvaluationError: the model cannot be used, or there is nothing to score.
        DataError, OSError: a data file is malformed or cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if output is None:
            output = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # libraries print while a model is loaded
        given = {"model": model, "tasks": tasks or None, "data": data, "output": output, **options}
        return run(from_keywords(EvalOptions, given))[0].results


@checked
def load_model(
    model: str | Path, *, pooling: str | None = None, precision: str = "fp32", device: str | None = "auto"
) -> Encoder:
    """Load a model that embeds texts: `load_model(folder).encode(["A sentence."])` is an array (1, dim) float32.

    As in sentence-transformers, `encode_query` and `encode_document` put the model's prompts for queries and documents
    before the texts, and `encode` its default prompt; the argument `prompt_name` selects a different prompt.

    Args:
        model: a model folder, a file of word vectors, or, as `module:function`, a Python function that maps a list of n
            texts to an array (n, dim).
        pooling: the pooling of a Hugging Face folder that does not define one: mean, cls, pooler or
            first-last; None for mean.
        precision: the precision of a transformer: fp32, bf16, or auto, which is bf16 if the device is fast in it, and
            otherwise fp32.
        device: such as `cpu` or `cuda:1`. With `auto` or None, a static model runs on the CPU, and any other model on
            the GPU if there is one.

    Raises:
        EncoderError: there is no usable model.
        UsageError: there is no such precision.
    """
    try:
        compute = resolve(device_of(Path(model), device or AUTO), precision)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if compute.message:
        warn(compute.message)
    return load_encoder(str(model), pooling, compute.precision, compute.device)


@checked
def compare(a: str | Path, b: str | Path, *, progress: bool = False) -> Comparison:
    """Test which differences between two evaluations exceed noise: paired bootstrap, corrected by Holm.

    Args:
        a, b: folders that `evaluate` or `clearspan eval` wrote; differences are b - a.
        progress: whether to show a progress bar.

    Raises:
        DataError: the two evaluations have no score in common that can be compared, or a file is missing or damaged.
        OSError: a file cannot be read.
    """
    return compare_folders(Path(a), Path(b), progress)
