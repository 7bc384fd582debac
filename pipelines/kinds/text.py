"""What the kinds of text share: a tokenizer, the field that holds the text, excluded texts, duplicates.

    record -> text -> ... -> ids -> ... -> examples

A text's id is of its own bytes, so that the same text has the same id however it is packed.
"""

import argparse
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from pipelines.kinds import Kind
from pipelines.readers.jsonl import json_name
from pipelines.records import Input, Reading, Record
from pipelines.tally import Counts, MissingFieldError, RecordError
from pipelines.text.exclude import Excluded, read_texts
from pipelines.text.tokenization import BACKENDS, Tokenization, TokenizerFiles, read_tokenizer, with_special_token
from shards.manifest import FILES_FOLDER

EXCLUDED = f"{FILES_FOLDER}/excluded.u64"
"""The hashes of the excluded texts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextKind(Kind):
    """A kind of text: `text_field` is the field of JSON objects, or the column of tables, that holds it; `exclude` are
    files of texts that must not occur.
    """

    tokenizer: str = ""
    text_field: str | None = None
    text_per: str = "file"
    dedup: bool = False
    exclude: Sequence[str] = ()
    tokenization: str = "auto"

    examples_are_sentences: ClassVar[bool] = False
    """Whether an example is one sentence: of excluded texts each short sentence is then looked for by itself."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add, name = parser.add_argument, cls.name
        add("--tokenizer", required=True, metavar="PATH", help="a tokenizer.json, or the folder with it")
        add("--text-field", metavar="NAME", help="of JSON (default text) or a table (default found)")
        add("--text-per", choices=("file", "line"), default="file", help="a plain text's record (default file)")
        once = f"keep the first of equal {name} (default: {'yes' if cls.dedup else 'no'})"
        add("--dedup", action=argparse.BooleanOptionalAction, default=cls.dedup, help=once)
        add("--exclude", nargs="+", action="extend", default=[], metavar="FILE", help=f"drop {name} with its texts")
        proved = "auto: gigatoken where it gives the same ids"
        add("--tokenization", choices=BACKENDS, default="auto", help=proved)

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("excluded",) if self.exclude else ()

    @property
    def drops_duplicates(self) -> bool:
        return self.dedup

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """What the tokenizer must have, and is given where it lacks it."""
        return ()

    def options(self) -> dict[str, Any]:
        return {"text_field": self.text_field, "text_per": self.text_per}

    def reading(self) -> Reading:
        return Reading(field=self.text_field, text_per=self.text_per)

    def resources(self, inputs: Sequence[Input]) -> dict[str, bytes]:
        """The tokenizer's files, and the hashes of the excluded texts."""
        tokenizer = read_tokenizer(self.tokenizer)
        for token in self.special_tokens:
            tokenizer = with_special_token(tokenizer, token)
        found = tokenizer.resources
        if self.exclude:
            found[EXCLUDED] = Excluded.of(read_texts(self.exclude), self.examples_are_sentences).to_bytes()
        return found

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        """Adds to the kind's fingerprint the tokenizer, and what is excluded."""
        found = {"tokenizer": dataclasses.asdict(TokenizerFiles.of(resources).info), **super().fingerprint(resources)}
        excluded = excluded_of(resources)
        found["options"]["exclude"] = excluded.options() if excluded else None
        return found

    def tokenization_of(self, resources: Mapping[str, bytes]) -> Tokenization:
        """The tokenizer among the resources, ready for work."""
        return Tokenization(TokenizerFiles.main(resources), backend=self.tokenization)

    def nothing_kept(self, counts: Counts) -> str:
        if excluded := counts.filtered.get("excluded"):
            others = "".join(f", {n:,} {why}" for why, n in counts.filtered.items() if n and why != "excluded")
            return f"none of {counts.read:,} {self.name} is kept: {excluded:,} hold a text of --exclude{others}"
        return super().nothing_kept(counts)

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Says how many texts are excluded."""
        excluded = fingerprint["options"]["exclude"]
        if not excluded:
            return []
        return [f"{excluded['texts']:,} texts excluded; {excluded['too_short']:,} too short to look for"]


AnyTextKind = TypeVar("AnyTextKind", bound=TextKind)


@dataclasses.dataclass(frozen=True)
class TextWorker(Generic[AnyTextKind]):
    """What the workers of the kinds of text have."""

    kind: AnyTextKind
    tokenization: Tokenization
    excluded: Excluded | None = None


def excluded_of(resources: Mapping[str, bytes]) -> Excluded | None:
    """The excluded texts among the resources."""
    return Excluded.from_bytes(resources[EXCLUDED]) if EXCLUDED in resources else None


def text_of(record: Record, field: str | None = None) -> tuple[str, bytes]:
    """A record's text, and the same as UTF-8; of a JSON object the text is its `field` (None: "text").

    Raises:
        RecordError: there is none, or it is no text.
    """
    if record.problem:
        raise RecordError(record.problem)
    text: Any = record.value
    if isinstance(text, dict):
        field = field or "text"
        if field not in text:
            raise MissingFieldError(
                f'no field "{field}"', list(text), "name the one that holds the text with --text-field"
            )
        text = text[field]
        if not isinstance(text, str):
            raise RecordError(f'"{field}" is not a string but {json_name(text)}')
    try:
        return text, text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(f"half of a surrogate pair at character {error.start} of the text") from None


def text_id(data: bytes) -> int:
    """The first 63 bits of blake2b over a text's UTF-8 bytes."""
    return int.from_bytes(hashlib.blake2b(data).digest()[:8], "big") >> 1
