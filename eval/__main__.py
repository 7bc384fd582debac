"""The command `python -m eval`: score a model, print a summary, write `results.json` and `report.html`.

Exit codes: 0 scored; 1 the work failed (a folder that is no model, malformed data, nothing to score); 2 bad usage.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

from eval.embed import Embedder
from eval.files import DataError, check_writable, printable, write_text
from eval.registry import FAMILIES
from eval.report import is_report, write_report
from eval.results import Results, environment, is_results, report_sections, terminal_summary
from eval.task import Task, TaskScores

_EXAMPLE = """example:
  python -m eval --model runs/demo/model --tasks sts,retrieval --data data/senteval --output runs/demo/eval

data:
  sts        DATA/downstream/STS/... and DATA/downstream/SICK/, SentEval's layout
  retrieval  DATA/retrieval/<name>/{corpus.jsonl,queries.jsonl,qrels/test.tsv}, BEIR's layout
A task whose files are not there is skipped with a line that says so; the rest runs.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"python -m eval: {printable(message)} (see --help)\n")


class _EvaluationError(Exception):
    """The work failed; the message is for the user, in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    parser = _Parser(
        prog="python -m eval",
        description="Score a sentence encoder with the published protocols.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, type=_existing_folder, metavar="DIR", help="a model folder")
    parser.add_argument("--tasks", required=True, type=_task_words, metavar="LIST", help=f"any of {','.join(FAMILIES)}")
    parser.add_argument(
        "--data", required=True, type=_existing_folder, metavar="DIR", help="the data folder, see below"
    )
    parser.add_argument(
        "--output", required=True, type=_output_folder, metavar="DIR", help="where the results go; made if absent"
    )
    parser.add_argument("--json", action="store_true", help="print results.json instead of the summary table")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument(
        "--pooling", choices=("mean", "cls"), help="of a plain Hugging Face folder, which names none (default: mean)"
    )
    parser.add_argument(
        "--batch-tokens",
        type=_positive,
        default=16384,
        metavar="N",
        help="tokens per forward pass (default: %(default)s)",
    )
    parser.add_argument(
        "--device", type=_device, help="cpu, cuda, cuda:1, ... (default: cuda if there is one, else cpu)"
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show every character
    code, output = 0, ""
    try:
        output = _run(parser.parse_args(argv))
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    except (_EvaluationError, DataError, OSError) as error:
        print(f"python -m eval: {printable(str(error))}", file=sys.stderr)
        code = 1
    return _print(output) or code


def _version() -> str:
    try:
        return f"clearspan {version('clearspan')}"
    except PackageNotFoundError:
        return "clearspan, not installed"


def _print(text: str) -> int:
    """Prints all that goes to stdout; 1 where it does not get there, unless its reader has left, having seen enough."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python itself writes again when it ends
        if isinstance(error, BrokenPipeError):
            return 0
        print(f"python -m eval: standard output cannot be written ({error.strerror})", file=sys.stderr)
        return 1
    return 0


def _run(args: argparse.Namespace) -> str:
    """Evaluates, writes the results, and returns what goes to stdout."""
    _check_output(args.output)
    tasks: list[Task] = []
    results = Results(model=args.model.name)
    for word in args.tasks:
        loaded = FAMILIES[word].load(args.data)
        tasks += loaded.tasks
        results.skipped |= loaded.missing
    if not tasks:
        for name, reason in results.skipped.items():
            print(printable(f"skipped {name}: {reason}"), file=sys.stderr)
        raise _EvaluationError(
            f"--data {args.data}: holds no data for --tasks {','.join(args.tasks)}, so nothing was scored"
        )

    # Only now: torch takes seconds to import, and mistakes in arguments and data should show at once.
    import torch

    from eval.folder import EncoderError
    from eval.model import load

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = load(args.model, args.pooling, device)
    except EncoderError as error:
        raise _EvaluationError(f"--model: {error}") from None
    results.model = model.name
    embedder = Embedder(lambda texts: model.encode(texts, batch_tokens=args.batch_tokens, progress=not args.quiet))
    scored: dict[str, TaskScores] = {}
    try:
        for task in tasks:
            scored[task.name] = task.score(embedder, progress=not args.quiet)
            results.add(task.name, scored[task.name])
    except EncoderError as error:
        raise _EvaluationError(f"--model: {error}") from None
    for word in args.tasks:
        results.averages |= FAMILIES[word].averages(results.scores)
    if embedder.num_nonfinite:
        results.warnings.append(
            f"{embedder.num_nonfinite} of {embedder.num_texts} embeddings hold a NaN or an infinity, which count as 0: "
            "the model is broken or overflows in this precision"
        )
    results.environment = environment(
        device=device,
        embedding_dim=model.dim,
        texts_embedded=embedder.num_texts,
        embedding_s=round(embedder.encode_s, 3),
        model_path=str(args.model),
        data_path=str(args.data),
    )
    write_text(args.output / "results.json", results.to_json())
    write_report(args.output / "report.html", f"Evaluation of {results.model}", report_sections(results, scored))
    return results.to_json() if args.json else terminal_summary(results, scored) + "\n"


def _check_output(folder: Path) -> None:
    """Before any work: the folder can be written, and what it holds under our names was written by an evaluation."""
    check_writable(folder)
    for name, is_ours in (("results.json", is_results), ("report.html", is_report)):
        if (folder / name).exists() and not is_ours(folder / name):
            raise _EvaluationError(
                f"--output {folder}: its {name} is not one that python -m eval wrote: move it, or name another folder"
            )


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
    unknown = [word for word in words if word not in FAMILIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown task {unknown[0]!r}; choose from {', '.join(FAMILIES)}")
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
