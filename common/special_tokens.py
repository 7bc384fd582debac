"""Special tokens that a text spells out, such as `</s>` or `[MASK]`: make a tokenizer read them as plain text."""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel


def spell_special(tokenizer: Tokenizer, texts: Iterable[str]) -> bool:
    """Return whether one of the texts spells out a special token of the tokenizer."""
    special = _special(tokenizer)
    return any(token in text for text in texts for token in special)


def read_special_as_text(tokenizer: Tokenizer) -> None:
    """Make a tokenizer split a special token in a text into the tokens of its characters, in place.

    `encode_special_tokens` suffices for models whose merges never make a special token. A Unigram or WordLevel model
    would still find the special token in its vocabulary, so the entry is renamed to a text that never occurs. All ids
    stay the same.
    """
    tokenizer.encode_special_tokens = True
    special = _special(tokenizer)
    if isinstance(tokenizer.model, (Unigram, WordLevel)):
        model = json.loads(tokenizer.to_str())["model"]
        if isinstance(tokenizer.model, Unigram):
            pieces = [(_hidden(piece) if piece in special else piece, score) for piece, score in model["vocab"]]
            tokenizer.model = Unigram(pieces, model["unk_id"], model.get("byte_fallback", False))
        else:
            hidden = special - {model["unk_token"]}
            words = {_hidden(word) if word in hidden else word: number for word, number in model["vocab"].items()}
            tokenizer.model = WordLevel(words, model["unk_token"])


def unhidden(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as JSON, with the vocabulary that it had before `read_special_as_text`."""
    record = json.loads(tokenizer.to_str())
    vocabulary, mark = record["model"].get("vocab"), _hidden("")
    if isinstance(tokenizer.model, Unigram):
        record["model"]["vocab"] = [[piece.removeprefix(mark), score] for piece, score in vocabulary]
    elif isinstance(tokenizer.model, WordLevel):
        record["model"]["vocab"] = {word.removeprefix(mark): number for word, number in vocabulary.items()}
    return json.dumps(record)


def _special(tokenizer: Tokenizer) -> set[str]:
    return {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}


def _hidden(token: str) -> str:
    """Return a name for a vocabulary entry that never matches: it has a space, at which texts are split."""
    return f" \0 {token}"
