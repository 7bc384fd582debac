"""Load models from local folders with sentence-transformers, and embed texts as the library does.

    folder -> settings checked -> SentenceTransformer -> weights checked -> PackedModel -> Model.encode(texts)

The embeddings agree with the library's `encode`, but are computed without padding (`common.encoder.packed`). A model
that does not support this is run by the library itself, with a warning.

A special token that is spelled out in a text, such as "[SEP]", is read as plain text, as in the shards that a model is
trained on. The library would read it as the special token. If one of the model's prompts spells out a special token,
this module, too, recognizes special tokens in prompts and texts.

A sentence-transformers folder defines modules, prompts and length limits; a plain Hugging Face folder gets a pooling.
Faults that the library accepts silently are errors here: missing or surplus weights, settings that it misreads, token
ids without an embedding. Nothing is downloaded, and no code in the folder is run.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer
from tokenizers import Tokenizer

from clearspan.common.compute import batch_tokens_on
from clearspan.common.encoder import stream
from clearspan.common.encoder.batching import batches_by_length
from clearspan.common.encoder.fingerprint import LIBRARIES
from clearspan.common.encoder.library_pooling import as_float32, with_pooling
from clearspan.common.encoder.packed import PackedModel
from clearspan.common.encoder.pooling_names import recorded
from clearspan.common.encoder.prompts import Prompts
from clearspan.common.encoder.reading import LibraryReader
from clearspan.common.encoder.sentence_encoder import SPECIAL_TOKENS, Embedded, FolderEncoder
from clearspan.common.model_folder import (
    EncoderError,
    check_modules,
    check_tokenizer,
    check_transformer,
    model_name,
    read_modules,
    refusing,
)
from clearspan.common.pretrained import check_values, load_model, max_tokens, quiet_transformers
from clearspan.common.progress import ProgressBar
from clearspan.common.special_tokens import read_special_as_text, spell_special
from clearspan.common.terminal import warn


class Model(FolderEncoder):
    """A model that sentence-transformers has loaded.

    Args:
        modules: the model, as sentence-transformers has loaded it.
        folder: the folder that the model was loaded from.
        settings: everything that affects the embeddings, such as the precision, except the folder's files and the
            prompt; it is part of the model's fingerprint.
        packed: the same model for packed batches; None if sentence-transformers runs the model, with padding.

    Attributes:
        modules, packed: the arguments of these names.
        reader: the reader that tokenizes texts for the model; None if the first module is not a transformer.
    """

    def __init__(
        self,
        modules: SentenceTransformer,
        folder: Path,
        settings: Mapping[str, str],
        packed: PackedModel | None = None,
    ) -> None:
        dim = int(modules.get_embedding_dimension())  # after `truncate_dim`, which may be larger
        super().__init__(folder, dim, modules.similarity_fn_name, settings, LIBRARIES)
        self.modules = modules
        self.packed = packed
        first = modules[0]
        self.reader = LibraryReader(first, self.name) if isinstance(first, Transformer) else None
        self.is_packed = None if isinstance(first, StaticEmbedding) else packed is not None
        self.batch_tokens = batch_tokens_on(str(modules.device))

    def _embed(self, texts: Sequence[str], batch_tokens: int, progress: bool, prompt: str) -> Embedded:
        if self.packed is not None and self.reader is not None:
            return stream.embed(self.reader, self.packed, texts, prompt, batch_tokens, progress)
        with self.reader.lock if self.reader else nullcontext():  # the library's tokenizer serves one thread at a time
            return self._by_library(texts, batch_tokens, progress, prompt)

    def _by_library(self, texts: Sequence[str], batch_tokens: int, progress: bool, prompt: str) -> Embedded:
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        tokens = self.reader.read(texts, prompt) if self.reader else None
        read = tokens.lengths.tolist() if tokens else [len(text) for text in texts]
        with ProgressBar(sum(read), f"embedding {len(texts):,} texts", not progress, unit=" tokens") as bar:
            for rows in batches_by_length(read, batch_tokens):
                batch = [texts[row] for row in rows]
                # As `prompt`, not within the texts: some poolings leave the prompt's tokens out.
                embedded = self.modules.encode(batch, prompt=prompt, batch_size=len(batch), show_progress_bar=False)
                out[rows] = embedded
                bar.update(sum(read[row] for row in rows))
        return Embedded(out, tokens.is_truncated if tokens else np.zeros(len(texts), bool))

    def _embed_windows(self, windows: Iterable[Sequence[str]], batch_tokens: int, prompt: str) -> Iterator[Embedded]:
        if self.packed is None or self.reader is None:
            return super()._embed_windows(windows, batch_tokens, prompt)

        def guard() -> AbstractContextManager[None]:
            return refusing(f"{self.name}: cannot encode every text")

        return stream.embed_windows(self.reader, self.packed, windows, prompt, batch_tokens, guard)

    def similarity(self, left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the similarity of each row of `left` (n, dim) with each row of `right` (m, dim), (n, m) float32.

        The model's attribute `similarity_name` says which function is computed: cosine, dot, euclidean or manhattan.
        The distances (euclidean, manhattan) are negated, so that a higher value always means more similar. The
        computation runs on the model's device.
        """
        device = self.modules.device
        scores = self.modules.similarity(torch.tensor(left, device=device), torch.tensor(right, device=device))
        return np.asarray(scores.cpu().numpy(), np.float32)

    @property
    def most_tokens(self) -> int | None:
        return None if self.reader is None else self.reader.most_tokens

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        first = self.modules[0]
        if isinstance(first, StaticEmbedding) and texts:
            whole = Tokenizer.from_str(first.tokenizer.to_str())
            whole.no_truncation()
            return [len(encoding.ids) for encoding in whole.encode_batch(list(texts), add_special_tokens=False)]
        return super()._count_tokens(texts) if self.reader is None else self.reader.count(texts).tolist()


