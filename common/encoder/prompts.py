"""A model's prompts: the text that belongs before a query, before a document, and before any other text.

    config_sentence_transformers.json -> Prompts -> the prompt of a text's side -> prompt + text -> tokens

E5 and BGE were trained with such prompts, and retrieve worse without them. The side of a text says whether it is a
query, a document that queries search for, or neither, such as the texts of a pair whose similarity is scored. Each side
has the prompt that a method of sentence-transformers 6 uses:

    side        method             prompt
    query       encode_query       the prompt with the name `query`
    document    encode_document    the prompt with the name `document`
    other       encode             the model's default prompt

The library documents `passage` and `corpus` as further names for the prompt of documents. But it never uses prompts of
these names, since it gives every model a prompt `document`, which may be empty. `Prompts.unused` warns about a model
whose prompt for documents has only such a name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clearspan.common.model_folder import INFERENCE, EncoderError, read_inference, read_modules

Side = Literal["query", "document", "other"]
QUERY: Side = "query"
DOCUMENT: Side = "document"
OTHER: Side = "other"
OF_DOCUMENTS = ("document", "passage", "corpus")
"""Words that the name of a prompt for documents may contain."""
NONE = "none"
"""Name that stands for no prompt."""


class Sides(NamedTuple):
    """The prompts to put before queries, documents and other texts; "" for no prompt."""

    query: str = ""
    document: str = ""
    other: str = ""

    def __str__(self) -> str:
        if len(set(self)) == 1:
            return f"{quoted_prompt(self.other)} before every text"
        ranked = f"{quoted_prompt(self.query)} before queries, {quoted_prompt(self.document)} before documents"
        return f"{ranked}, {quoted_prompt(self.other)} before other texts"


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model.

    Attributes:
        texts: name -> prompt, which may be empty.
        default_name: the name of the default prompt; None if there is no default prompt.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default_name: str | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], place: str = INFERENCE) -> "Prompts":
        """Create an instance from the content of a `config_sentence_transformers.json`.

        Args:
            settings: the content of the file.
            place: the file's path, for messages.

        Raises:
            EncoderError: a prompt is not a string.
        """
        texts = settings.get("prompts") or {}
        if not isinstance(texts, Mapping):
            raise EncoderError(f"{place}: prompts must be texts by name, not {texts!r}")
        if wrong := [name for name, text in texts.items() if not isinstance(text, str | None)]:
            raise EncoderError(f"{place}: the prompt {wrong[0]!r} must be a text")
        return cls({name: text or "" for name, text in texts.items()}, settings.get("default_prompt_name"))

    @classmethod
    def read(cls, folder: Path) -> "Prompts":
        """Read the prompts of a model from its folder; a plain Hugging Face folder has none.

        Raises:
            EncoderError: a file of settings cannot be read.
        """
        return cls.from_settings(read_inference(folder), str(folder / INFERENCE)) if read_modules(folder) else cls()

    def of_side(self, side: Side, name: str | None = None) -> str:
        """Return the prompt to put before a text; "" for no prompt.

        Args:
            side: whether the text is a query, a document or neither: QUERY, DOCUMENT or OTHER.
            name: the name of the prompt to use, or `none` for no prompt; None for the model's own prompt for this side.

        Raises:
            EncoderError: the model has no prompt of this name.
        """
        if name is not None:
            return self._named(name)
        of_side: str | None = side if side != OTHER else self.default_name
        return "" if of_side is None else self.texts.get(of_side, "")

    def sides(self, names: Sequence[str] = ()) -> Sides:
        """Return the prompts to put before queries, before documents and before other texts.

        Args:
            names: the name of one prompt for every text; or the names of two prompts, the first for queries and the
                second for documents. The name `none` stands for no prompt. Texts for which no name is given
                get the model's own prompt for their side.

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
        """Return a warning if queries or documents get no prompt although the model has a prompt that seems to fit.

        Return "" if there is nothing to warn of. A prompt seems to fit if its name contains a word such as `query` or
        `passage`, or if it is the model's default prompt.

        Args:
            sides: the sides of the texts that will be embedded, each QUERY, DOCUMENT or OTHER (neither of the two).
        """
        lines = []
        for side in sides:
            words, whose = (OF_DOCUMENTS, "documents") if side == DOCUMENT else ((QUERY,), "queries")
            names = [name for name, text in self.texts.items() if text and any(word in name for word in words)]
            if self.of_side(OTHER) and self.default_name != (DOCUMENT if side == QUERY else QUERY):
                names.append(str(self.default_name))
            if side != OTHER and not self.of_side(side) and names:
                lines.append(
                    f"{whose} get no prompt, as with sentence-transformers' encode_{side}, although the model has "
                    f"{', '.join(dict.fromkeys(names))}: choose with `prompt_name`"
                )
        return "; ".join(lines)

    def _named(self, name: str) -> str:
        if isinstance(name, str) and name in self.texts:  # in Python, it may be anything
            return self.texts[name]
        if name == NONE:
            return ""
        known = f"the model has {', '.join(self.texts)}" if self.texts else "the model has no prompts: leave it out"
        raise EncoderError(f"`prompt_name` {name}: {known}")


def check_two(names: Sequence[str]) -> None:
    """Raise ValueError if there are more than two names of prompts (one for queries and one for documents)."""
    if len(names) > 2:
        raise ValueError(f"`prompt_name` {','.join(names)}: give one name, or two names: for queries and for documents")


def quoted_prompt(prompt: str) -> str:
    """Return a prompt in quotes, so that a space at its end can be seen, or `no prompt` if it is empty."""
    return repr(prompt) if prompt else "no prompt"
