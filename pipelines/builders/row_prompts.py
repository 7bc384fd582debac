"""The part of the builders of rows that chooses the prompt before each text of a row (`text.prompts`).

    options: names of prompts, or texts ──> plan: the texts ──> a prompt for each text of a row

The options hold what the user writes; the plan (`RowPlan`) has the texts of the prompts, read from the model.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from clearspan.common.encoder.prompts import Prompts, check_two, quoted_prompt
from clearspan.common.errors import PipelineError
from clearspan.common.model_folder import EncoderError
from clearspan.common.options import Flag, Options
from clearspan.pipelines.builders import BuildPlan
from clearspan.pipelines.text.prompts import model_prompts, of_columns


@dataclasses.dataclass(frozen=True)
class RowPlan(BuildPlan):
    """Values that the options of a builder of rows leave open.

    Attributes:
        prompt: the texts of the prompts, as in `PromptOptions.prompt`; empty for no prompts.
        unused: a warning that the model has prompts which this run does not use; "" if there is nothing to warn of.
    """

    prompt: tuple[str, ...] = ()
    unused: str = ""

    def prompts(self, lowercase: bool) -> tuple[str, ...]:
        """Return three prompts: to put before a row's first text, before each positive and before each negative; "" for
        no prompt.

        Args:
            lowercase: whether the prompts are in lower case, like the texts.
        """
        texts = of_columns(self.prompt).values()
        return tuple(text.lower() if lowercase else text for text in texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptOptions(Options):
    """Options that choose the prompts before the texts of a row."""

    prompt_name: Annotated[tuple[str, ...], Flag("NAME", commas=True)] = ()
    """Name of the prompt before each text, from the model in --tokenizer; FIRST,OTHERS: two names, for the first column
    and for the others; none: no prompt (default: of pairs, as encode_query and encode_document choose; of triplets, the
    model's default prompt).
    """
    prompt: Annotated[tuple[str, ...], Flag("TEXT")] = ()
    """Text to put before each text, its final space included; give it once for all columns, or once for each."""

    def validate(self) -> None:
        super().validate()
        check_two(self.prompt_name)
        if self.prompt and self.prompt_name:
            raise ValueError("`prompt` and `prompt_name`: leave one of them out")

    def check_number(self, most: int) -> None:
        """Raise ValueError if there are more prompts than `most`, the maximum number of texts of a row."""
        if len(self.prompt) > most:
            raise ValueError(f"`prompt` {self.prompt[-1]!r}: a row has at most {most} texts: give one prompt for each")

    def known(self, tokenizer: str) -> Prompts | None:
        """Return the prompts of the model whose tokenizer is used; None if the user gives texts of prompts instead.

        Raises:
            PipelineError: the model's prompts cannot be read.
        """
        return None if self.prompt else model_prompts(tokenizer)

    def texts(self, known: Prompts, usual: Sequence[str]) -> tuple[str, ...]:
        """Return the texts of the prompts that `prompt_name` names, or else of the usual ones; () if all are empty.

        Args:
            known: the prompts of the model.
            usual: the texts of the prompts that are used if the user names none.

        Raises:
            PipelineError: the model has no prompt of a name in `prompt_name`.
        """
        try:
            given = known.sides(self.prompt_name)[:2] if self.prompt_name else tuple(usual)
        except EncoderError as error:
            raise PipelineError(str(error)) from None
        return given if any(given) else ()


def prompt_lines(fingerprint: Mapping[str, Any], plan: RowPlan) -> list[str]:
    """Return the lines about prompts for the summary of a run: those that are used, and a warning of unused ones.

    Args:
        fingerprint: the fingerprint of the dataset.
    """
    lines = []
    if prompts := fingerprint["options"].get("prompts"):
        first, second, *_ = prompts.values()
        others = f"before the first text of a row, {quoted_prompt(second)} before the other"
        lines.append(f"{quoted_prompt(first)} {'before each text' if first == second else others}")
    return [*lines, plan.unused] if plan.unused else lines
