"""A model's prompts: the text that a model wants before a query, before a document, and before any other text.

    config_sentence_transformers.json -> Prompts -> of a side -> prompt + text -> tokens

E5 and BGE were trained with such prompts, and retrieve worse without them. A text has a side: it is a query, a document
that queries search for, or neither, such as the texts of a pair whose similarity is scored. Each side has the prompt
that sentence-transformers 6 uses:

    query      encode_query      the prompt `query`
    document   encode_document   the prompt `document`
    other      encode            the model's default prompt

The library documents `passage` and `corpus` as further names of documents' prompts. It never uses them, since it gives
every model a prompt `document`, which may be empty. `unused` warns of a model that has only such names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clearspan.common.flags import flag
from clearspan.common.model_folder import INFERENCE, EncoderError, read_inference, read_modules

Side = Literal["query", "document", "other"]
QUERY: Side = "query"
DOCUMENT: Side = "document"
OTHER: Side = "other"
OF_DOCUMENTS = ("document", "passage", "corpus")
"""Words in the names of prompts that are meant for documents."""
NONE = "none"
"""Name that stands for no prompt."""


class Sides(NamedTuple):
    """The prompts before queries, documents and other texts; "" for no prompt."""

    query: str = ""
    document: str = ""
    other: str = ""

    def __str__(self) -> str:
        if len(set(self)) == 1:
            return f"{shown(self.other)} before every text"
        ranked = f"{shown(self.query)} before queries, {shown(self.document)} before documents"
        return f"{ranked}, {shown(self.other)} before other texts"


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model.

    Attributes:
        texts: name -> prompt, which may be empty.
        default_name: the name of the default prompt, if there is one.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default_name: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], place: str = INFERENCE) -> "Prompts":
        """Return the prompts in the content of `config_sentence_transformers.json`; `place` is the file's name.

        Raises:
            EncoderError: a prompt is not a string.
        """
        texts = settings.get("prompts") or {}
        if not isinstance(texts, Mapping):
            raise EncoderError(f"{place}: prompts must be texts by name, not {texts!r}")
        if wrong := [name for name, text in texts.items() if not isinstance(text, str | None)]:
            raise EncoderError(f"{place}: the prompt {wrong[0]!r} is no text")
        return cls({name: text or "" for name, text in texts.items()}, settings.get("default_prompt_name"))

    @classmethod
    def read(cls, folder: Path) -> "Prompts":
        """Return the prompts of a model's folder; a plain Hugging Face folder has none.

        Raises:
            EncoderError: a file of settings cannot be read.
        """
        return cls.of(read_inference(folder), str(folder / INFERENCE)) if read_modules(folder) else cls()

    def of_side(self, side: Side, name: str | None = None) -> str:
        """Return the prompt before a text.

        Args:
            name: name of a prompt to use instead of the side's prompt; `NONE` for no prompt.

        Raises:
            EncoderError: the model has no prompt of this name.
        """
        if name is not None:
            return self._named(name)
        return self.texts.get(side if side != OTHER else self.default_name or "", "")

    def sides(self, names: Sequence[str] = ()) -> Sides:
        """Return the prompt of each side.

        Args:
            names: one name of a prompt for every text, or two names, for queries and for documents; if empty, each side
                has the model's own prompt.

        Raises:
            EncoderError: the model has no prompt with one of these names.
        """
        query: str | None = None
        document: str | None = None
        other: str | None = None
        if len(names) == 1:
            query = document = other = names[0]
        elif names:
            query, document = names
        return Sides(self.of_side(QUERY, query), self.of_side(DOCUMENT, document), self.of_side(OTHER, other))

    def unused(self, *sides: Side) -> str:
        """Return a warning if queries or documents get no prompt although a prompt of the model has a name for them."""
        lines = []
        for side in sides:
            words, whose = (OF_DOCUMENTS, "documents") if side == DOCUMENT else ((QUERY,), "queries")
            names = [name for name, text in self.texts.items() if text and any(word in name for word in words)]
            if self.of_side(OTHER) and self.default_name != (DOCUMENT if side == QUERY else QUERY):
                names.append(str(self.default_name))
            if side != OTHER and not self.of_side(side) and names:
                lines.append(
                    f"{whose} get no prompt, as with sentence-transformers' encode_{side}, although the model has "
                    f"{', '.join(dict.fromkeys(names))}: choose with {flag('--prompt-name')}"
                )
        return "; ".join(lines)

    def _named(self, name: str) -> str:
        if isinstance(name, str) and name in self.texts:  # in Python, it may be anything
            return self.texts[name]
        if name == NONE:
            return ""
        known = f"the model has {', '.join(self.texts)}" if self.texts else "the model has none: leave it out"
        raise EncoderError(f"{flag('--prompt-name')} {name}: {known}")


def check_two(names: Sequence[str]) -> None:
    """Raise ValueError for more than two names of prompts, one for queries and one for documents."""
    if len(names) > 2:
        raise ValueError(
            f"{flag('--prompt-name')} {','.join(names)}: give one name, or that of queries and that of documents"
        )


def shown(prompt: str) -> str:
    """Return a prompt for a message, in quotes so that a space at its end shows."""
    return repr(prompt) if prompt else "no prompt"
