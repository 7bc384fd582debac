"""Special tokens that a text spells out, such as `</s>` or `[MASK]`: let a tokenizer read them as text."""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel


def spell_special(tokenizer: Tokenizer, texts: Iterable[str]) -> bool:
    """Return whether a text spells out a special token of the tokenizer."""
    special = _special(tokenizer)
    return any(token in text for text in texts for token in special)


def read_special_as_text(tokenizer: Tokenizer) -> None:
    """Let a tokenizer give a special token that a text spells out the ids of its characters.

    `encode_special_tokens` does that for models whose merges never make a special token. In Unigram and WordLevel, the
    model's vocabulary would still give its id: the entry gets a name that no text has. The ids of all entries stay.
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
    """Return a tokenizer as JSON, as it was before `read_special_as_text`, so that all tokens keep their ids."""
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
    """Return a name for an entry of the vocabulary that no text has between the spaces at which it is split."""
    return f" \0 {token}"
