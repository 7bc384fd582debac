"""CUDA's paths on a device that only exists: kernels, dtypes, waits and graphs of each architecture and objective.

`python -m tests.cuda_without_gpu` prints the table with further columns. Two things stay as they are. In fp32 a batch
has no fixed number of tokens, since attention is padded to its longest sequence, so the host waits for the lengths and
for the number of masked tokens, once a micro-batch. A logged step waits for its figures, by which its time is taken.
"""

import re

import pytest

from tests.cuda_without_gpu.answers import HEAD, PARTS, Row

pytestmark = pytest.mark.exhaustive
Rows = dict[tuple[str, str, str], Row]

TABLE = """
name           precision  way               kernel           q k v           waits           graphs  casts
BERT           fp32       embed             efficient        fp32 fp32 fp32  0               -       -
BERT           bf16       embed             varlen           bf16 bf16 bf16  0               -       -
BERT           fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
BERT           bf16       train             varlen+dropout   bf16 bf16 bf16  0               1       26/26
RoBERTa        fp32       embed             efficient        fp32 fp32 fp32  0               -       -
RoBERTa        bf16       embed             varlen           bf16 bf16 bf16  0               -       -
RoBERTa        fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
RoBERTa        bf16       train             varlen+dropout   bf16 bf16 bf16  0               1       26/26
XLM-R          fp32       embed             efficient        fp32 fp32 fp32  0               -       -
XLM-R          bf16       embed             varlen           bf16 bf16 bf16  0               -       -
XLM-R          fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
XLM-R          bf16       train             varlen+dropout   bf16 bf16 bf16  0               1       26/26
ModernBERT     fp32       embed             efficient        fp32 fp32 fp32  0               -       -
ModernBERT     bf16       embed             varlen           bf16 bf16 bf16  0               -       -
ModernBERT     fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
ModernBERT     bf16       train             varlen           bf16 bf16 bf16  0               1       8/8
ELECTRA        fp32       embed             efficient        fp32 fp32 fp32  0               -       -
ELECTRA        bf16       embed             varlen           bf16 bf16 bf16  0               -       -
ELECTRA        fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
ELECTRA        bf16       train             varlen+dropout   bf16 bf16 bf16  0               1       26/26
DistilBERT     fp32       embed             efficient        fp32 fp32 fp32  0               -       -
DistilBERT     bf16       embed             varlen           bf16 bf16 bf16  0               -       -
DistilBERT     fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
DistilBERT     bf16       train             varlen+dropout   bf16 bf16 bf16  0               1       24/24
MPNet          fp32       embed             efficient        fp32 fp32 fp32  0               -       -
MPNet          bf16       embed             efficient        bf16 bf16 bf16  0               -       -
MPNet          fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
MPNet          bf16       train             efficient        bf16 bf16 bf16  0               1       26/26
T5             fp32       embed             efficient        fp32 fp32 fp32  0               -       -
T5             bf16       embed             efficient        bf16 bf16 bf16  0               -       -
T5             fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
T5             bf16       train             efficient        bf16 bf16 bf16  0               1       12/12
Nomic          fp32       embed             efficient        fp32 fp32 fp32  0               -       -
Nomic          bf16       embed             varlen           bf16 bf16 bf16  0               -       -
Nomic          fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
Nomic          bf16       train             varlen           fp32 fp32 bf16  0               1       14/14
Jina v3        fp32       embed             efficient        fp32 fp32 fp32  0               -       -
Jina v3        bf16       embed             varlen           bf16 bf16 bf16  0               -       -
Jina v3        fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
Jina v3        bf16       train             varlen+dropout   fp32 fp32 bf16  0               1       26/26
EuroBERT       fp32       embed             efficient        fp32 fp32 fp32  0               -       -
EuroBERT       bf16       embed             varlen           bf16 bf16 bf16  0               -       -
EuroBERT       fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
EuroBERT       bf16       train             varlen           fp32 fp32 bf16  0               1       14/14
Qwen 3         fp32       embed             efficient        fp32 fp32 fp32  0               -       -
Qwen 3         bf16       embed             varlen           bf16 bf16 bf16  0               -       -
Qwen 3         fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
Qwen 3         bf16       train             varlen           fp32 fp32 bf16  0               1       14/14
Llama          fp32       embed             efficient        fp32 fp32 fp32  0               -       -
Llama          bf16       embed             varlen           bf16 bf16 bf16  0               -       -
Llama          fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
Llama          bf16       train             varlen           fp32 fp32 bf16  0               1       14/14
Gemma 3        fp32       embed             efficient        fp32 fp32 fp32  0               -       -
Gemma 3        bf16       embed             varlen           bf16 bf16 bf16  0               -       -
Gemma 3        fp32       train             efficient        fp32 fp32 fp32  2 pack          -       -
Gemma 3        bf16       train             varlen           fp32 fp32 bf16  0               1       14/14
spans + mlm    fp32       step              efficient        fp32 fp32 fp32  2 mask, 2 pack  -       -
spans + mlm    bf16       step              varlen           bf16 bf16 bf16  0               -       30/28
spans + mlm    fp32       cached            efficient        fp32 fp32 fp32  2 mask, 2 pack  -       -
spans + mlm    bf16       cached            varlen           bf16 bf16 bf16  0               -       54/28
clear          fp32       step              efficient        fp32 fp32 fp32  2 pack          -       -
clear          bf16       step              varlen           bf16 bf16 bf16  0               -       24/24
clear          fp32       cached            efficient        fp32 fp32 fp32  2 pack          -       -
clear          bf16       cached            varlen           bf16 bf16 bf16  0               -       48/24
simcse         fp32       step              efficient        fp32 fp32 fp32  2 pack          -       -
simcse         bf16       step              varlen           bf16 bf16 bf16  0               -       24/24
simcse         fp32       cached            efficient        fp32 fp32 fp32  2 pack          -       -
simcse         bf16       cached            varlen           bf16 bf16 bf16  0               -       48/24
triplets       fp32       step              efficient        fp32 fp32 fp32  2 pack          -       -
triplets       bf16       step              varlen           bf16 bf16 bf16  0               -       24/24
triplets       fp32       cached            efficient        fp32 fp32 fp32  2 pack          -       -
triplets       bf16       cached            varlen           bf16 bf16 bf16  0               -       48/24
mlm            fp32       step              efficient        fp32 fp32 fp32  2 mask, 2 pack  -       -
mlm            bf16       step              varlen           bf16 bf16 bf16  0               -       30/28
mlm            fp32       cached            efficient        fp32 fp32 fp32  2 mask, 2 pack  -       -
mlm            bf16       cached            varlen           bf16 bf16 bf16  0               -       30/28
images         fp32       step              efficient        fp32 fp32 fp32  0               -       -
images         bf16       step              varlen           bf16 bf16 bf16  0               -       26/26
images         fp32       cached            efficient        fp32 fp32 fp32  0               -       -
images         bf16       cached            varlen           bf16 bf16 bf16  0               -       52/26
audio          fp32       step              efficient        fp32 fp32 fp32  0               -       -
audio          bf16       step              varlen           bf16 bf16 bf16  0               -       26/26
audio          fp32       cached            efficient        fp32 fp32 fp32  0               -       -
audio          bf16       cached            varlen           bf16 bf16 bf16  0               -       52/26
static         fp32       step              -                -               2 pack          -       -
static         bf16       step              -                -               0               -       -
static         fp32       cached            -                -               2 pack          -       -
static         bf16       cached            -                -               0               -       -
turns          fp32       step              efficient        fp32 fp32 fp32  2 pack          -       -
turns          bf16       step              varlen           bf16 bf16 bf16  0               -       76/28
turns          fp32       cached            efficient        fp32 fp32 fp32  2 pack          -       -
turns          bf16       cached            varlen           bf16 bf16 bf16  0               -       152/28
checkpointing  fp32       step              efficient        fp32 fp32 fp32  2 pack          -       -
checkpointing  bf16       step              varlen+dropout   bf16 bf16 bf16  0               -       26/26
checkpointing  bf16       cached            varlen+dropout   bf16 bf16 bf16  0               -       52/26
checkpointing  bf16       compiled          varlen+dropout   -               0               1       26/26
checkpointing  bf16       logged            varlen           bf16 bf16 bf16  1 _reduced      -       32/28
spans + mlm    bf16       logged            varlen           bf16 bf16 bf16  1 _reduced      -       32/28
spans + mlm    bf16       compiled, cached  varlen           -               0               2       54/28
clear          bf16       compiled          varlen           -               0               1       24/24
triplets       bf16       compiled          varlen           -               0               1       24/24
turns          bf16       compiled          varlen           -               0               1       76/28
stop flag      bf16       two ranks         -                -               0               -       -
BERT           bf16       dev score         efficient        fp32 fp32 fp32  0               -       -
"""
LINES = [re.split(r"  +", line.rstrip()) for line in TABLE.strip().splitlines()]
EXPECTED = {(name, precision, way): [name, precision, way, *rest] for name, precision, way, *rest in LINES[1:]}
FAULTS = {
    "a mix of devices": "Expected all tensors to be on the same device, but add got cuda:0 and cpu",
    "a number of the host": {},
    "item": {"reads a number": 1},
    "tolist": {"reads a tensor": 1},
    "a mask as an index": {"index by a mask": 1},
    "a mask that is filled": {},
    "a blocking copy": {"copies to the device, blocking": 1},
    "an unpinned copy": {"copies unpinned memory to the device": 1},
    "a pinned copy": {},
    "a copy to the host": {"copies to the host, blocking": 1},
    "numpy": "can't convert cuda:0 device type tensor to numpy",
    "repeats of unknown number": {"repeat_interleave without output_size": 1},
}
"""Fault that is put in on purpose -> the error, or the waits."""


