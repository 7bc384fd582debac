"""The prompts of an exported model: the prompts of the texts that it was trained on.

    manifests of the shards ──> query prompt and document prompt of the texts ─────┐
    model.path ──> the model's other prompts, which a user can ask for by name ────┴──> Inference.prompts

The export's `encode_query` and `encode_document` therefore put the same prompts before texts as training did. `encode`
uses a default prompt only if queries and documents were trained with one and the same prompt. Spans and sentences have
no prompts: sentences are compared with each other, and a span is cut out of a text without the text's prompt.
"""

import dataclasses
from collections.abc import Mapping

from clearspan.common.encoder.prompts import DOCUMENT, QUERY, Prompts, Sides
from clearspan.common.token_ids import leading_ids
from clearspan.shards import Dataset
from clearspan.train.config.options import RecipeError
from clearspan.train.model.source import Inference

SECOND = "positive"
"""The column of the documents, which the queries in the column `tokens` are to find."""


def prompt_tokens(dataset: Dataset) -> dict[str, int]:
    """Return column -> the number of tokens in the prompt of its texts; columns that have no prompt are left out.

    Neither special tokens nor the prompt's final spaces count.
    """
    prompts = dataset.manifest.prompts
    if not any(prompts.values()):
        return {}
    # A machine that trains on other texts may lack gigatoken.
    from clearspan.common.fast_tokenizer import load_tokenizer

    tokenizer = load_tokenizer((dataset.local_tokenizer() / "tokenizer.json").read_bytes(), prompts=prompts.values())
    return {column: number for column, prompt in prompts.items() if (number := len(leading_ids(tokenizer, prompt)))}


def trained_prompts(inference: Inference, datasets: Mapping[str, Dataset]) -> tuple[Inference, list[str]]:
    """Return a model's inference settings with the prompts of its training texts, and notes for the user about changes.

    Args:
        inference: the inference settings of the model before training.
        datasets: name of a dataset in the recipe -> the dataset.

    Raises:
        RecipeError: two datasets of pairs have different prompts.
    """
    query, document = _prompts_of(datasets)
    before = Prompts(inference.prompts, inference.default_prompt_name)
    if not any([query, document, *inference.prompts.values()]):
        return inference, []
    default = inference.default_prompt_name
    if query != document or before.sides().other != query:
        default = QUERY if query and query == document else None
    named = {**inference.prompts, QUERY: query, DOCUMENT: document}
    after, own = Prompts(named, default).sides(), before.sides()
    notes = []
    if any(inference.prompts.values()) and own != after:
        notes.append(
            f"model.path has other prompts than the training texts, and the export has theirs: {_short(own)} became "
            f"{_short(after)} (`clearspan pairs --tokenizer MODEL` puts a model's own before the texts)"
        )
    elif own != after:
        notes.append(f"the export has the prompts of the training texts: {_short(after)}")
    return dataclasses.replace(inference, prompts=named, default_prompt_name=default), notes


def _prompts_of(datasets: Mapping[str, Dataset]) -> tuple[str, str]:
    """Return (query prompt, document prompt) of those datasets that hold pairs of texts; "" stands for no prompt.

    Args:
        datasets: name of a dataset in the recipe -> the dataset.

    Raises:
        RecipeError: two of these datasets have different prompts.
    """
    found: dict[tuple[str, str], str] = {}
    for name, dataset in datasets.items():
        if dataset.manifest.lengths.keys() >= {"tokens", SECOND}:
            prompts = dataset.manifest.prompts
            found.setdefault((prompts.get("tokens", ""), prompts.get(SECOND, "")), name)
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise RecipeError(
            f"data.{first} has the prompts {one[0]!r} and {one[1]!r}, data.{second} {other[0]!r} and {other[1]!r}: a "
            "model has one prompt for queries and one for documents: make the datasets with the same prompts (pairs "
            f"`prompt`)"
        )
    return next(iter(found), ("", ""))


def _short(sides: Sides) -> str:
    return ", ".join(f"{side} {prompt!r}" if prompt else f"{side} none" for side, prompt in sides._asdict().items())
