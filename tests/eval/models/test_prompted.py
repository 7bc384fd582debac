"""A model with prompts: how long it will take to embed."""

import numpy as np
import pytest

from clearspan.common.encoder import embedder
from clearspan.common.encoder.prompts import Sides
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.prompted import Prompted


def test_the_time_of_an_embedding_follows_from_a_few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    now, embedded = [0.0], [0]

    def encode(texts: object) -> np.ndarray:
        now[0] += 0.5 * len(texts) + 100 * (not embedded[0])  # type: ignore[arg-type]  # the first call loads
        embedded[0] += len(texts)  # type: ignore[arg-type]
        return np.eye(4, dtype=np.float32)[np.arange(len(texts)) % 4]  # type: ignore[arg-type]

    monkeypatch.setattr(embedder.time, "perf_counter", lambda: now[0])
    model = Prompted(Sides("", "", ""), lambda _: EmbeddingSimilarity(encode))
    texts = [f"text {number}" for number in range(1000)]
    assert model.expected_s(texts) == pytest.approx(500)
    assert embedded[0] < 100, "most are left to the work itself"
    model.embed(texts)
    assert embedded[0] == 1000 and model.expected_s(texts) == 0
