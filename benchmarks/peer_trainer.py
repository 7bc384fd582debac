"""sentence-transformers' own trainer over pairs that are prepared: what a step of it takes.

    SentenceTransformerTrainer, MultipleNegativesRankingLoss (which contrasts one way only), our AdamW and clipping

The collator returns what is padded already, or laid end to end where its unpadding is on, so no time goes to tokens. It
saves, logs and reports nothing. A round is a `train()` of its own over one model and optimizer, of which the first step
is not counted; the others are from the end of that to the end of the last, fetching and copying included.
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

from clearspan.common.pretrained import quiet_transformers

Features = dict[str, Any]
"""What a model of sentence-transformers takes of one column."""


def why_not() -> str:
    """What keeps the trainer from running here; "" where nothing does."""
    from sentence_transformers.util import is_training_available

    return "" if is_training_available() else "its packages `datasets` and `accelerate` are not both installed"


def attention(device: str) -> str:
    """The one that its unpadding wants, where there is one."""
    return "flash_attention_2" if device == "cuda" and is_flash_attn_2_available() else "sdpa"


def sentence_transformer(model: Any, pad: int, device: str) -> Any:
    """sentence-transformers' model with the weights of a base model, mean pooling. It wants a tokenizer, uses none."""
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
    """Whether it lays texts end to end instead of padding them."""
    return bool(model[0].can_flatten_inputs)


def flattened(model: Any, features: dict[str, Tensor], first_position: int) -> Features:
    """Padded features as its own collator lays them end to end."""
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(*features.values(), strict=True)]
    made = dict(model[0].data_collator([{"input_ids": row} for row in rows]))
    made.pop("labels")
    made["position_ids"] = made["position_ids"] + first_position
    return made | {"modality": "text"}


class Clock(TrainerCallback):
    """Seconds from the end of the first step to that of the last, of the clock and of all processors."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait, self.ends = wait, []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step in (1, state.max_steps):
            self.wait()
            self.ends.append((time.perf_counter(), time.process_time()))


def collator(batches: Iterator[Features]) -> Any:
    """One of its own that ignores the rows and returns what is prepared."""
    from sentence_transformers.base.data_collator import BaseDataCollator

    class Prepared(BaseDataCollator):
        def __call__(self, features: list[dict[str, Any]]) -> Features:
            return dict(next(batches))

    return Prepared(preprocess_fn=lambda _: {})


class PeerTrainer:
    """A contender: the trainer over micro-batches of prepared pairs, in turn.

    Args:
        model: a SentenceTransformer. pairs: the features of anchors and of positives of each micro-batch, on the host.
        optimizer: of the model's parameters. temperature: what divides cosines. wait: waits for the device.
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

    @staticmethod
    def batch(anchors: Features, positives: Features) -> Features:
        """As its collator names the features of two columns."""
        columns = {"anchor": anchors, "positive": positives}
        return {f"{column}_{key}": value for column, own in columns.items() for key, value in own.items()}

    @property
    def module(self) -> nn.Module:
        return self.loss

    def seconds(self, steps: int, bf16: bool) -> tuple[float, float]:
        """A step's, of the clock and of all processors, over so many."""
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

        class Bare(SentenceTransformerTrainer):
            def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
                """Writes no model card."""

        clock = Clock(self.wait)
        texts = [""] * (1 + steps)  # a row a step: what the collator returns has the pairs
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
        trainer.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)  # or the next would be autocast twice
        first, last = clock.ends
        return (last[0] - first[0]) / steps, (last[1] - first[1]) / steps