def load_with_library(
    folder: Path,
    pooling: str | None = None,
    device: str = "cpu",
    precision: str = "fp32",
) -> Model:
    """Load a local folder of sentence-transformers, or a plain Hugging Face folder.

    Args:
        pooling: the pooling for a plain Hugging Face folder, such as `cls` (all names are in
            `pooling_names.OF_PLAIN_FOLDER`); None for mean. It must be None for a sentence-transformers folder, which
            defines its own pooling.
        device: the device to load the model on, as torch names it.
        precision: fp32 or bf16. With bf16, the transformer's weights are rounded to bfloat16 after they are checked;
            pooling and later modules run in float32.

    Raises:
        EncoderError: the folder is missing, incomplete or invalid.
    """
    if not folder.is_dir():
        raise EncoderError(f"{folder}: no such folder; give a local folder with a model (config.json and weights)")
    modules = read_modules(folder)
    if not modules:
        check_transformer(folder)
    elif pooling:
        raise EncoderError(f"{folder}: is a sentence-transformers folder, which defines its own pooling")
    pooling = "" if modules else pooling or "mean"
    check_modules(folder, modules)
    with refusing(f"{folder}: no usable model"):
        with quiet_transformers():
            loaded = _load(folder, device, pooling)
        folders = {module.name: module.folder for module in modules}
        for name, module in loaded.named_children():
            module_folder = folders.get(name, folder)
            if isinstance(module, Transformer):
                _check(module, module_folder)
            else:
                check_values(module_folder, module)
            if isinstance(module, StaticEmbedding):
                check_tokenizer(module_folder, module.tokenizer.get_vocab(), module.num_embeddings)
        _read_special_as_text(loaded, Prompts.read(folder))
        packed = _packed(loaded, folder)
        # The type of device affects embeddings in bfloat16.
        settings = {"pooling": recorded(pooling) or "", "dtype": precision, "device": torch.device(device).type}
        if precision == "bf16":
            _round(loaded)
            # Packed sums have another order than the library's: they differ in the third digit (fp32: the seventh).
            settings |= {"forward": "packed"} if packed else {}
        model = Model(loaded, folder, SPECIAL_TOKENS | settings, packed)
        model.encode(["a text", "another text to try it on"])
    return model


