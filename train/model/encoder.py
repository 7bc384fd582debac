"""Run any Hugging Face encoder on packed batches: without padding anywhere, and with the same results as with padding.

    ids (T,) -> the model's embeddings and layers, attention within each sequence -> hidden (T, h) -> pooled (N, h)

T is the number of tokens, N the number of sequences, and h the hidden size. When a `TrainableEncoder` is made, the
model's states for two sequences are compared with and without packing. If they differ, the architecture does not
support packing (`common.encoder.attention`). The model's own forward then runs on padded sequences
(`common.encoder.padded`), with the same input and output, and is compared in the same way. A model that fails both
comparisons is refused, so that it cannot give wrong results silently.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from clearspan.common.encoder import forward, packed_pooling, padded, relative
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.autocast import in_fp32
from clearspan.common.encoder.dropout import replace_dropout
from clearspan.common.encoder.forward import UNLIMITED
from clearspan.common.encoder.grouping import by_length
from clearspan.common.encoder.packing import Packed
from clearspan.common.encoder.pooling_names import TRAINED
from clearspan.common.model_folder import EncoderError
from clearspan.common.pretrained import first_position, max_tokens, quiet_transformers
from clearspan.train.config.options import not_one_of
from clearspan.train.model import lora
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.model.source import Given, Inference
from clearspan.train.model.static import StaticModel
from clearspan.train.model.tokenizer import special_tokens

MLM_HEADS = (
    ("lm_head",),  # RoBERTa and its relatives
    ("cls",),  # BERT
    ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    ("head", "decoder"),  # ModernBERT
    ("generator_predictions", "generator_lm_head"),  # ELECTRA
)
"""The modules of each architecture's masked-LM head, in order."""
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
"""The names of the dropout rate of attention weights in configurations."""
MAX_GRAPHS = 64
"""Limit of compiled graphs. torch's default of 8 is too low, because each turn has three: one for training, one for the
first pass of gradient caching, one for validation.
"""


