"""All records are read by the rules of `embed` before a model exists."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearspan.common.errors import PipelineError
from clearspan.common.same_text import text_id
from clearspan.pipelines import counter
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts
from clearspan.pipelines.records import ReadOptions
from clearspan.pipelines.units.full_check import FullCheck, check_all
from clearspan.pipelines.units.plan import find_inputs

BARN = {"text": "They roost in barns.", "year": 1999, "place": "Kent"}
EAR = {"text": "They hunt by ear.", "year": 2001, "place": "Fife"}


def infer_options(folder: Path, max_bad_fraction: float = 0.001, **files: list[dict[str, Any]]) -> FullCheck:
    """Look at all records of files of JSON lines, of which the fields `year` and `place` are to be stored."""
    for name, records in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    texts = EmbeddedTexts(keep_fields=("year", "place"), kept=(("year", "int64"), ("place", "string")))
    reading = texts.reading(ReadOptions(10**6))
    return check_all(find_inputs([str(folder)], reading), reading, texts, max_bad_fraction, quiet=True)


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_all_records_of_all_files_are_looked_at(tmp_path: Path) -> None:
    named, listed = {**BARN, "year": "in spring"}, {**EAR, "place": ["Fife", "Kent"]}
    look = infer_options(
        tmp_path, a=[EAR, {**BARN, "text": " "}, BARN], b=[named, listed], c=[{"text": ["Owls"]}, EAR, listed, named]
    )
    ids = [text_id(record["text"].encode()) for record in (EAR, BARN, EAR)]
    assert look.ids.tolist() == ids and look.ids.dtype == np.int64
    assert (look.counts.read, look.counts.bad, look.counts.filtered) == (9, 5, {"empty": 1})
    assert list(look.wrong) == ["year", "place"]
    assert look.wrong["year"].startswith('b.jsonl:0: its "year" is a string, not int64')
    at = len(json.dumps(named)) + 1
    assert look.wrong["place"].startswith(f'b.jsonl:{at}: its "place" is an array, not string')


@pytest.mark.slow
@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_the_last_of_many_records_and_of_many_files_are_looked_at(tmp_path: Path) -> None:
    named, listed = {**BARN, "year": "in spring"}, {**EAR, "place": ["Fife", "Kent"]}
    files = {f"f{number:03}": [EAR] for number in range(60)}
    look = infer_options(tmp_path, 0.5, **files | {"f030": [*[BARN] * 11_000, named], "f060": [listed]})
    assert (look.counts.read, look.counts.bad, len(look.ids)) == (59 + 11_002, 2, 59 + 11_000)
    assert look.wrong["year"].startswith("f030.jsonl:") and look.wrong["place"].startswith("f060.jsonl:0: ")
    assert look.ids[-1] == look.ids[0] == text_id(EAR["text"].encode())


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_the_look_ends_early_if_most_records_are_bad_and_so_many_are_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter, "EARLY_STOP", 2)
    bad = {"text": ["Owls"]}
    with pytest.raises(PipelineError, match="2 of 2 records are bad"):
        infer_options(tmp_path, a=[bad] * 9)
    assert infer_options(tmp_path, 0.5, a=[bad] * 9).counts.bad == 9
