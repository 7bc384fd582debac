"""Fixtures of `tests/pipelines`, which make what is served here."""

from tests.pipelines.conftest import (
    del_tokenization,
    direct,
    encoder,
    pipeline,
    roberta_files,
    roberta_tokenization,
    wiki,
    with_del,
)

__all__ = [
    "del_tokenization",
    "direct",
    "encoder",
    "pipeline",
    "roberta_files",
    "roberta_tokenization",
    "wiki",
    "with_del",
]
