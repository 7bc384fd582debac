"""Train a model on texts of your own, and choose the system that searches these texts best: `clearspan adapt`.

    texts ──> documents or pairs ──> DIR/texts ──> mine ──> train ──> DIR/run ──> judge ──> DIR/verdict.json
             the best system: the trained model, a model as it is, BM25, or a model + BM25 ──> DIR/adapt.json
             the model of the best system ──> DIR/model ──> embed ──> DIR/vectors ──> DIR/search.json

If the texts have titles, a title and its text are a training pair: the model learns to find the text by its title,
among hard negatives. These are wrong texts that the untrained model ranks high; they are mined from the whole
collection. If the texts have no titles, the model is trained on crops of the texts. Without --model, the model is a
static encoder, which embeds a text as the mean of its tokens' vectors; it is trained from the texts alone. With
`--model static:DIR`, the static encoder starts from the vectors that the model in DIR gives to single tokens.

A part of the texts is held out. One half of it picks the checkpoint (the model before training is a candidate, too) and
the weight of each model when combined with BM25. The other half gives the verdict: its titles, or crops, must find
their texts among all texts of the collection. The verdict compares BM25, the trained model, the given model as it is,
and each of these models combined with BM25. `--queries FILE` adds your own questions; 50 questions or more decide the
verdict.

DIR holds the best system, ready for use: `clearspan search DIR "..."` needs no other option.

If the model has prompts, as E5 has, all steps use them: the query prompt before titles, the document prompt before
texts. Crops and static encoders have no prompts.

Each step is a command of Clearspan and is printed before it runs. The same command continues a stopped run, unless a
text or the model has changed: DIR/adapt.json holds the finished steps and a hash of the model. The output of a finished
step is checked before it is used again; a step whose output is damaged or missing is repeated.

If the inputs of a finished DIR have changed, the same command, with new files or without, says how many texts are new.
With `--update`, it embeds them; the model and the verdict stay as they are.
"""

import signal
from dataclasses import dataclass
from typing import ClassVar

from clearspan.adapt import recipe
from clearspan.adapt.delivery import announce, deliver, finish, source
from clearspan.adapt.enough import check_inputs, checked_fields
from clearspan.adapt.judging import Verdicts
from clearspan.adapt.options import Adapt
from clearspan.adapt.outcome import decide
from clearspan.adapt.running import check_finished, run_step
from clearspan.adapt.state import FIELDS, read_state, save, with_fields, with_precision
from clearspan.adapt.steps import VERDICT, check_questions, embedding, recipe_keys, steps, title
from clearspan.adapt.updating import UPDATED, check_update, is_finished
from clearspan.common import files, terminal
from clearspan.common.child_commands import CommandError
from clearspan.common.command import Command, Printed, Result

EXAMPLE = """
clearspan adapt --input articles.csv --model all-MiniLM-L6-v2 --queries questions.csv --output adapted
clearspan adapt --input articles.csv --fields title,abstract --output adapted
clearspan adapt --input texts.csv --text-field body --model static:all-MiniLM-L6-v2 --output adapted
clearspan adapt --input 'corpus/*.jsonl' --model MODEL --output adapted training.epochs=3 model.train=last-2
clearspan adapt --input articles.csv new.csv --output adapted --update
"""


@dataclass(frozen=True, kw_only=True)
class AdaptCommand(Adapt, Command):
    """The command `adapt`: trains a model on texts, and delivers the system that searches them best."""

    error_prefix: ClassVar[str] = "adapt"
    example: ClassVar[str] = EXAMPLE

    def run(self) -> Result:
        """Run the steps, and print each command before it runs; return the outcome.

        If `dry_run` is true, run no step, and return the commands; what a run would refuse before its first step is
        refused as well. If a step fails, the result has the exit code and the message of that step.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the command that runs saves its work
        try:
            state = read_state(self)
            self.check()
            options = with_precision(self, state)
            keys, is_static = recipe_keys(options, options.output / "texts"), options.trains_static
            recipe.check(keys, options.overrides, is_static, options.titles is not None, options.recipe)
            if "texts" not in state["steps"]:
                check_inputs(options)
                state[FIELDS] = checked_fields(options)
            options = with_fields(options, state)
            check_finished(state, options)
            updates = check_update(options, state)
            if options.dry_run:
                if not updates:  # which looks up no question again
                    check_questions(options)
                every = [*steps(options, runs=False), embedding(options, updates=updates)]
                return Printed("\n".join(f"{title(step, options)}\n$ {step}" for step in every))
            with files.locked(options.output):
                if updates:
                    state[UPDATED] = True
                    save(options.output, state)
                for step in steps(options):
                    run_step(step, state, options)
                outcome = decide(Verdicts.read(options.output / VERDICT))
                announce(outcome)
                deliver(outcome, state, options)
                updates = updates and is_finished(state)
                run_step(embedding(options, source(outcome, options), updates), state, options)
                return finish(outcome, state, options)
        except CommandError as error:
            return Printed(code=error.code, failure=terminal.one_line(error))


main = AdaptCommand.main


if __name__ == "__main__":
    raise SystemExit(main())
