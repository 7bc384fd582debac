"""The model that is scored: a local folder, loaded by sentence-transformers, which alone decides a text's embedding.

    folder -> settings checked -> SentenceTransformer -> weights checked -> Model.encode(texts) -> embeddings

Its own folders bring their modules, prompts and length limits; a plain Hugging Face folder gets a pooling. What the
library takes without a word is refused here: weights that are missing or left over, settings of another type, ids that
have no embedding. Nothing is downloaded, and no code of the folder is run.
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from tqdm import tqdm

from clearspan.common.model_folder import EncoderError, check_tokenizer, read_modules
from clearspan.common.pretrained import check_values, first_position, load_model, quiet_transformers
from clearspan.common.terminal import MOST_SAID, one_line
from clearspan.eval.models.embed import batches_by_length
from clearspan.eval.models.fingerprint import folder_fingerprint
from clearspan.eval.models.pooling import as_float32, pooled
from clearspan.eval.models.settings import check_modules, check_transformer


class Model:
    """Texts to embeddings. Attributes: `modules`, the library's; `folder`, where it lies, and its `name`."""

    def __init__(self, modules: SentenceTransformer, folder: Path, settings: Mapping[str, str]) -> None:
        self.modules, self.folder, self.name = modules, folder, folder.resolve().name
        self._settings = dict(settings)

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """Of the folder's files, what they were loaded with, and the libraries' versions; read when first asked for."""
        return folder_fingerprint(self.folder, [module.folder for module in read_modules(self.folder)], self._settings)

    @property
    def dim(self) -> int:
        return int(self.modules.truncate_dim or self.modules.get_embedding_dimension())

    def encode(self, texts: Sequence[str], batch_tokens: int = 16384, progress: bool = False) -> NDArray[np.float32]:
        """Embeddings in the order of the texts: (len(texts), dim) float32.

        Batches hold texts of like length, `batch_tokens` tokens at most, padding included (one longer text makes a
        batch of its own). Texts longer than the model takes are cut at its limit.

        Raises:
            EncoderError: a text cannot be encoded, or the tokenizer gives an id that the model has no embedding for.
        """
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        try:
            with tqdm(total=len(texts), unit="text", desc="encode", disable=None if progress else True) as bar:
                for rows in batches_by_length(self._lengths(texts), batch_tokens):
                    batch = [texts[row] for row in rows]
                    out[rows] = self.modules.encode(batch, batch_size=len(batch), show_progress_bar=False)
                    bar.update(len(batch))
        except EncoderError:
            raise
        except Exception as error:  # what tokenizers and the folder's modules raise is of any type
            raise EncoderError(f"{self.name}: cannot encode every text ({one_line(error, MOST_SAID)})") from None
        return out

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, prompt included; of characters where the first module has no tokenizer."""
        first = self.modules[0]
        if not isinstance(first, Transformer) or not texts:
            return [len(text) for text in texts]
        prompt = self.modules.prompts.get(self.modules.default_prompt_name) or ""
        ids = first.tokenizer(
            [prompt + text for text in texts],
            truncation=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        largest, rows = max(max(row, default=0) for row in ids), first.model.get_input_embeddings().num_embeddings
        if largest >= rows:
            raise EncoderError(
                f"{self.name}: its tokenizer gives id {largest:,}, but its model has {rows:,} embeddings: the two do "
                "not belong together"
            )
        return [len(row) for row in ids]


def load(folder: Path, pooling: str | None = None, device: str = "cpu", dtype: str = "fp32") -> Model:
    """Loads a local folder: sentence-transformers' own, or a plain Hugging Face folder, pooled as named (None: mean).

    With `dtype` bf16 the transformer's weights are bfloat16, rounded from those that were checked; pooling, and what
    comes after it, is float32 as the embeddings are.

    Raises:
        EncoderError: the folder is missing, holds no whole model, or says what cannot be followed.
    """
    if not folder.is_dir():
        raise EncoderError(f"{folder}: no such folder; give a local folder with a model (config.json and weights)")
    modules = read_modules(folder)
    if not modules:
        check_transformer(folder)
    elif pooling:
        raise EncoderError(f"{folder}: is a sentence-transformers folder, which says itself how it pools")
    check_modules(folder, modules)
    try:
        with quiet_transformers():
            loaded = _load(folder, device, (pooling or "mean") if not modules else "", dtype)
        folders = {module.name: module.folder for module in modules}
        for name, module in loaded.named_children():
            where = folders.get(name, folder)
            if isinstance(module, Transformer):
                _check(module, where)
            else:
                check_values(where, module)
        kind = torch.device(device).type  # bfloat16 is summed otherwise on another
        model = Model(
            loaded, folder, {"pooling": (pooling or "mean") if not modules else "", "dtype": dtype, "device": kind}
        )
        model.encode(["a text", "another text to try it on"])
    except EncoderError:
        raise
    except Exception as error:  # what the libraries raise for odd files is of any type
        raise EncoderError(f"{folder}: no usable model ({one_line(error, MOST_SAID)})") from None
    return model


def _load(folder: Path, device: str, pooling: str, dtype: str) -> SentenceTransformer:
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    # Shapes that differ are named later; the library would stop with an error that names nothing.
    weights = {"dtype": torch.float32, "ignore_mismatched_sizes": True}
    if pooling:
        options = {"model_kwargs": weights | safe, "processor_kwargs": dict(safe), "config_kwargs": dict(safe)}
        modules = pooled(str(folder), pooling, **options)
        tokenizer: Any = modules[0].tokenizer
        if tokenizer.pad_token is None:  # GPT-2's; what is padded is masked
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        loaded = SentenceTransformer(modules=modules, device=device)
    else:
        loaded = SentenceTransformer(str(folder), device=device, model_kwargs=weights, **safe)
    if dtype == "bf16":
        for module in loaded:
            if isinstance(module, Transformer):
                # Not its buffers: angles of rotary positions would be of another position.
                for weight in module.parameters():
                    weight.data = weight.data.bfloat16()
                module.register_forward_hook(as_float32)
    return loaded


def _check(transformer: Transformer, folder: Path) -> None:
    """Check the weights by transformers' own account, which the library does not pass on; that the tokenizer belongs to
    the model; and the length limit by what fits.
    """
    outputs = {way["method_output_name"] for way in transformer.modality_config.values()}
    load_model(
        folder,
        type(transformer.model),
        uses_pooler=outputs != {"last_hidden_state"},
        config=copy.deepcopy(transformer.model.config),
    )
    rows = transformer.model.get_input_embeddings().num_embeddings
    check_tokenizer(folder, transformer.tokenizer.get_vocab(), rows)
    transformer.tokenizer.padding_side = "right"  # padded on the left, absolute positions would differ by the batch
    longest = getattr(transformer.model.config, "max_position_embeddings", None)
    if isinstance(longest, int) and longest > 0:  # XLNet has none and says -1
        transformer.max_seq_length = min(transformer.max_seq_length, longest - first_position(transformer.model))
    limit, special = transformer.max_seq_length, transformer.tokenizer.num_special_tokens_to_add()
    if limit <= special:
        raise EncoderError(f"{folder}: takes {limit} tokens, {special} of them special: none is left for text")
