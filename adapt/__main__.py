"""Train a model on texts of your own, and choose the system that searches these texts best: `clearspan adapt`.

    texts ──> documents or pairs ──> DIR/texts ──> mine ──> train ──> DIR/run ──> interpolate ──> DIR/interpolated
             the trained model, the base model and BM25 ──> judge ──> DIR/verdict.json
             the best system: the trained model, a base model, BM25, or a model + BM25 ──> DIR/adapt.json
             the model of the best system ──> DIR/model ──> embed ──> DIR/vectors ──> DIR/search.json

If the texts have titles, a title and its text are a training pair: the model learns to find the text by its title,
among hard negatives. These are wrong texts that the untrained model ranks high; they are mined from the whole
collection. If the texts have no titles, the model is trained on crops of the texts. Without --model, the model is a
static encoder, which embeds a text as the mean of its tokens' vectors; it is trained from the texts alone. With
`--model static:DIR`, the static encoder starts from the vectors that the model in DIR gives to single tokens.

A part of the texts is held out. One half of it picks the checkpoint (the model before training is a candidate, too),
the share of the trained weights (the others are those before training), and the weight of each model when combined
with BM25. The other half gives the verdict: its titles, or crops, must find their texts among all texts of the
collection. The verdict compares BM25, the trained model, the base model that was given, and each of these models
combined with BM25. `--queries FILE` adds your own questions; 50 questions or more decide the verdict, and each half of
them chooses the share and the weights for the other half.

DIR holds the best system, ready for use: `clearspan search DIR "..."` needs no other option.

If the model has prompts, as E5 has, all stages use them: the query prompt before titles, the document prompt before
texts. Crops and static encoders have no prompts.

Each stage is a command of Clearspan and is printed before it runs. The same command continues a stopped run, unless a
text or the model has changed: DIR/adapt.json holds the finished stages and a hash of the model. The output of a
finished stage is checked before it is used again; a stage whose output is damaged or missing is repeated.

If the inputs of a finished DIR have changed, the same command, with new files or without, says how many texts are new.
With `--update`, it embeds them; the model and the verdict stay as they are.
"""

import dataclasses
import signal
from dataclasses import dataclass
from typing import ClassVar

from clearspan.adapt.options import Adapt
from clearspan.cli.command import Command, Printed, Result
from clearspan.common import terminal
from clearspan.common.spawned import CommandError

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
        """Find the best system (`adapt.run`). If a stage fails, the result has its exit code and its message."""
        from clearspan.adapt.run import find_best  # here: --help needs neither numpy nor the readers

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the process that runs saves its work
        try:
            return find_best(self)
        except CommandError as error:
            return Printed(code=error.code, failure=terminal.one_line(error))


def adapted(options: Adapt) -> object:
    """Adapt in a process that Python's `adapt` has started; return an `Adapted`, or the exit code of a failure."""
    from clearspan.adapt.run import Adapted

    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return AdaptCommand(**given).run_and_print(AdaptCommand.error_prefix) or Adapted.read(options.output)


main = AdaptCommand.main


if __name__ == "__main__":
    raise SystemExit(main())
