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


@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize(
    "prompts",
    [
        Sides("q", "d", "o"),
        Sides("q", "d", "q"),
        Sides("q", "q", "o"),
        Sides("q", "q ", "o"),
        Sides("", "d", ""),
        Sides(),
    ],
)
def test_queries_documents_and_other_texts_are_embedded_each_after_its_prompt(prompts: Sides) -> None:
    embedded: list[tuple[str, str]] = []

    def embedder(prompt: str) -> EmbeddingSimilarity:
        def encode(texts: object) -> np.ndarray:
            embedded.extend((prompt, text) for text in texts)  # type: ignore[attr-defined]
            rows = [[len(text), 1 + len(prompt), ord((prompt or "z")[0])] for text in texts]  # type: ignore[attr-defined]
            return np.array(rows, np.float32)

        return EmbeddingSimilarity(encode)

    def unit(prompt: str, texts: list[str]) -> np.ndarray:
        rows = np.array([[len(text), 1 + len(prompt), ord((prompt or "z")[0])] for text in texts], np.float64)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    model = Prompted(prompts, embedder)
    queries, documents = ["Where do owls hunt?", "When?"], ["In woods.", "At night, by ear.", "Owls."]
    of_queries, of_documents = model.ranking(queries, documents)
    np.testing.assert_allclose(np.asarray(of_queries[:]), unit(prompts.query, queries), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(of_documents[:]), unit(prompts.document, documents), rtol=1e-5)
    expected = {(prompts.query, text) for text in queries} | {(prompts.document, text) for text in documents}
    assert set(embedded) == expected and len(embedded) == 5, "each text once"
    embedded.clear()
    of_queries, of_documents = model.ranking(documents[:2], documents)  # as where questions are compared with questions
    np.testing.assert_allclose(np.asarray(of_queries[:]), unit(prompts.query, documents[:2]), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(of_documents[:]), unit(prompts.document, documents), rtol=1e-5)
    others = ["A pair", "of texts"]
    embedded.clear()
    model.embed(others)
    model.pairs({"owls": (others[:1], others[1:])})
    assert set(embedded) == {(prompts.other, text) for text in others}
    assert len(model.embedders) == len(set(prompts))
