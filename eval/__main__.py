"""The command `clearspan eval`: score models, print a summary, write `results.json` and `report.html`.

Exit codes: 0 scored; 1 the work failed (a folder is not a model, data is malformed, there is nothing to score), or a
task's file is truncated; 2 bad usage; 130 interrupted.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from clearspan.common.commands import UsageError
from clearspan.common.compute import AUTO, add_device, add_precision
from clearspan.common.encoder.sentence_encoder import POOLINGS
from clearspan.common.files import cache_folder
from clearspan.common.plugins import PluginError
from clearspan.common.terminal import Parser, printable, version
from clearspan.eval.command import run
from clearspan.eval.files import json_text
from clearspan.eval.models.lexical import BASELINES
from clearspan.eval.models.load import default_name
from clearspan.eval.results import Scored
from clearspan.eval.run import REPORT, EvaluationError, Request, evaluate, summary_of
from clearspan.eval.saved import EXAMPLES, RESULTS
from clearspan.eval.summary import terminal_summary
from clearspan.eval.tasks.registry import FAMILIES, family

PROG = "python -m clearspan.eval"
_EXAMPLE = """examples:
  clearspan eval --model runs/demo/model --tasks sts,transfer,probing --data data --output runs/demo/eval
  clearspan eval --model BEFORE --model runs/mine/model --model tfidf --model bm25 --tasks heldout
      --data SHARDS --output runs/mine/heldout

models:
  a folder that sentence-transformers loads; a plain Hugging Face folder (--pooling); a file of word vectors (GloVe's,
  fastText's or word2vec's, or JSON), averaged over the words of a text; module:function, a Python function that takes a
  list of n texts and returns an array (n, dim), from an installed module or one in the working folder; a baseline
  that compares words, fitted on each task's own texts: bow (bag of words), tfidf, bm25; or hybrid:DIR, the model in
  DIR beside BM25, which ranks documents (heldout, retrieval)

tasks, and the place of their files in DIR, the data folder:
{families}
  module:name        your own task: a class that implements clearspan.eval.tasks.task.Task, called with DIR
A task without its files is skipped with a line that says so; all others run. Files are compared with the published
ones: other contents are a warning; fewer rows are exit code 1, after all is scored, unless --allow-missing is given.

protocols:
  full  the papers' protocols: SentEval's defaults (10 folds, Adam); GLUE as the median of five seeds
  fast  for prototyping: SentEval's settings for it (5 folds, RMSprop); GLUE with one seed and fewer epochs

pooling of a plain Hugging Face folder, in SimCSE's names:
  mean             the mean over the tokens of the last layer
  cls              the first token, [CLS], through the model's own head: BERT's pooler, supervised SimCSE
  cls-before-head  [CLS] of the last layer: unsupervised SimCSE; sentence-transformers calls it cls
  first-last       the mean over the tokens of the first and the last layer

cache:
  embeddings are cached under a fingerprint of everything that affects them; those of a Python function are not cached

exit codes:
  0  scored, also if tasks were skipped because they have no files
  1  a file has fewer rows than the published one (without --allow-missing); or the work failed: a malformed file, a
     folder that is no model, nothing to score
  2  bad usage

related commands:
  clearspan data check DIR            check the data, and show where to obtain the rest
  clearspan compare A B               test which differences between two evaluations exceed noise
  clearspan tables NAME RESULTS...    print a paper's table with your own models in it
