"""Bring a finished folder up to date with inputs that have changed: say what is new, and embed it by `--update`.

    inputs, DIR/vectors ──> have the inputs changed? ──> without --update: refused, with the numbers of new texts
                                                         with --update: the stage `embed` updates DIR/vectors

The model and the verdict stay as they are: those of the texts before the first update. From then on, the stages
that read these texts (`runner.OF_TEXTS`) are left alone, because the inputs no longer hold them.
"""

import shlex

from clearspan.adapt.options import Adapt
from clearspan.adapt.preflight import check_bad, look_at, reading_of
from clearspan.adapt.runner import UPDATED, AdaptRecord
from clearspan.adapt.stages import INPUT, TEXTS, VECTORS
from clearspan.common import terminal
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units import update
from clearspan.pipelines.units.changes import have_changed
from clearspan.shards.command import EXPECTED


def remark(record: AdaptRecord, num_texts: int) -> str:
    """Return a sentence for the user of a folder that was brought up to date; "" for any other folder.

    Args:
        num_texts: the number of texts of which the verdict is.
    """
    if not record.content.get(UPDATED):
        return ""
    return f"The texts to search were brought up to date: model and verdict are of the {num_texts:,} texts before that."


def check_update(options: Adapt, record: AdaptRecord) -> bool:
    """Return whether this call has to bring a finished folder up to date, and tell the user what is new.

    If the folder is not finished, or its inputs have not changed, return False.

    Args:
        options: the options of the call.
        record: the record of the folder; the mark of an update goes if the texts are those of the verdict again.

    Raises:
        UsageError: the inputs have changed, and the user did not choose `--update`.
        CommandError: the inputs, or the vectors of the folder, cannot be read, or too many records are bad.
    """
    if not record.is_finished:
        return False
    folder = str(options.output / VECTORS)
    try:
        if not options.dry_run:
            update.complete_killed_update(folder)
        reading = reading_of(options, skip_unknown=False)
        inputs = planning.find_inputs(options.inputs, reading)

        def is_of(stage: str, dataset: str) -> bool:
            """Return whether a stage has read these inputs, which have not changed since."""
            named = [word for word in shlex.split(record.commands.get(stage, "")) if word.startswith(INPUT)]
            is_same_list = named == [f"{INPUT}{pattern}" for pattern in options.inputs]
            return is_same_list and not have_changed(dataset, inputs, reading, options.quiet)

        if is_of("embed", folder):
            texts = str(options.output / TEXTS)
            if record.content.get(UPDATED) and planning.began(texts) and is_of("texts", texts):
                del record.content[
                    UPDATED
                ]  # an update was killed, and its inputs were taken back; or one led back to them
            return False
        types = planning.began(folder).get("options", {}).get("keep_fields", {})
        look = look_at(options, inputs, options.shown_fields, types)
        check_bad(look.counts)
        changes = update.changed(update.ids_of(folder), look.ids)
    except EXPECTED as error:
        raise CommandError(terminal.one_line(error)) from None
    told = ", ".join(f"{number:,} {change}" for change, number in changes.items())
    if not options.update:
        raise UsageError(
            f"`input`: the inputs have changed since {options.output} was made (texts: {told}): add "
            f"`update` to embed the new ones with the same model, or name another `output` to "
            "train and judge again"
        )
    terminal.notice(f"{options.output}: texts: {told}: new ones are embedded; the model and the verdict stay")
    return True
