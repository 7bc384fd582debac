"""Adapt a model to texts of your own, and measure whether that helped: `clearspan adapt`.

    texts ──> documents or pairs ──> DIR/texts ──> train ──> DIR/run ──> eval --tasks heldout ──> DIR/report.html
                                             better, worse or no difference ──> DIR/model, DIR/adapt.json

Where a text has a title, the two are a pair: training contrasts the pairs, and crops of the texts, and the verdict is
on finding the text of a held-out title. Without titles it trains on crops, and finds one crop of a held-out text by
another. Without --model it trains a static encoder from the texts alone, with `--model static:DIR` one that begins with
the vectors that the encoder in DIR gives to single tokens.

A model that has prompts, such as E5, gets its own in every step: that of queries before a title, that of documents
before a text. Crops of texts, and static encoders, have none.

Each step is a command of this project, printed before it runs. A part of the texts is held out: one half of it picks
the checkpoint, with the model before training as the first candidate, and the verdict is reached on the other half.
DIR/model is the trained model if it is better, otherwise the given one. The same command continues where it stopped,
unless a text or the model has changed: DIR/adapt.json holds the finished commands and a hash of the model. What a
finished command left is checked before it is used again, and made again if it is damaged or gone.
"""

import signal
import sys
from collections.abc import Sequence

from clearspan.adapt.finish import finish
from clearspan.adapt.options import Adapt
from clearspan.adapt.recipe import EVALUATED
from clearspan.adapt.running import run
from clearspan.adapt.state import read_state
from clearspan.adapt.steps import recipe_keys, steps, title
from clearspan.common import files, terminal
from clearspan.common.commands import CommandError
from clearspan.common.options import run as run_command

PROG = "python -m adapt"
EXAMPLE = """examples:
  clearspan adapt --input articles.csv --output adapted
  clearspan adapt --input articles.csv --fields title,abstract --model all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input texts.csv --text-field body --model static:all-MiniLM-L6-v2 --output adapted
  clearspan adapt --input 'corpus/*.jsonl' --model MODEL --output adapted training.epochs=3 model.train=last-2
"""


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    frame = {"name": "adapt", "description": __doc__, "epilog": EXAMPLE}
    return run_command(Adapt, work, argv, prog, (ValueError, OSError), **frame)


def work(options: Adapt) -> int:
    """Run the steps; return the exit code: that of a command that failed, 2 for bad usage, 130 if interrupted."""
    from clearspan.train.api import load_recipe

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the command that runs saves its work
    try:
        state = read_state(options)
        options.check()
        if options.recipe:
            keys = [*recipe_keys(options, options.output / "texts"), EVALUATED, *options.overrides]
            load_recipe(options.recipe, keys)
        if options.dry_run:
            lines = [f"{title(number, step, options)}\n$ {step}" for number, step in enumerate(steps(options), 1)]
            terminal.say("\n".join(lines))
            return 0
        with files.locked(options.output):
            for number, step in enumerate(steps(options), 1):
                run(number, step, state, options)
            finish(options, state)
    except CommandError as error:
        print(f"adapt: {terminal.one_line(error)}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
