"""The command `python -m eval`: score a model, print a summary, write `results.json` and `report.html`.

Exit codes: 0 scored; 1 the work failed (a folder that is no model, malformed data, nothing to score); 2 bad usage; 130
interrupted.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from clearspan.common.plugins import PluginError
from clearspan.common.terminal import Parser, version
from clearspan.eval.command import UsageError, run
from clearspan.eval.files import json_text
from clearspan.eval.models.load import default_name
from clearspan.eval.models.sentence_encoder import POOLINGS
from clearspan.eval.run import REPORT, EvaluationError, Request, evaluate, summary_of
from clearspan.eval.saved import EXAMPLES, RESULTS
from clearspan.eval.summary import terminal_summary
from clearspan.eval.tasks.registry import FAMILIES, family

_EXAMPLE = """example:
  python -m eval --model runs/demo/model --tasks sts,transfer,probing --data data --output runs/demo/eval

models:
  a folder that sentence-transformers loads; a plain Hugging Face folder (--pooling); a file of word vectors (GloVe's,
  fastText's or word2vec's, or JSON), averaged over a text's words; module:function, a Python function of a list of n
  texts that gives an array (n, dim), looked for in the working folder too

tasks, and where in DIR, the data folder, they find their files:
{families}
  module:name        a task of your own: a class that implements eval.tasks.task.Task, called with DIR
A task whose files are not there is skipped with a line that says so; the rest runs.

protocols:
  full  the papers': SentEval's defaults (10 folds, Adam); GLUE by the median of five seeds
  fast  SentEval's for prototyping (5 folds, RMSprop); GLUE by one seed, for fewer epochs

pooling, of a plain Hugging Face folder (SimCSE's names):
  mean             over the tokens of the last layer
  cls              its first token, [CLS], through the model's own head: BERT's pooler, supervised SimCSE
  cls-before-head  [CLS] as the last layer gives it: unsupervised SimCSE; what sentence-transformers calls cls
  first-last       over the tokens, of the first layer and the last, averaged

cache:
  embeddings are kept by a fingerprint of all that decides them; of a function that is not known, so none are

beside this:
  python -m eval.data check DIR           what data is there and whole, where the rest is obtained
  python -m eval.compare A B              which differences of two evaluations exceed noise
  python -m eval.tables NAME RESULTS...   a paper's table with one's own models in it
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    return run(make_parser(), argv, lambda args: (_evaluated(args), 0), failures=(EvaluationError,))


def make_parser(parser_class: type[Parser] = Parser) -> Parser:
    """Return the parser of the command, of this class."""
    families = "\n".join(f"  {word:<18} {family.description}" for word, family in FAMILIES.items())
    parser = parser_class(
        prog="python -m eval",
        description="Score sentence encoders with the published protocols.",
        epilog=_EXAMPLE.replace("{families}", families),
    )
    add = parser.add_argument
    add("--model", required=True, action="append", type=_model, metavar="MODEL", help="see below; may be repeated")
    add("--name", action="append", default=[], type=_name, help="what results call it; one for each --model")
    add("--tasks", default=[], type=_task_words, metavar="LIST", help="words of the list below, separated by commas")
    add("--data", type=_existing_folder, metavar="DIR", help="the data folder; --tasks needs it")
    add(
        "--pairs",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.csv",
        help="a task of one's own, csv or tsv: rows of two texts and a score; may be repeated",
    )
    add("--output", required=True, type=_output_folder, metavar="DIR", help="where the results go; made if absent")
    add(
        "--protocol",
        choices=("full", "fast"),
        default="full",
        help="the papers', or SentEval's for prototyping (default: %(default)s)",
    )
    add(
        "--seed",
        type=_seed,
        default=1111,
        metavar="N",
        help="of folds and classifiers (default: %(default)s, SentEval's)",
    )
    add("--pooling", choices=POOLINGS, help="of a plain Hugging Face folder, which names none (default: mean)")
    add("--dtype", choices=("fp32", "bf16"), default="fp32", help="of a transformer (default: %(default)s)")
    add(
        "--batch-tokens",
        type=_positive,
        default=16384,
        metavar="N",
        help="tokens per forward pass (default: %(default)s)",
    )
    add("--device", type=_device, help="cpu, cuda, cuda:1, ... (default: cuda if there is one, else cpu)")
    add(
        "--cache",
        type=_cache,
        default=_cache_folder(),
        metavar="DIR",
        help="where embeddings are kept for other runs; none: nowhere (default: ~/.cache/clearspan/embeddings)",
    )
    add(
        "--json", action="store_true", help="print results.json instead of the summary table; of several models, a list"
    )
    add("--quiet", action="store_true", help="no progress bars")
    add("--version", action="version", version=version())
    return parser


def _evaluated(args: argparse.Namespace) -> str:
    """Evaluate; return the text for stdout."""
    scored = evaluate(request(args))
    if not args.json:
        return terminal_summary(summary_of(scored), shutil.get_terminal_size((100, 24)).columns) + "\n"
    if len(scored) == 1:
        return scored[0].results.to_json()
    return json_text([asdict(one.results) for one in scored])


def request(args: argparse.Namespace) -> Request:
    """Return the evaluation that the arguments describe.

    Raises:
        UsageError: they do not go together.
    """
    if not args.tasks and not args.pairs:
        raise UsageError("give --tasks, --pairs or both")
    if args.tasks and args.data is None:
        raise UsageError("--tasks needs --data DIR")
    if args.name and len(args.name) != len(args.model):
        raise UsageError(f"{len(args.name)} --name for {len(args.model)} --model: give one each, in the same order")
    names = args.name or [default_name(model) for model in args.model]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two models are called {twice!r}: tell them apart with --name")
    return Request(
        models=dict(zip(names, args.model, strict=True)),
        words=args.tasks,
        pairs=args.pairs,
        data=args.data,
        output=args.output,
        protocol=args.protocol,
        seed=args.seed,
        pooling=args.pooling,
        dtype=args.dtype,
        batch_tokens=args.batch_tokens,
        device=args.device,
        cache=args.cache,
        quiet=args.quiet,
    )


def _model(text: str) -> str:
    if ":" not in text and not _is(Path.exists, text):
        raise argparse.ArgumentTypeError(f"no such folder or file: {text}")
    return text


def _name(text: str) -> str:
    if not text or text != Path(text).name or text in (".", "..", RESULTS, EXAMPLES, REPORT):
        raise argparse.ArgumentTypeError(f"must be a name that a folder can have, not {text!r}")
    return text


def _cache_folder() -> Path | None:
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return Path(home) / "clearspan" / "embeddings"


def _cache(text: str) -> Path | None:
    return None if text == "none" else _output_folder(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"must be a whole number below 2^31, not {text!r}")
    return int(text)


def _existing_folder(text: str) -> Path:
    if not _is(Path.is_dir, text):
        raise argparse.ArgumentTypeError(f"no such folder: {text}")
    return Path(text)


def _output_folder(text: str) -> Path:
    if _is(Path.exists, text) and not _is(Path.is_dir, text):
        raise argparse.ArgumentTypeError(f"is a file, not a folder: {text}")
    return Path(text)


def _is(what: Callable[[Path], bool], text: str) -> bool:
    try:
        return what(Path(text))
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None


def _task_words(text: str) -> list[str]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    try:
        for word in words:
            family(word)
    except PluginError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return words


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def _device(text: str) -> str:
    import torch

    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used here: {reason}") from None
    return text


if __name__ == "__main__":
    sys.exit(main())
