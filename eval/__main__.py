"""The command `python -m eval`: score a model, print a summary, write `results.json` and `report.html`.

Exit codes: 0 scored; 1 the work failed (a folder that is no model, malformed data, nothing to score); 2 bad usage.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from eval.embed import Embedder
from eval.files import DataError, write_text
from eval.registry import FAMILIES
from eval.report import write_report
from eval.results import Results, environment, report_sections, terminal_summary
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
        self.exit(2, f"python -m eval: {message} (see --help)\n")


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
    try:
        args = parser.parse_args(argv)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    try:
        return _run(args)
    except (_EvaluationError, DataError, OSError) as error:
        print(f"python -m eval: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    args.output.mkdir(parents=True, exist_ok=True)
    tasks: list[Task] = []
    results = Results(model=args.model.name)
    for word in args.tasks:
        loaded = FAMILIES[word].load(args.data)
        tasks += loaded.tasks
        results.skipped |= loaded.missing
    if not tasks:
        for name, reason in results.skipped.items():
            print(f"skipped {name}: {reason}", file=sys.stderr)
        raise _EvaluationError(
            f"--data {args.data}: holds no data for --tasks {','.join(args.tasks)}, so nothing was scored"
        )

    # Only now: torch takes seconds to import, and mistakes in arguments and data should show at once.
    import torch

    from train.encoder import EncoderError, TextEncoder

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        encoder = TextEncoder.load(args.model, device=device)
    except EncoderError as error:
        raise _EvaluationError(f"--model: {error}") from None
    results.model = encoder.name
    embedder = Embedder(lambda texts: encoder.encode(texts, batch_tokens=args.batch_tokens, progress=not args.quiet))
    scored: dict[str, TaskScores] = {}
    for task in tasks:
        scored[task.name] = task.score(embedder, progress=not args.quiet)
        results.add(task.name, scored[task.name])
    for word in args.tasks:
        results.averages |= FAMILIES[word].averages(results.scores)
    if embedder.num_nonfinite:
        results.warnings.append(
            f"{embedder.num_nonfinite} of {embedder.num_texts} embeddings hold a NaN or an infinity, which count as 0: "
            "the model is broken or overflows in this precision"
        )
    results.environment = environment(
        device=device,
        embedding_dim=encoder.dim,
        texts_embedded=embedder.num_texts,
        embedding_s=round(embedder.encode_s, 3),
        model_path=str(args.model),
        data_path=str(args.data),
    )
    write_text(args.output / "results.json", results.to_json())
    write_report(args.output / "report.html", f"Evaluation of {results.model}", report_sections(results, scored))
    print(results.to_json() if args.json else terminal_summary(results, scored), end="" if args.json else "\n")
    return 0


def _existing_folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"no such folder: {text}")
    return path


def _output_folder(text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"is a file, not a folder: {text}")
    return path


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
