"""The prompts of a model that is trained: those that its training texts have, which the export carries.

    manifests of the shards ──> the prompt of queries, and that of documents ──┐
    model.path ──> its own prompts, for those who choose them by name ─────────┴──> Inference.prompts

`encode_query` and `encode_document` of the export then do what training did. A default prompt, which `encode` uses,
stays only if every text was trained with it. Spans and sentences have no prompt: they are compared with each other, and
a span that is cut out of a text leaves the text's prompt behind.
"""

import dataclasses
from collections.abc import Mapping

from clearspan.common.encoder.prompts import DOCUMENT, QUERY, Prompts, Sides
from clearspan.common.flags import flag
from clearspan.common.token_ids import leading_ids
from clearspan.shards import Dataset
from clearspan.train.config.options import RecipeError
from clearspan.train.model.source import Inference

SECOND = "positive"
"""The column with the texts that are to be found by the texts of the column `tokens`."""


def prompt_tokens(dataset: Dataset) -> dict[str, int]:
    """Return the number of tokens of the prompt at the start of each text of a column, by column."""
    prompts = dataset.manifest.prompts
    if not any(prompts.values()):
        return {}
    # A machine that trains on other texts may lack gigatoken.
    from clearspan.common.fast_tokenizer import load_tokenizer

    tokenizer = load_tokenizer((dataset.local_tokenizer() / "tokenizer.json").read_bytes(), prompts=prompts.values())
    return {column: number for column, prompt in prompts.items() if (number := len(leading_ids(tokenizer, prompt)))}


def trained_prompts(inference: Inference, datasets: Mapping[str, Dataset]) -> tuple[Inference, list[str]]:
    """Return the inference settings of a model after training on datasets, and remarks for the user.

    Args:
        inference: the inference settings of the model before training.

    Raises:
        RecipeError: the pairs of two datasets have different prompts.
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
    """Return the query prompt and the document prompt that the texts of datasets have."""
    found: dict[tuple[str, str], str] = {}
    for name, dataset in datasets.items():
        if dataset.manifest.lengths.keys() >= {"tokens", SECOND}:
            prompts = dataset.manifest.prompts
            found.setdefault((prompts.get("tokens", ""), prompts.get(SECOND, "")), name)
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise RecipeError(
            f"data.{first} has the prompts {one[0]!r} and {one[1]!r}, data.{second} {other[0]!r} and {other[1]!r}: a "
            f"model has one of queries and one of documents: make the datasets with the same (pairs {flag('--prompt')})"
        )
    return next(iter(found), ("", ""))


def _short(sides: Sides) -> str:
    return ", ".join(f"{side} {prompt!r}" if prompt else f"{side} none" for side, prompt in sides._asdict().items())