def _load(folder: Path, device: str, pooling: str) -> SentenceTransformer:
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    # load_model names weights of another shape; the library's own error names none.
    weights = {"dtype": torch.float32, "ignore_mismatched_sizes": True}
    if pooling:
        options = {"model_kwargs": weights | safe, "processor_kwargs": dict(safe), "config_kwargs": dict(safe)}
        modules = with_pooling(str(folder), pooling, **options)
        tokenizer: Any = modules[0].tokenizer
        if tokenizer.pad_token is None:  # as GPT-2's; any token will do, since padding is masked
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        return SentenceTransformer(modules=modules, device=device)
    return SentenceTransformer(str(folder), device=device, model_kwargs=weights, **safe)


def _packed(loaded: SentenceTransformer, folder: Path) -> PackedModel | None:
    """Return a model that embeds packed batches by the weights of `loaded`; None, with a warning, if it must embed."""
    if isinstance(loaded[0], StaticEmbedding):  # the library itself embeds without padding
        return None
    try:
        return PackedModel(loaded)
    except EncoderError as error:
        warn(f"{model_name(folder)}: sentence-transformers embeds the texts, with padding: {error}")
        return None


def _round(loaded: SentenceTransformer) -> None:
    """Round a transformer's weights, shared with its `PackedModel`, to bfloat16 in place; later modules keep fp32."""
    for module in loaded:
        if isinstance(module, Transformer):
            # Buffers stay in float32: rounding would shift the angles of rotary positions.
            for weight in module.parameters():
                weight.data = weight.data.bfloat16()
            module.register_forward_hook(as_float32)


def _read_special_as_text(loaded: SentenceTransformer, prompts: Prompts) -> None:
    """Let tokenizers read special tokens that texts spell out as text, unless one of the model's prompts spells one."""
    for module in loaded:
        if isinstance(module, StaticEmbedding):
            if not spell_special(module.tokenizer, prompts.texts.values()):
                read_special_as_text(module.tokenizer)
        elif isinstance(module, Transformer):
            tokenizer = module.tokenizer
            if any(token in prompt for prompt in prompts.texts.values() for token in tokenizer.all_special_tokens):
                continue
            tokenizer.split_special_tokens = True
            if tokenizer.is_fast:
                read_special_as_text(tokenizer.backend_tokenizer)


def _check(transformer: Transformer, folder: Path) -> None:
    """Check a transformer's weights and tokenizer, and limit its input to as many tokens as it has positions for.

    The weights are loaded again by `load_model`, since sentence-transformers does not report missing weights.

    Raises:
        EncoderError: weights, tokenizer and configuration do not belong together, or the length limit leaves no room
            for text.
    """
    outputs = {modality["method_output_name"] for modality in transformer.modality_config.values()}
    load_model(
        folder,
        type(transformer.model),
        uses_pooler=outputs != {"last_hidden_state"},
        config=copy.deepcopy(transformer.model.config),
    )
    rows = transformer.model.get_input_embeddings().num_embeddings
    check_tokenizer(folder, transformer.tokenizer.get_vocab(), rows)
    # With padding on the left, absolute positions would depend on the batch.
    transformer.tokenizer.padding_side = "right"
    if longest := max_tokens(transformer.model):
        transformer.max_seq_length = min(transformer.max_seq_length, longest)
    limit = transformer.max_seq_length
    special = transformer.tokenizer.num_special_tokens_to_add()
    if limit <= special:
        raise EncoderError(f"{folder}: takes {limit} tokens, {special} of them special: none is left for text")
