"""A model with prompts: queries, documents and other texts are embedded with different prompts.

    ranking(queries, documents) -> the prompt of queries, and the prompt of documents
    embed, pairs                -> the prompt of texts that are neither

An `EmbeddingSimilarity` remembers texts without their prompt, so there is one `EmbeddingSimilarity` for each distinct
prompt.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder.embedder import cache_of, encode_of, unit_vectors
from clearspan.common.encoder.prompts import Sides
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.similarity import Similarity, TextPairs, Vectors

NUM_TIMED = 64
"""Number of texts whose embedding is timed."""


class Prompted(Similarity):
    """A model that compares texts, embedding queries, documents and other texts with different prompts.

    Args:
        prompts: the prompts before queries, documents and other texts.
        embedder: function from a prompt to the `EmbeddingSimilarity` that embeds texts with this prompt.

    Attributes:
        embedders: an `EmbeddingSimilarity` for each distinct prompt.
    """

    def __init__(self, prompts: Sides, embedder: Callable[[str], EmbeddingSimilarity]) -> None:
        by_prompt = {prompt: embedder(prompt) for prompt in dict.fromkeys(prompts)}
        self.prompts = prompts
        self.embedders = list(by_prompt.values())
        self._queries, self._documents, self._others = (by_prompt[prompt] for prompt in prompts)

    @classmethod
    def of(
        cls, model: Encoder, prompt_name: Sequence[str], cached: Path | None, batch_tokens: int, progress: bool
    ) -> "Prompted":
        """Return a model that caches embeddings on disk.

        Args:
            prompt_name: names of prompts; see `clearspan eval --prompt-name`.
            cached: folder of all cached embeddings; None: no cache.

        Raises:
            EncoderError: the model has no prompt of such a name.
        """

        def embedder(prompt: str) -> EmbeddingSimilarity:
            encode = encode_of(model, prompt, batch_tokens, progress=progress)
            return EmbeddingSimilarity(encode, cache_of(model, prompt, cached))

        return cls(model.prompts.sides(prompt_name), embedder)

    def warnings(self) -> list[str]:
        """Return the warnings of all embedders, each once."""
        return list(dict.fromkeys(warning for embedder in self.embedders for warning in embedder.warnings()))

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Return the embeddings of texts that are neither queries nor documents, (len(texts), dim) float32."""
        return self._others.embed(texts, keep)

    def expected_s(self, documents: Sequence[str]) -> float:
        """Return the estimated seconds to embed the documents, from a few of them; 0 if they are cached."""
        sample = documents[:: max(1, len(documents) // NUM_TIMED)]
        embedder = self._documents
        embedder.embed(sample[:2])  # the first call of a model is slower
        seconds, num_texts = embedder.encode_s, embedder.num_texts
        embedder.embed(sample[: NUM_TIMED + 2])
        num_new = embedder.num_texts - num_texts
        return (embedder.encode_s - seconds) / num_new * len(documents) if num_new > NUM_TIMED / 2 else 0.0

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return the unit vectors of queries and documents, each (n, dim) float32."""
        if self._queries is self._documents:
            return self._documents.ranking(queries, documents)
        return unit_vectors(self._queries.embed(queries)), unit_vectors(self._documents.embed(documents, keep=False))

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the cosine of each pair of texts, by subset: float64 (n,)."""
        return self._others.pairs(subsets)