@pytest.mark.parametrize("key", EXPECTED, ids=" ".join)
def test_kernels_dtypes_waits_and_graphs(rows: Rows, key: tuple[str, str, str]) -> None:
    assert dict(zip(HEAD, rows[key].cells(), strict=False)) == dict(zip(HEAD, EXPECTED[key], strict=False))


def test_the_table_has_all_measurements(rows: Rows) -> None:
    assert tuple(LINES[0]) == HEAD
    assert rows.keys() == EXPECTED.keys() | {(name, "fp32", "device") for name in FAULTS}


@pytest.mark.parametrize("name", FAULTS)
def test_the_device_notices(rows: Rows, name: str) -> None:
    row = rows[name, "fp32", "device"]
    assert (row.refused or row.waits) == FAULTS[name]


def test_embeddings_are_those_of_a_cpu(rows: Rows) -> None:
    """In bf16 to its rounding."""
    for (name, precision, way), row in rows.items():
        if way == "embed":
            assert row.difference < (1e-5 if precision == "fp32" else 0.02), name


def test_losses_and_gradients_are_those_of_a_cpu(rows: Rows) -> None:
    """Each objective, with gradient caching and without; of `clear` also the step whose negatives a memory bank has."""
    for (name, precision, way), row in rows.items():
        if way in ("step", "cached", "train"):
            assert row.difference < (1e-4 if precision == "fp32" else 0.02), (name, way)


