"""Make a tokenizer read special tokens that a text spells out, such as `</s>` or `[MASK]`, as plain text."""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel


def spell_special(tokenizer: Tokenizer, texts: Iterable[str]) -> bool:
    """Return whether one of the texts spells out a special token of the tokenizer."""
    special = _special(tokenizer)
    return any(token in text for text in texts for token in special)


def read_special_as_text(tokenizer: Tokenizer) -> None:
    """Change a tokenizer in place so that it reads a special token in a text, such as `[MASK]`, as plain text.

    For most models, the setting `encode_special_tokens` suffices. A Unigram or WordLevel model would still find the
    special token in its vocabulary, so the entry in the vocabulary is renamed to a text that never occurs. All ids stay
    the same.
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


def json_without_hiding(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as JSON, with the vocabulary that it had before `read_special_as_text` renamed entries."""
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
    """Return the name that replaces a special token in the vocabulary, so that no text matches this entry.

    It contains spaces, and texts are split at spaces before they are looked up in the vocabulary.
    """
    return f" \0 {token}"
