"""Options that the command `train` (`train.__main__`) and each rank that it starts (`train.run`) have in common."""

from dataclasses import dataclass
from typing import Annotated

from clearspan.common.options import Flag, Options
from clearspan.common.terminal import REQUIRED

RESUME = (
    "continue from the last complete checkpoint in the output folder; without a checkpoint, start from the beginning"
)
DRY_RUN = "check everything; print the recipe, parameters, device, data, token budget and memory; do not train"


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """Options of the command `train`. Its launcher passes them on, except for `list`, to the process of each rank."""

    overrides: Annotated[
        tuple[str, ...],
        Flag("recipe keys to change, e.g. data.text.batch_size=32", "key=value", positional=True),
    ] = ()
    recipe: Annotated[
        str, Flag("name of a recipe (see --list), or a YAML file of your own", "NAME-or-FILE", path=True)
    ] = ""
    list: Annotated[bool, Flag("list the recipes, and exit")] = False
    resume: Annotated[bool, Flag(RESUME)] = False
    dry_run: Annotated[bool, Flag(DRY_RUN)] = False
    quiet: Annotated[bool, Flag("show no progress bar, and print no metrics")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.recipe and not self.list:
            raise ValueError(f"{REQUIRED}`recipe`")
