"""Options of CLEAR's augmentations on the command line of `sentences`."""

import argparse
import dataclasses

from clearspan.pipelines.augment.steps import UNITS, Augmentation, AugmentationError
from clearspan.pipelines.augment.synonyms import EXPECTED, SOURCES
from clearspan.pipelines.kinds import flag

AUGMENTING = ("views", "unit", "augment_seed")
"""Options that need --augment."""
STEP_OF = {
    "synonyms": "subs",
    "subs": "subs",
    "del_word": "del-word",
    "del_spans": "del-span",
    "del_span": "del-span",
    "reorder_pairs": "reorder",
    "reorder_span": "reorder",
}
"""Options that need a step of --augment, and the step."""


def add_augmenting_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--augment", metavar="STEPS", help="del-word, del-span, reorder, subs, joined by + (default: no views)")
    add("--synonyms", metavar="FILE", help="for subs, local: JSON of words to lists of words, or lines with tabs")
    add("--views", type=int, metavar="K", help="augmented views of each sentence (default 2)")
    add("--unit", choices=UNITS, help="unit of deletion and reordering (default token)")
    add("--augment-seed", type=int, metavar="N", help="random seed of the views (default 42)")
    add("--del-word", type=float, metavar="P", help="fraction of units deleted (default 0.7)")
    add("--del-spans", type=int, metavar="N", help="spans deleted (default 5)")
    add("--del-span", type=float, metavar="P", help="fraction of units in each deleted span (default 0.05)")
    add("--reorder-pairs", type=int, metavar="N", help="pairs of spans that are swapped (default 5)")
    add("--reorder-span", type=float, metavar="P", help="fraction of units in each span (default 0.05)")
    add("--subs", type=float, metavar="P", help="fraction of words replaced (default 0.3)")


def augmentation_of(arguments: argparse.Namespace) -> Augmentation | None:
    """Return the augmentation of a command line. Raise ValueError if one of its options is out of range or unused."""
    set_options = {name for name in (*AUGMENTING, *STEP_OF) if getattr(arguments, name) is not None}
    if arguments.augment is None:
        for name in (*AUGMENTING, *STEP_OF):
            if name in set_options:
                raise ValueError(f"{flag(name)} has no effect without --augment: add it, e.g. --augment subs+del-span")
        return None
    fields = {field.name for field in dataclasses.fields(Augmentation)}
    try:
        augmentation = Augmentation.parse(
            arguments.augment, **{name: getattr(arguments, name) for name in sorted(set_options & fields)}
        )
    except AugmentationError as error:
        raise ValueError(f"{'--augment' if error.field == 'steps' else flag(error.field)} {error.reason}") from None
    for name, step in STEP_OF.items():
        if name in set_options and step not in augmentation.steps:
            raise ValueError(f"{flag(name)} has no effect without the step {step}: add it to --augment")
    if augmentation.substitutes and not arguments.synonyms:
        raise ValueError(f"--augment with subs needs --synonyms FILE: {EXPECTED}; {SOURCES}")
    return augmentation
