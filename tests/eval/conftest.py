"""Real shards with a held-out part, made by the pipeline."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from clearspan import make_dataset
from tests.train.conftest import write_sentences


@pytest.fixture(scope="session")
def wikitext_shards(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Articles of WikiText-2, of which 40 % are held out, tokenized as BERT's: 79 and 42 of them."""
    folder = tmp_path_factory.mktemp("wikitext") / "shards"
    texts, tokenizer = shared_data / "text/wikitext2_articles.jsonl", shared_data / "tokenizers/bert-base-uncased"
    make_dataset("documents", texts, folder, tokenizer=tokenizer, min_tokens=64, holdout_fraction=0.4, quiet=True)
    return folder


@pytest.fixture(scope="session")
def sentence_shards(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 sentences of Wikipedia, a dataset that is not split."""
    folder = shared_data / "tokenizers/bert-base-uncased"
    texts = (shared_data / "sentences/wiki1m_head_11914.txt").read_text("utf-8").splitlines()[:40]
    encoded = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(texts, add_special_tokens=False)
    return write_sentences(tmp_path_factory.mktemp("sentences") / "shards", [each.ids for each in encoded], folder)
