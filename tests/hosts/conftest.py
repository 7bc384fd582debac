"""Data and a tiny encoder for training across hosts, those of the tests of training."""

from tests.train.conftest import dataset_folder, documents, texts, tiny, tokenizer_folder

__all__ = ["dataset_folder", "documents", "texts", "tiny", "tokenizer_folder"]