def test_checkpointing_replays_dropout(rows: Rows) -> None:
    """A layer that is computed again with another dropout would change the gradient's norm by 4e-4."""
    ways = [("fp32", "step"), ("bf16", "step"), ("bf16", "cached")]
    assert max(rows["checkpointing", *each].difference for each in ways) < 1e-6


def test_compiled_steps_have_the_same_losses(rows: Rows) -> None:
    """Dynamo's graphs, run as they are; without dropout."""
    compiled = [row for row in rows.values() if row.way.startswith("compiled") and row.name != "checkpointing"]
    assert len(compiled) == 4
    assert max(row.difference for row in compiled) < 1e-6


def test_the_host_waits_for_a_window_by_its_event_alone(rows: Rows) -> None:
    assert {row.events for row in rows.values() if row.way == "embed"} == {2}


def test_variable_length_attention_has_a_row_for_each_token(rows: Rows) -> None:
    for row in rows.values():
        if row.kernels and row.kernels[0].startswith("varlen"):
            assert row.padding == 1, row.key


def test_a_window_launches_few_kernels(rows: Rows) -> None:
    """BERT of two layers, in two windows; at least, since some operators have several kernels."""
    assert rows["BERT", "bf16", "embed"].launches <= 2 * 60


def test_the_parts_are_known() -> None:
    from tests.cuda_without_gpu import probe

    assert probe.PARTS.keys() == set(PARTS)
