"""Data and a tiny encoder for training across hosts, those of the tests of training; datasets for pipelines."""

from tests.hosts.datasets import case, corpora, long_case
from tests.train.conftest import dataset_folder, documents, texts, tiny, tokenizer_folder

__all__ = ["case", "corpora", "dataset_folder", "documents", "long_case", "texts", "tiny", "tokenizer_folder"]
