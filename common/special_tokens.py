"""Make a tokenizer read special tokens that a text spells out, such as `</s>` or `[MASK]`, as plain text."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE


def spell_special(tokenizer: Tokenizer, texts: Iterable[str]) -> bool:
    """Return whether one of the texts spells out a special token of the tokenizer."""
    special = _special(tokenizer)
    return any(token in text for text in texts for token in special)


def read_special_as_text(tokenizer: Tokenizer) -> None:
    """Change a tokenizer in place so that it reads a special token in a text, such as `[MASK]`, as plain text.

    For a model that makes its tokens by merges, the setting `encode_special_tokens` suffices. Any other model would
    still find the special token in its vocabulary if the pre-tokenizer keeps it whole, so the entry in the vocabulary
    is renamed to a text that never occurs. All ids stay the same. The token of unknown words keeps its name.
    """
    tokenizer.encode_special_tokens = True
    unknown = getattr(tokenizer.model, "unk_token", None)
    special = {token for token in _special(tokenizer) if tokenizer.model.token_to_id(token) is not None} - {unknown}
    if special and not (isinstance(tokenizer.model, BPE) and not tokenizer.model.ignore_merges):
        model = json.loads(tokenizer.to_str())["model"]
        special -= {"".join(pair) for pair in model.get("merges", ())}  # merges find their result by its name

        def renamed(token: str) -> str:
            return _hidden(token) if token in special else token

        tokenizer.model = Tokenizer.from_str(json.dumps({"model": _with_names(model, renamed)})).model


def json_without_hiding(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as JSON, with the vocabulary that it had before `read_special_as_text` renamed entries."""
    record, mark = json.loads(tokenizer.to_str()), _hidden("")
    return json.dumps({**record, "model": _with_names(record["model"], lambda token: token.removeprefix(mark))})


def _with_names(model: dict[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    """Return a model of a tokenizer.json with other names in its vocabulary, which is a list for Unigram alone."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {**model, "vocab": [(name(token), score) for token, score in vocabulary]}
    return {**model, "vocab": {name(token): number for token, number in vocabulary.items()}}


def _special(tokenizer: Tokenizer) -> set[str]:
    return {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}


def _hidden(token: str) -> str:
    """Return a name for a special token in the vocabulary that no text matches, since texts are split at spaces."""
    return f" \0 {token}"