"""


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    return run(make_parser(prog=prog), argv, lambda args: _evaluate(args, prog), failures=(EvaluationError,))


def make_parser(parser_class: type[Parser] = Parser, prog: str = PROG) -> Parser:
    """Return the command's parser, an instance of `parser_class`."""
    families = "\n".join(f"  {word:<18} {family.description}" for word, family in FAMILIES.items())
    parser = parser_class(
        prog=prog,
        description="Score sentence encoders with the published protocols.",
        epilog=_EXAMPLE.replace("{families}", families),
    )
    add = parser.add_argument
    add("--model", required=True, action="append", type=_model, metavar="MODEL", help="model to score; may be repeated")
    add("--name", action="append", default=[], type=_name, help="the model's name in the results; one per --model")
    add("--tasks", default=[], type=_task_words, metavar="LIST", help="tasks of the list below, separated by commas")
    add("--data", type=_existing_folder, metavar="DIR", help="data folder, required by --tasks")
    pairs_help = "your own task, csv or tsv: rows of two texts and a score; may be repeated"
    add("--pairs", action="append", default=[], type=Path, metavar="FILE.csv", help=pairs_help)
    add("--output", required=True, type=_output_folder, metavar="DIR", help="folder of the results; created if missing")
    protocol_help = "the papers' protocols, or shorter ones for prototyping (default: %(default)s)"
    add("--protocol", choices=("full", "fast"), default="full", help=protocol_help)
    seed_help = "seed of folds and classifiers (default: %(default)s, SentEval's)"
    add("--seed", type=_seed, default=1111, metavar="N", help=seed_help)
    add("--pooling", choices=POOLINGS, help="pooling of a plain Hugging Face folder (default: mean)")
    add_precision(parser)
    parser.renamed("--dtype", "--precision")
    batch_tokens_help = "tokens per forward pass (default: %(default)s)"
    add("--batch-tokens", type=_positive, default=16384, metavar="N", help=batch_tokens_help)
    add_device(parser)
    default = "embeddings/ in CLEARSPAN_CACHE, or in ~/.cache/clearspan"
    cache_help = f"folder that caches embeddings across runs, or none (default: {default})"
    add("--cache", type=_cache, default=_cache_folder(), metavar="DIR", help=cache_help)
    add("--allow-missing", action="store_true", help="exit 0 although rows are missing in a file of published data")
    add("--json", action="store_true", help="print results.json (a list for several models) instead of the summary")
    add("--quiet", action="store_true", help="show no progress bars")
    add("--version", action="version", version=version())
    return parser


def _evaluate(args: argparse.Namespace, prog: str) -> tuple[str, int]:
    """Evaluate the models; return the output for stdout and the exit code."""
    scored = evaluate(request(args))
    truncated = "" if args.allow_missing else ", ".join(scored[0].results.truncated.values())
    if truncated:
        problem = f"truncated data: {truncated}: restore the files, or accept them with --allow-missing"
        print(f"{prog}: {printable(problem)}", file=sys.stderr)
    return _output(scored, args.json), int(bool(truncated))


def _output(scored: Sequence[Scored], as_json: bool) -> str:
    if not as_json:
        return terminal_summary(summary_of(scored), shutil.get_terminal_size((100, 24)).columns) + "\n"
    if len(scored) == 1:
        return scored[0].results.to_json()
    return json_text([asdict(each.results) for each in scored])


def request(args: argparse.Namespace) -> Request:
    """Return the evaluation that the arguments describe.

    Raises:
        UsageError: the arguments do not fit together.
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
    _check_device(args.device)
    return Request(
        models=dict(zip(names, args.model, strict=True)),
        words=args.tasks,
        pairs=args.pairs,
        data=args.data,
        output=args.output,
        protocol=args.protocol,
        seed=args.seed,
        pooling=args.pooling,
        precision=args.precision,
        batch_tokens=args.batch_tokens,
        device=args.device,
        cache=args.cache,
        quiet=args.quiet,
    )


def _model(text: str) -> str:
    if ":" not in text and text not in BASELINES and not _is(Path.exists, text):
        raise argparse.ArgumentTypeError(f"no such folder or file, nor a baseline ({', '.join(BASELINES)}): {text}")
    return text


def _name(text: str) -> str:
    if not text or text != Path(text).name or text in (".", "..", RESULTS, EXAMPLES, REPORT):
        raise argparse.ArgumentTypeError(f"must be a valid folder name, not {text!r}")
    return text


def _cache_folder() -> Path | None:
    try:
        return cache_folder() / "embeddings"
    except OSError:  # the user has no home folder
        return None


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


def _is(test: Callable[[Path], bool], text: str) -> bool:
    try:
        return test(Path(text))
    except OSError as error:  # the name is too long, or a folder is not readable
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


def _check_device(device: str) -> None:
    """Raise UsageError for a device that torch cannot use here."""
    if device == AUTO:
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device: {device!r} cannot be used here: {reason}") from None


if __name__ == "__main__":
    sys.exit(main())
