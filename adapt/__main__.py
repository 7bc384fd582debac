"""Find what searches texts of your own best, and train a model that might: `clearspan adapt`.

    texts ──> documents or pairs ──> DIR/texts ──> mine ──> train ──> DIR/run ──> judge ──> DIR/verdict.json
                     take the trained model, a model as it is, BM25, or a model beside BM25 ──> DIR/adapt.json
                     the model of the verdict ──> DIR/model ──> embed ──> DIR/vectors ──> DIR/search.json

A text and its title are a pair: training teaches the title to find its text rather than hard negatives, wrong texts
that the untrained model ranks high, which are mined from the whole collection. Without titles it trains on crops of the
texts. Without --model it trains a static encoder from the texts alone; with `--model static:DIR`, one that starts from
the vectors of single tokens by the encoder in DIR.

A part of the texts is held out. One half of it picks the checkpoint, with the model before training as the first
candidate, and the weight of each model beside BM25. The other half is judged: its titles, or crops, find their texts
among all texts of the collection. The verdict compares the trained model with systems that need no training: BM25, the
given model as it is, and each model beside BM25. `--queries FILE` also judges by your own questions; if there are 50 or
more, they decide.

DIR holds the winner, ready for use: `clearspan search DIR "..."` needs nothing else.

A model with prompts, such as E5, gets them in every step: its query prompt before a title, its document prompt before a
text. Crops of texts, and static encoders, have no prompts.

Each step is a command of this project, printed before it runs. The same command continues where it stopped, unless a
text or the model has changed: DIR/adapt.json holds the finished commands and a hash of the model. The output of a
finished command is checked before it is used again, and made again if it is damaged or missing.
"""

import signal
from dataclasses import dataclass
from typing import ClassVar

from clearspan.adapt import recipe
from clearspan.adapt.delivery import announce, deliver, finish
from clearspan.adapt.enough import check_inputs, check_kept
from clearspan.adapt.judging import Verdicts
from clearspan.adapt.options import Adapt
from clearspan.adapt.outcome import decide
from clearspan.adapt.running import run_step
from clearspan.adapt.state import read_state, with_precision
from clearspan.adapt.steps import VERDICT, embedding, recipe_keys, steps, title
from clearspan.common import files, terminal
from clearspan.common.child_commands import CommandError
from clearspan.common.command import Command, Printed, Result

EXAMPLE = """
clearspan adapt --input articles.csv --output adapted
clearspan adapt --input articles.csv --fields title,abstract --model all-MiniLM-L6-v2 --output adapted
clearspan adapt --input texts.csv --text-field body --model static:all-MiniLM-L6-v2 --output adapted
clearspan adapt --input 'corpus/*.jsonl' --model MODEL --output adapted training.epochs=3 model.train=last-2
"""


@dataclass(frozen=True, kw_only=True)
class AdaptCommand(Adapt, Command):
    """The command `adapt`: trains a model on texts, and delivers the system that searches them best."""

    error_prefix: ClassVar[str] = "adapt"
    example: ClassVar[str] = EXAMPLE

    def run(self) -> Result:
        """Run the steps, and print each command before it runs; return the outcome.

        If a step fails, the result has the exit code and the message of that step.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the command that runs saves its work
        try:
            state = read_state(self)
            self.check()
            options = with_precision(self, state)
            keys, is_static = recipe_keys(options, options.output / "texts"), options.trains_static
            recipe.check(keys, options.overrides, is_static, options.titles is not None, options.recipe)
            if options.dry_run:
                every = [*steps(options), embedding(options)]
                return Printed("\n".join(f"{title(step, options)}\n$ {step}" for step in every))
            if "texts" not in state["steps"]:
                check_inputs(options)
                check_kept(options)
            with files.locked(options.output):
                for step in steps(options):
                    run_step(step, state, options)
                outcome = decide(Verdicts.read(options.output / VERDICT))
                announce(outcome)
                deliver(outcome, state, options)
                run_step(embedding(options), state, options)
                return finish(outcome, state, options)
        except CommandError as error:
            return Printed(code=error.code, failure=terminal.one_line(error))


main = AdaptCommand.main


if __name__ == "__main__":
    raise SystemExit(main())
