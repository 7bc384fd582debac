"""Write the user's own questions (`--queries` of `clearspan adapt`), each with the text that should be found.

    file with queries and texts ───────────────────────────────> questions.jsonl: query and text on each line
    file with queries and ids ──> inputs: texts with these ids ──> questions.jsonl

The inputs are read once, and only if the file has ids.
"""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.common import files
from clearspan.common.errors import PipelineError
from clearspan.common.field_names import matching_name
from clearspan.common.options import Flag
from clearspan.common.progress import counted
from clearspan.common.queries import Query, read_queries
from clearspan.common.terminal import UsageError
from clearspan.pipelines.builders.kept_fields import FieldError, KeptFields
from clearspan.pipelines.builders.text_inputs import encoding_named
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.readers.columns import DEFAULT
from clearspan.pipelines.readers.formats import format_named
from clearspan.pipelines.records import ReadOptions, Split
from clearspan.pipelines.units.plan import find_inputs

NAMED = 3
"""Number of ids that a message names."""


@dataclass(frozen=True, kw_only=True)
class Questions(Command):
    """Command that writes the user's questions, each with the text that should be found."""

    error_prefix: ClassVar[str] = "questions"
    expected: ClassVar[Errors] = (PipelineError, ValueError, OSError)

    queries: Annotated[Path, Flag("FILE")]
    """Csv, tsv or jsonl file with the fields query and text, or query and id."""
    inputs: Annotated[tuple[str, ...], Flag("GLOB", name="--input", path=True)]
    """Files of the texts, as for `clearspan adapt`."""
    output: Annotated[Path, Flag("FILE")]
    """File to write, with a query and its text on each line."""
    id_field: Annotated[str | None, Flag("NAME")] = None
    """Field or column of a text's id."""
    text_field: Annotated[str | None, Flag("NAME")] = None
    """Field or column of the text (default: text)."""
    encoding: Annotated[str | None, Flag("NAME")] = None
    """Encoding of text files (default utf-8)."""

    def run(self) -> Result:
        """Write the questions and their texts to the file `output`."""
        write_questions(self)
        return Printed()


def write_questions(options: Questions) -> None:
    """Write each question, with the text that it should find, as a line of JSON to the file `options.output`.

    The file of questions (`options.queries`) states the text to find, or the id by which it is looked up in the inputs.
    If several texts have this id, the question gets a line for each of them. If the output file has the right content
    already, it is not written again.

    Raises:
        UsageError, DataError, PipelineError: the questions cannot be used, as `answered` says.
    """
    rows = answered(options)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")
    if not options.output.is_file() or options.output.read_bytes() != lines:
        files.write_bytes(options.output, lines)


def answered(options: Questions) -> list[dict[str, str]]:
    """Return the questions, each with a text that it should find: {"query": ..., "text": ...}.

    Raises:
        UsageError: a row of the file of questions states neither the text to find nor its id; or it states an id, and
            `options.id_field` is None or no text of the inputs has this id.
        DataError: the file of questions cannot be used.
        PipelineError: an input cannot be read.
    """
    queries = read_queries(options.queries)
    if without := [query.place for query in queries if not query.has_answer]:
        raise UsageError(
            f"`queries` {options.queries}: {counted(len(without), 'row')} without a relevant document or its id, "
            f"e.g. {without[0]}: add the column text or id"
        )
    texts = _texts_of([query for query in queries if query.answer_id is not None], options)
    return [{"query": query.text, "text": text} for query in queries for text in _answers(query, texts)]


def _answers(query: Query, texts: dict[str, list[str]]) -> list[str]:
    return [query.answer_text or ""] if query.answer_id is None else texts[query.answer_id]


def _texts_of(queries: Sequence[Query], options: Questions) -> dict[str, list[str]]:
    """Return id -> texts with this id, for all ids in the queries. The texts are read from the inputs.

    Several texts may have the same id.

    Raises:
        UsageError: `options.id_field` is None although there are ids, or an id occurs in no record.
        PipelineError: an input cannot be read.
    """
    wanted = {query.answer_id: query.place for query in queries if query.answer_id is not None}
    if not wanted:
        return {}
    if options.id_field is None:
        raise UsageError(
            f"`queries` {options.queries}: names texts by id, but the inputs have no field with a usual name "
            f"for ids: name the field of the ids first in `keep_fields`, or add the column text"
        )
    by_id: dict[str, list[str]] = {}
    for name, text in _records(options, options.id_field):
        if name in wanted:
            by_id.setdefault(name, []).append(text)
    if missing := [name for name in wanted if name not in by_id]:
        shown = ", ".join(f"{name!r} ({wanted[name]})" for name in missing[:NAMED])
        raise UsageError(
            f"`queries` {options.queries}: {counted(len(missing), 'id')} of {len(wanted):,} do not occur in "
            f"the field {options.id_field}: {shown}: correct the file, or name the field of the ids first in "
            f"`keep_fields`"
        )
    return by_id


def _records(options: Questions, id_field: str) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of every record of the inputs that has both. The id is a text, as search results show it.

    Args:
        id_field: the name of the field that holds the id.
    """
    encoding = options.encoding and encoding_named(options.encoding)
    reading = ReadOptions(encoding=encoding, skip_unknown=True, field=options.text_field, keep=(id_field,))
    inputs = find_inputs(options.inputs, reading)
    splits = [Split(entry, 0, None) for entry in inputs.files if format_named(entry.format).has_fields]
    ids = KeptFields({id_field: "string"})
    for record in read_splits(inputs.root, splits, dataclasses.replace(reading, whole=True)):
        if not isinstance(record.value, dict):
            continue
        text = record.value.get(matching_name(record.value, reading.field or DEFAULT) or "")
        with contextlib.suppress(FieldError):  # an object or a list is no id
            (name,) = ids.of(record)
            if isinstance(text, str) and isinstance(name, str):
                yield name, text


main = Questions.main


if __name__ == "__main__":
    sys.exit(main())
