"""Embeddings as columns of a batch: as float32, as float16, or as int8 with a scale for each vector.

    vectors (n, dim) float32 -> columns -> {vector, scale} -> decoded -> vectors (n, dim) float32

The scale of an int8 vector is its largest absolute value / 127. Each value is divided by the scale and rounded, so a
decoded value is off by at most half the scale.
"""

import numpy as np
import pyarrow as pa

from clearspan.shards.schema import FIELD, VECTOR_TYPES, vector_type

STEPS = 127
"""Largest absolute value in an int8 vector."""


def columns(vectors: np.ndarray, dtype: str) -> dict[str, pa.Array]:
    """Return the columns that hold vectors, by name: `vector`, and for int8 also `scale`.

    `scale` is a number for each vector: its int8 values times this number are its values.

    Args:
        vectors: n vectors of finite values, (n, dim) float32.
        dtype: float32, float16 or int8. With float16, a value outside the range becomes an infinity.
    """
    if dtype != "int8":
        with np.errstate(over="ignore"):
            return {"vector": _column(vectors.astype(dtype, copy=False), dtype)}
    scales = (np.abs(vectors).max(axis=1, initial=0) / STEPS).astype(np.float32)
    codes = np.divide(vectors, scales[:, None], out=np.zeros_like(vectors), where=scales[:, None] > 0)
    # Rounding a subnormal scale can give a code just above 127.
    codes = np.rint(codes).clip(-STEPS, STEPS).astype(np.int8)
    return {"vector": _column(codes, dtype), "scale": pa.array(scales)}


def _column(values: np.ndarray, dtype: str) -> pa.Array:
    flat = pa.array(values.reshape(-1), VECTOR_TYPES[dtype])
    return pa.FixedSizeListArray.from_arrays(flat, type=vector_type(dtype, values.shape[1]))


def decoded(batch: pa.RecordBatch) -> np.ndarray:
    """Return the n vectors of a batch, (n, dim) float32."""
    column = batch.column("vector")
    values = column.flatten().to_numpy(zero_copy_only=True).reshape(len(column), column.type.list_size)
    if "scale" in batch.schema.names:
        return np.asarray(values * batch.column("scale").to_numpy()[:, None], np.float32)
    return np.asarray(values, np.float32)


def field_names(batch_schema: pa.Schema) -> list[str]:
    """Return the names of the input records' fields that a dataset of vectors stores, in the order of their columns."""
    return [name.removeprefix(FIELD) for name in batch_schema.names if name.startswith(FIELD)]


def fields(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the input records' fields that a batch of vectors stores: field name -> column.

    A column has nulls where a record lacks the field.
    """
    return {name: batch.column(f"{FIELD}{name}") for name in field_names(batch.schema)}