class TrainableEncoder(nn.Module):
    """An HF encoder that takes packed batches, with pooling and, where the model has one, its masked-LM head.

    Args:
        model: a base model or one with a masked-LM head, loaded with `attn_implementation=PACKED_ATTENTION`.
        pooling: `mean`, the mean over all tokens of a sequence, special tokens included (DeCLUTR); `cls`, the state of
            the first token; `lasttoken`, the state of the last token; `weighted`, the mean over all tokens, weighted
            by `token_weights`.
        new_weights: the names of the weights of the masked-LM head that were initialized at random, because the
            model's folder lacks them.
        head: the layers after the pooling: sentence-transformers' Dense modules, whose input and output are as wide as
            the model. They are part of the exported model, as in supervised SimCSE.
        inference: further settings for embedding a text, such as the maximum length and prompts; None for the defaults.
        token_weights: the fixed weight of each token of the vocabulary for the pooling `weighted`, (vocabulary,); None
            for a weight of 1.

    Attributes:
        attends: true if the tokens of a sequence attend to each other. If false (`train.model.static`), a sequence is
            represented by the mean of its token vectors: it has no special tokens and no length limit.
        padded_because: the reason why batches are padded for the model's own forward; "" if the model runs packed.
        adapter: the low-rank adapter that is trained in place of the base model; None if there is none.
        adapted_from: the folder with the weights of the model that the adapter is trained on.
        notes: notes for the user on how the encoder was made, one line each.
        given: for the model that training starts from: its pooling, the number of layers after the pooling, and whether
            it has a masked-LM head. None if training does not start from all weights of a model, or if the pooling of
            that model is not supported.

    Raises:
        EncoderError: the architecture gives other states for a batch than for each sequence alone, packed and padded;
            the pooling is unknown; or the model is static and the pooling is not `mean`.
    """

    token_weights: Tensor

    def __init__(
        self,
        model: PreTrainedModel,
        pooling: str = "mean",
        new_weights: Sequence[str] = (),
        head: Sequence[nn.Module] = (),
        inference: Inference | None = None,
        token_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        if pooling not in TRAINED:
            raise EncoderError(f"pooling {not_one_of(pooling, TRAINED)}")
        self.attends = not isinstance(model, StaticModel)
        if not self.attends and pooling != "mean":
            raise EncoderError(
                f"a static encoder always averages the vectors of its tokens: leave pooling {pooling} out"
            )
        self.model, self.pooling, self.new_weights = model, pooling, list(new_weights)
        self.head, self.inference = nn.ModuleList(head), inference or Inference()
        if pooling == "weighted" or token_weights is not None:
            weights = torch.ones(model.config.vocab_size) if token_weights is None else token_weights
            self.register_buffer("token_weights", weights)
        self.padded_because = ""
        self.adapter: lora.Adapter | None = None
        self.adapted_from = ""
        self.notes: list[str] = []
        self.given: Given | None = None
        self.first_position = first_position(model)
        replace_dropout(model)
        self._patches: Tensor | None = None  # of the current forward; embedding modules have no argument for them
        self._compiled: Callable[..., Tensor] | None = None
        embeddings = getattr(self.base, "embeddings", None)
        if isinstance(embeddings, nn.Module):  # here, not in the forward: a compiled graph needs it in advance
            embeddings.register_forward_hook(self._write_patches)
        if self.attends:
            self._choose_forward()

    @property
    def base(self) -> Any:
        return self.model.base_model

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def dim(self) -> int:
        return int(self.config.hidden_size)

    @property
    def num_layers(self) -> int:
        return int(self.config.num_hidden_layers) if self.attends else 0

    @property
    def num_heads(self) -> int:
        """The number of attention heads of a layer."""
        return int(self.config.num_attention_heads) if self.attends else 0

    def special_tokens(self, tokenizer: Any) -> SpecialTokens:
        """Return the tokenizer's special tokens; for a static model, `prefix` and `suffix` of the result are [].

        Raises:
            EncoderError: the tokenizer has no tokenizer.json, or the result of its post-processor for a sequence
                contains the sequence twice or not at all.
        """
        special = special_tokens(tokenizer)
        return special if self.attends else dataclasses.replace(special, prefix=[], suffix=[])

    @property
    def max_tokens(self) -> int:
        """The maximum length of a sequence in tokens, special tokens included; 2^31 (UNLIMITED) for no limit."""
        if not self.attends:
            return UNLIMITED
        capacity = max_tokens(self.model) or UNLIMITED
        return min(capacity, self.inference.max_tokens or capacity)

    def forward(self, packed: Packed, patches: Tensor | None = None) -> Tensor:
        """Return the hidden states of a packed batch of T tokens and patches, (T, h), where h is the hidden size.

        Each sequence attends to itself only. A static model returns the mean token vector of each of the N sequences
        instead, (N, h). `pool` and `first_states` accept both.

        Args:
            packed: the batch, whose first rows may be patches.
            patches: the embeddings of the patches, (packed.patch_rows, h), which replace the token embeddings of these
                rows. None if the batch has no patches.
        """
        if not self.attends:
            means: Tensor = self.base(packed.ids, packed.cu_seqlens)[: packed.num_sequences]
            return means
        if self.padded_because:
            return padded.states(self.base, packed)
        if packed.lengths is None:
            return (self._compiled or self._states)(packed, patches)
        if packed.ids.device.type != "cpu":
            return self._states(packed, patches)
        grouped, back = by_length(packed)
        states = self._states(grouped, patches)
        return states if back is None else states.index_select(0, back)

    def compile_static(self, backend: str = "inductor", several_backwards: bool = False) -> None:
        """Compile the forward pass of batches that are filled up or cut to a fixed number of tokens (`Budget`).

        Each new shape is compiled at its first batch. Other batches run without compilation, because almost each of
        them has a different shape.

        Args:
            backend: the backend of `torch.compile`.
            several_backwards: whether several backward passes may go through one forward pass. If True, a backward pass
                does not reuse the memory of tensors that the forward pass saved.
        """
        from torch._dynamo import config as dynamo
        from torch._functorch import config as functorch

        dynamo.recompile_limit = max(dynamo.recompile_limit, MAX_GRAPHS)
        functorch.donated_buffer = functorch.donated_buffer and not several_backwards
        self._compiled = torch.compile(self._states, fullgraph=True, dynamic=False, backend=backend)

    def _states(self, packed: Packed, patches: Tensor | None) -> Tensor:
        positions = packed.positions[None] + self.first_position
        if patches is not None and self._position_table:
            # Patches have positions of their own: only keep their indices within the table.
            first, rest = positions[:, : len(patches)], positions[:, len(patches) :]
            positions = torch.cat([first.clamp(max=self._position_table - 1), rest], dim=1)
        self._patches, self._current.packed = patches, packed
        try:
            return forward.states(self.base, packed, positions)
        finally:
            self._patches = None

    def _write_patches(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        """Return the embedding module's output with the first rows replaced by the batch's patches, if it has any.

        This is a forward hook of that module.
        """
        if self._patches is None:
            return output
        return torch.cat([self._patches.to(output.dtype), output[0, len(self._patches) :]])[None]

    @property
    def _position_table(self) -> int:
        """The size of the model's table of position embeddings; 0 if it has none, e.g. with rotary positions."""
        table = getattr(getattr(self.base, "embeddings", None), "position_embeddings", None)
        return int(table.num_embeddings) if isinstance(table, nn.Embedding) else 0

    @property
    def has_dropout(self) -> bool:
        """Return whether the base model has dropout, so that two forward passes over a sequence differ in training."""
        return any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.base.modules())

    @property
    def attention_dropout(self) -> float:
        """The dropout rate of attention weights; 0.0 if the configuration states none."""
        names = (*ATTENTION_DROPOUTS, "dropout_rate")  # T5 has one rate for all dropouts
        return float(next((getattr(self.config, name) for name in names if hasattr(self.config, name)), 0.0))

    def check_patches(self, patches: int) -> None:
        """Raise EncoderError if the encoder cannot take sequences of `patches` patches in place of token embeddings.

        It cannot if it is static, if its batches are padded, if it has no embedding module that patches could replace,
        if its embeddings are not as wide as its layers, or if it has no table of position embeddings and takes fewer
        than `patches` positions.
        """
        if not self.attends:
            raise EncoderError("a static encoder has no layers to encode patches: take a transformer")
        if self.padded_because:
            raise EncoderError(f"{self.padded_because}, and patches train without padding only: take another model")
        embeddings = getattr(self.base, "embeddings", None)
        if not isinstance(embeddings, nn.Module) or isinstance(embeddings, nn.Embedding):
            raise EncoderError(
                f"model type {self.config.model_type!r} has no embedding module in whose place patches could be put"
            )
        if getattr(self.config, "embedding_size", self.dim) != self.dim:
            raise EncoderError(f"model type {self.config.model_type!r}: its embeddings are not as wide as its layers")
        capacity = int(self.config.max_position_embeddings)
        if not self._position_table and patches > capacity:
            raise EncoderError(f"{patches} patches are more than the {capacity} positions that the encoder takes")

    def embedding_parameters(self) -> set[str]:
        """Return the names of the embedding module's parameters. Objectives on patches do not train them."""
        embeddings = getattr(self.base, "embeddings", None) or self.base.get_input_embeddings()
        inside = {id(parameter) for parameter in embeddings.parameters()}
        return {name for name, parameter in self.named_parameters() if id(parameter) in inside}

    def token_table(self) -> list[nn.Parameter]:
        """Return the parameters of the token embeddings, to which the decoder of a masked-LM head may be tied."""
        return list(self.base.get_input_embeddings().parameters())

    def freeze(self, train: str) -> None:
        """Freeze the base model, except for the part that is to train.

        Args:
            train: the part to train, as the recipe's key `model.train` states it. `all`: the whole base model.
                `last-N`: its last N layers. `embeddings`: the token embeddings. `heads`: no part of the base model.

        Raises:
            EncoderError: `train` is `last-N`, and the model has fewer than N layers, or they are not found.
        """
        if train == "all":
            return
        parameters, trained = list(self.base.parameters()), set[nn.Parameter]()
        if train == "embeddings":
            trained = set(self.token_table())
        elif train.startswith("last-"):
            count, layers = int(train.removeprefix("last-")), self._layers()
            if count > len(layers):
                raise EncoderError(f"the encoder has {len(layers)} layers: take at most last-{len(layers)}")
            first = next(layers[-count].parameters())
            # The last layers, and a final norm after them.
            trained = set(parameters[next(i for i, p in enumerate(parameters) if p is first) :])
            # MPNet's table of position biases comes after its layers, but all layers use it.
            named = self.base.named_parameters()
            trained -= {p for name, p in named if name.startswith("encoder.relative_attention_bias.")}
        for parameter in parameters:
            parameter.requires_grad_(parameter.requires_grad and parameter in trained)

    def add_adapter(self, options: Mapping[str, Any], folder: Path) -> None:
        """Freeze the base model, and add a low-rank adapter to its linear layers, which is trained.

        Args:
            options: `rank`, `alpha`, `dropout` and `targets`, as the recipe's section `model.lora` states them.
            folder: the folder with the base model's weights.

        Raises:
            EncoderError: the encoder is static, peft is missing, or the targets fit no linear layer.
        """
        if not self.attends:
            raise EncoderError("a static encoder has no linear layers: train all")
        self.adapter = lora.attach(self.base, options, self.config.model_type)
        self.adapted_from = str(folder.absolute())

    def frozen_by_adapter(self) -> set[str]:
        """Return the names of the weights in `state_dict` that the adapter freezes; checkpoints leave these out."""
        if self.adapter is None:
            return set()
        state = self.state_dict(keep_vars=True)
        return {name for name, each in state.items() if isinstance(each, nn.Parameter) and not each.requires_grad}

    def _layers(self) -> nn.ModuleList:
        """Return the base model's layers, in order."""
        count = getattr(self.config, "num_hidden_layers", None)
        for module in self.base.modules():
            if isinstance(module, nn.ModuleList) and len(module) == count:
                return module
        raise EncoderError(f"model type {self.config.model_type!r} has no list of its layers: train all")

    @in_fp32
    def pool(self, hidden: Tensor, packed: Packed) -> Tensor:
        """Return one vector per sequence, (num_sequences, h) fp32, after the pooling and the layers that follow it.

        h is the hidden size.

        Args:
            hidden: the result of `forward` for `packed`.
            packed: the batch of `num_sequences` sequences.
        """
        if not self.attends:
            pooled = self.first_states(hidden, packed)
        elif self.pooling == "weighted":
            pooled = packed_pooling.pooled(hidden, packed, "mean", weights=self._weights_of(packed))
        else:
            pooled = packed_pooling.pooled(hidden, packed, self.pooling)
        for dense in self.head:
            pooled = dense({"sentence_embedding": pooled})["sentence_embedding"]
        return pooled

    def _weights_of(self, packed: Packed) -> Tensor:
        """Return the pooling weight of each of the batch's T rows, (T,): its token's weight; 1 for a patch."""
        weights = self.token_weights[packed.ids]
        return torch.cat([torch.ones_like(weights[: packed.patch_rows]), weights[packed.patch_rows :]])

    def first_states(self, hidden: Tensor, packed: Packed) -> Tensor:
        """Return the state of each sequence's first token, (num_sequences, h) fp32; 0 for an empty sequence.

        h is the hidden size. For a static model, return the mean of each sequence's token vectors instead.

        Args:
            hidden: the result of `forward` for `packed`.
            packed: the batch of `num_sequences` sequences.
        """
        return packed_pooling.first(hidden, packed) if self.attends else hidden.float()

    @property
    def mlm_head(self) -> tuple[str, ...] | None:
        """The names of the modules that make up the masked-LM head, in order; None if there is no supported head."""
        return next((names for names in MLM_HEADS if all(hasattr(self.model, name) for name in names)), None)

    @property
    def mlm_decoder(self) -> nn.Linear:
        """The last layer of the masked-LM head, which gives the logits."""
        decoder: nn.Linear = self.model.get_output_embeddings()
        return decoder

    def mlm_states(self, hidden: Tensor) -> Tensor:
        """Return the inputs of the masked-LM head's last layer, (tokens, width of these inputs).

        Args:
            hidden: the hidden states, (tokens, hidden size).
        """
        decoder = self.mlm_decoder
        # Some heads call it inside of a larger module.
        decoder.forward = _unchanged  # type: ignore[assignment, method-assign]
        try:
            return self.mlm_logits(hidden)
        finally:
            del decoder.forward

    def mlm_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of the masked-LM head: states (tokens, hidden size) -> (tokens, vocabulary)."""
        for name in self.mlm_head or ():
            hidden = getattr(self.model, name)(hidden)
        return hidden

    def mlm_head_parameters(self) -> set[str]:
        """Return the names of the masked-LM head's parameters, without those tied to the base model's parameters."""
        if self.model is self.base:
            return set()
        prefix = f"{self.model.base_model_prefix}."
        return {name for name, _ in self.model.named_parameters() if not name.startswith(prefix)}

    def checkpoint_activations(self) -> None:
        """Turn on activation checkpointing: keep only each layer's input, and recompute the layer in the backward pass.

        The recomputation draws the same dropout masks.

        Raises:
            EncoderError: the architecture does not support it.
        """
        if not self.base.supports_gradient_checkpointing:
            raise EncoderError(
                f"model type {self.config.model_type!r} has no activation checkpointing: set "
                "training.activation_checkpointing=false"
            )
        new = getattr(self.base, "activation_checkpointing_enable", None)  # the older name warns
        (new or self.base.gradient_checkpointing_enable)({"use_reentrant": False})

    @property
    def pools_as_given(self) -> bool:
        """Return whether the pooling and the number of layers after it equal those in `given`; True if that is None.

        `given` describes the model that training starts from.
        """
        return self.given is None or (self.given.pooling, self.given.layers) == (self.pooling, len(self.head))

    def become_given(self) -> None:
        """Switch permanently to the pooling, and the layers after it, of the model that training starts from (`given`).

        Also drop the masked-LM head if that model has none. Do nothing if `given` is None. The weights are not changed,
        so call this only while they are those of that model, i.e. before the first step.
        """
        if self.given is not None:
            self.pooling, self.head = self.given.pooling, self.head[: self.given.layers]
            if not self.given.has_mlm_head:
                self.drop_mlm_head()

    @contextlib.contextmanager
    def as_given(self) -> Iterator[None]:
        """Return a context in which the encoder pools like the model that training starts from.

        In the context, the encoder has the pooling and the number of layers after the pooling that `given` states; if
        `given` is None, nothing changes. The weights are not changed, so enter the context only before the first step.
        """
        pooling, head = self.pooling, self.head
        if self.given is not None:
            self.pooling, self.head = self.given.pooling, head[: self.given.layers]
        try:
            yield
        finally:
            self.pooling, self.head = pooling, head

    def drop_mlm_head(self) -> None:
        """Drop the masked-LM head and keep only the base model; call this if no objective trains the head."""
        self.model, self.new_weights = self.base, []

    def _choose_forward(self) -> None:
        """Let the model run packed; if this fails, or changes its states for two test sequences, let it run padded.

        Raises:
            EncoderError: it fails, or changes the states, in both ways.
        """
        training, model = self.training, forward.with_shared_weights(self.base).eval()
        self.eval()

        def alone(ids: Tensor) -> Tensor:
            states: Tensor = model(input_ids=ids).last_hidden_state
            return states

        def in_one_group(packed: Packed) -> Tensor:
            return padded.states(self.base, packed, together=True)

        self._current = relative.adapt(self.base)
        with quiet_transformers():  # models with modules of their own ignore the implementation, and warn
            self.base.set_attn_implementation(PACKED_ATTENTION)
            model.set_attn_implementation("eager")
            try:
                forward.check_packing(self.base, self, alone, self.max_tokens)
            except EncoderError as error:
                relative.restore(self.base)
                self.padded_because = str(error)
                for each in (self.base, model):
                    each.set_attn_implementation(self.base.get_correct_attn_implementation(None))
                try:
                    forward.check_packing(self.base, in_one_group, alone, self.max_tokens, "padded")
                except EncoderError as also:
                    reason = str(also).partition(" cannot run padded: ")[2]
                    raise EncoderError(f"{error}, nor padded: {reason}") from None
        self.train(training)

    @property
    def has_position_bias(self) -> bool:
        """Return whether the model runs packed and adds a bias to attention scores that depends on positions."""
        return self.attends and not self.padded_because and relative.is_biased(self.base)


def _unchanged(states: Tensor) -> Tensor:
    return states
