"""Fixtures of `tests/pipelines`, which make what is searched here."""

from tests.pipelines.conftest import (
    del_tokenization,
    direct,
    encoder,
    head,
    openwebtext,
    pipeline,
    roberta_files,
    roberta_tokenization,
    texts,
    tree,
    wiki,
    with_del,
)

__all__ = [
    "del_tokenization",
    "direct",
    "encoder",
    "head",
    "openwebtext",
    "pipeline",
    "roberta_files",
    "roberta_tokenization",
    "texts",
    "tree",
    "wiki",
    "with_del",
]
