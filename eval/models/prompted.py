"""A model that embeds queries, documents and other texts with different prompts.

    ranking        embeds queries with the query prompt, and documents with the document prompt
    embed, pairs   embed texts with the prompt for other texts

Each distinct prompt has an `EmbeddingSimilarity` of its own, because an `EmbeddingSimilarity` remembers an embedding by
the text without its prompt.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder.embedder import cache_of, encode_of, unit_vectors
from clearspan.common.encoder.prompts import Sides
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.similarity import Similarity, TextPairs
from clearspan.retrieval.products import Vectors

NUM_TIMED = 64
"""The number of texts whose embedding is timed, to estimate the time for all texts."""


class Prompted(Similarity):
    """A model that embeds queries, documents and other texts with different prompts, and compares them by cosine.

    Args:
        prompts: the prompts to put before queries, before documents and before other texts; "" for no prompt.
        embedder: function from a prompt to an `EmbeddingSimilarity` that puts the prompt before each text.

    Attributes:
        embedders: one `EmbeddingSimilarity` for each distinct prompt.
    """

    def __init__(self, prompts: Sides, embedder: Callable[[str], EmbeddingSimilarity]) -> None:
        by_prompt = {prompt: embedder(prompt) for prompt in dict.fromkeys(prompts)}
        self.prompts = prompts
        self.embedders = list(by_prompt.values())
        self._queries, self._documents, self._others = (by_prompt[prompt] for prompt in prompts)

    @classmethod
    def of(
        cls, model: Encoder, prompt_name: Sequence[str], cache: Path | None, batch_tokens: int | None, progress: bool
    ) -> "Prompted":
        """Return a model whose prompts are chosen by their names, and whose embeddings may be cached on disk.

        Args:
            model: the encoder, with its named prompts.
            prompt_name: the name of one prompt for every text, or the names of two prompts, for queries and for
                documents. Texts for which no prompt is named get the prompt that the model itself has for them.
            cache: the folder of cached embeddings; None for no cache.
            batch_tokens: the most tokens in a batch of texts to embed; None for the model's own number.
            progress: whether to show progress bars.

        Raises:
            EncoderError: the model has no prompt with one of the names.
        """

        def embedder(prompt: str) -> EmbeddingSimilarity:
            encode = encode_of(model, prompt, batch_tokens, progress=progress)
            return EmbeddingSimilarity(encode, cache_of(model, prompt, cache))

        return cls(model.prompts.sides(prompt_name), embedder)

    def warnings(self) -> list[str]:
        """Return warnings about the embeddings, for example if some are NaN or if nearly all are equal.

        Each warning is returned once, even if it holds for several prompts.
        """
        return list(dict.fromkeys(warning for embedder in self.embedders for warning in embedder.warnings()))

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Return the embeddings of texts that are neither queries nor documents, (len(texts), dim) float32.

        Args:
            keep: whether to remember the embeddings for later calls.
        """
        return self._others.embed(texts, keep)

    def expected_s(self, documents: Sequence[str]) -> float:
        """Return the estimated time to embed the documents, in seconds.

        A sample of about 64 documents is embedded and timed. If at most 32 of their embeddings are computed,
        because the others are cached or remembered from earlier calls, the result is 0.
        """
        sample = documents[:: max(1, len(documents) // NUM_TIMED)]
        embedder = self._documents
        embedder.embed(sample[:2])  # the first call of a model is slower
        seconds, num_texts = embedder.encode_s, embedder.num_texts
        embedder.embed(sample[: NUM_TIMED + 2])
        num_new = embedder.num_texts - num_texts
        return (embedder.encode_s - seconds) / num_new * len(documents) if num_new > NUM_TIMED / 2 else 0.0

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return the unit vectors of m queries and n documents, (m, dim) and (n, dim) float32.

        Queries are embedded with the prompt for queries, and documents with the prompt for documents.
        """
        if self._queries is self._documents:
            return self._documents.ranking(queries, documents)
        return unit_vectors(self._queries.embed(queries)), unit_vectors(self._documents.embed(documents, keep=False))

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the cosines of the n pairs of each subset, (n,) float64, by the names of the subsets.

        The texts of the pairs get the prompt for texts that are neither queries nor documents.

        Args:
            subsets: the name of each subset -> the first texts and the second texts of its pairs.
        """
        return self._others.pairs(subsets)
