"""Options of CLEAR's augmentations, of the command `sentences`."""

import dataclasses
import functools
from typing import Annotated

from annotated_types import Ge, Le, Lt

from clearspan.common.options import Flag, Options
from clearspan.pipelines.augment.steps import DEL, UNITS, Augmentation, AugmentationError
from clearspan.pipelines.augment.synonyms import EXPECTED, SOURCES

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmenting(Options):
    """The options of augmented views; None where the default depends on --augment."""

    augment: Annotated[str | None, Flag("del-word, del-span, reorder, subs, joined by + (default none)", "STEPS")] = (
        None
    )
    synonyms: Annotated[str | None, Flag("for subs: JSON of words to lists of words, or tabbed lines", "FILE")] = None
    views: Annotated[int | None, Flag("augmented views of each sentence (default 2)", "K"), Ge(1), Le(100)] = None
    unit: Annotated[str | None, Flag("unit of deletion and reordering (default token)", choices=UNITS)] = None
    augment_seed: Annotated[
        int | None, Flag("random seed of the views (default 42)", "N"), Ge(-(1 << 63)), Lt(1 << 63)
    ] = None
    del_word: Annotated[float | None, Flag("fraction of units deleted (default 0.7)", "P")] = None
    del_spans: Annotated[int | None, Flag("spans deleted (default 5)", "N")] = None
    del_span: Annotated[float | None, Flag("fraction of units in each deleted span (default 0.05)", "P")] = None
    reorder_pairs: Annotated[int | None, Flag("pairs of spans that are swapped (default 5)", "N")] = None
    reorder_span: Annotated[float | None, Flag("fraction of units in each span (default 0.05)", "P")] = None
    subs: Annotated[float | None, Flag("fraction of words replaced (default 0.3)", "P")] = None
    del_token: Annotated[bool, Flag(f"add {DEL} to the tokenizer even if no step deletes")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.augmentation.steps if self.augmentation else ()
        for name in (*AUGMENTING, *STEP_OF):
            option = f"--{name.replace('_', '-')}"
            if getattr(self, name) is not None and not self.augmentation:
                raise ValueError(f"{option} has no effect without --augment: add it, e.g. --augment subs+del-span")
            if getattr(self, name) is not None and name in STEP_OF and STEP_OF[name] not in steps:
                raise ValueError(f"{option} has no effect without the step {STEP_OF[name]}: add it to --augment")
        if self.augmentation and self.augmentation.substitutes and not self.synonyms:
            raise ValueError(f"--augment with subs needs --synonyms FILE: {EXPECTED}; {SOURCES}")

    @functools.cached_property
    def augmentation(self) -> Augmentation | None:
        """Return the augmentation. Raise ValueError if one of its options is out of range."""
        if self.augment is None:
            return None
        fields = {field.name: getattr(self, field.name, None) for field in dataclasses.fields(Augmentation)}
        try:
            return Augmentation.parse(
                self.augment, **{name: value for name, value in fields.items() if value is not None}
            )
        except AugmentationError as error:
            name = "augment" if error.field == "steps" else error.field.replace("_", "-")
            raise ValueError(f"--{name} {error.reason}") from None

    @property
    def num_views(self) -> int:
        return (2 if self.views is None else self.views) if self.augmentation else 0

    @property
    def seed(self) -> int:
        return 42 if self.augment_seed is None else self.augment_seed

    @property
    def adds_del(self) -> bool:
        """Whether [DEL] is added to the tokenizer."""
        return self.del_token or (self.augmentation is not None and self.augmentation.deletes)
