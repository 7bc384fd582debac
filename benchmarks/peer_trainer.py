"""The time of a step of sentence-transformers' own trainer, over prepared pairs.

    SentenceTransformerTrainer, MultipleNegativesRankingLoss (which contrasts in one direction only), AdamW, clipping

The collator returns inputs that are already padded, or concatenated if the trainer's unpadding is on, so no time goes
to tokenization. The trainer saves, logs and reports nothing. Each round is a `train()` call over the same model and
optimizer. The time is measured from the end of its first step to the end of its last, including fetching and copying.
"""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, TrainerCallback
from transformers.utils import is_flash_attn_2_available

from benchmarks.report import Seconds
from clearspan.common.pretrained import quiet_transformers

Features = dict[str, Any]
"""The inputs of a sentence-transformers model for one column."""


def why_not() -> str:
    """Return why the trainer cannot run here, or "" if it can."""
    from sentence_transformers.util import is_training_available

    return "" if is_training_available() else "its packages `datasets` and `accelerate` are not both installed"


def attention(device: str) -> str:
    """Return the attention implementation that unpadding requires, if available."""
    return "flash_attention_2" if device == "cuda" and is_flash_attn_2_available() else "sdpa"


def sentence_transformer(model: Any, pad: int, device: str) -> Any:
    """Return a sentence-transformers model with a base model's weights, mean pooling, and an unused dummy tokenizer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    words = Tokenizer(WordLevel({"[PAD]": pad, "[UNK]": pad + 1}, "[UNK]"))
    with tempfile.TemporaryDirectory() as folder, quiet_transformers():
        model.save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
        options = {"add_pooling_layer": False, "attn_implementation": attention(device)}
        transformer = Transformer(folder, model_kwargs=options)
    return SentenceTransformer(modules=[transformer, Pooling(model.config.hidden_size, "mean")], device=device)


def unpads(model: Any) -> bool:
    """Return whether the model concatenates texts instead of padding them."""
    return bool(model[0].can_flatten_inputs)


def flattened(model: Any, features: dict[str, Tensor], first_position: int) -> Features:
    """Return padded features concatenated as sentence-transformers' own collator does."""
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(*features.values(), strict=True)]
    flat = dict(model[0].data_collator([{"input_ids": row} for row in rows]))
    flat.pop("labels")
    flat["position_ids"] = flat["position_ids"] + first_position
    return flat | {"modality": "text"}


class Clock(TrainerCallback):
    """Records the times when the first and the last step end."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait
        self.ends: list[Seconds] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step in (1, state.max_steps):
            self.wait()
            self.ends.append(Seconds(time.perf_counter(), time.process_time()))


def collator(batches: Iterator[Features]) -> Any:
    """Return a collator that ignores the rows and returns the next prepared batch."""
    from sentence_transformers.base.data_collator import BaseDataCollator

    class Prepared(BaseDataCollator):
        def __call__(self, features: list[dict[str, Any]]) -> Features:
            return dict(next(batches))

    return Prepared(preprocess_fn=lambda _: {})


class PeerTrainer:
    """A contender: the trainer over prepared micro-batches of pairs, in turn.

    Args:
        model: a SentenceTransformer.
        pairs: the features of anchors and positives of each micro-batch, on the host.
        optimizer: the optimizer of the model's parameters.
        temperature: the divisor of cosine similarities.
        wait: waits for the device.
    """

    def __init__(
        self,
        model: Any,
        pairs: list[tuple[Features, Features]],
        optimizer: torch.optim.Optimizer,
        temperature: float,
        max_grad_norm: float,
        wait: Callable[[], None],
    ) -> None:
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        self.model, self.optimizer, self.max_grad_norm, self.wait = model, optimizer, max_grad_norm, wait
        self.loss = MultipleNegativesRankingLoss(model, scale=1 / temperature)
        self.batches: Iterator[Features] = itertools.cycle([self.batch(*pair) for pair in pairs])

    def parameters(self) -> Iterator[nn.Parameter]:
        parameters: Iterator[nn.Parameter] = self.model.parameters()
        return parameters

    @staticmethod
    def batch(anchors: Features, positives: Features) -> Features:
        """Return the features of two columns, named as by sentence-transformers' collator."""
        columns = {"anchor": anchors, "positive": positives}
        return {f"{column}_{key}": value for column, features in columns.items() for key, value in features.items()}

    @property
    def module(self) -> nn.Module:
        return self.loss

    def seconds(self, steps: int, bf16: bool) -> Seconds:
        """Return the mean time of a step, over this many steps."""
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

        class Bare(SentenceTransformerTrainer):
            def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
                """Write no model card."""

        clock = Clock(self.wait)
        texts = [""] * (1 + steps)  # one row a step; the collator replaces it by prepared pairs
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
            options = SentenceTransformerTrainingArguments(
                folder,
                max_steps=len(texts),
                per_device_train_batch_size=1,
                max_grad_norm=self.max_grad_norm,
                bf16=bf16,
                use_cpu=self.model.device.type == "cpu",
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            )
            trainer = Bare(
                model=self.model,
                args=options,
                train_dataset=Dataset.from_dict({"anchor": texts, "positive": texts}),
                loss=self.loss,
                data_collator=collator(self.batches),
                callbacks=[clock],
                optimizers=(self.optimizer, torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)),
            )
            trainer.train()
        # Otherwise the next round would autocast twice.
        trainer.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
        first, last = clock.ends
        return Seconds((last.clock - first.clock) / steps, (last.processor - first.processor) / steps)
