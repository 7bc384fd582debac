"""Fine-tune a model's folder on one labelled task, with transformers' Trainer.

    folder ──> encoder + new head ──> epochs over the training rows ──> dev predictions after each epoch

The Trainer writes nothing: what is asked for is the dev predictions of an epoch, so no weights are kept, and its
output folder is a temporary one. Weights and optimizer are fp32 on every device.
"""

import contextlib
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import set_seed

from clearspan.common.model_folder import EncoderError, read_modules
from clearspan.common.pretrained import first_position, load_model, quiet_transformers
from clearspan.common.terminal import MOST_SAID, one_line

Texts = tuple[list[str], ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """Settings of a fine-tuning. The defaults are RoBERTa's for every task of GLUE (Liu et al. 2019, section 5.1 and
    appendix C, table 10; Adam's from the command in fairseq's `examples/roberta/README.glue.md`).

    Attributes:
        batch_size: rows of a step; RoBERTa searches 16 and 32.
        learning_rate: the peak, after the warm-up; RoBERTa searches 1e-5, 2e-5 and 3e-5.
        warmup: the share of the steps that the learning rate rises for; it then falls linearly to 0.
        max_length: tokens that a row is cut to, or fewer where the encoder takes fewer. RoBERTa cuts to 512.
    """

    batch_size: int
    learning_rate: float
    epochs: int = 10
    warmup: float = 0.06
    weight_decay: float = 0.1
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-6
    max_length: int = 128


def transformer_folder(folder: Path) -> Path | None:
    """Where a model's transformer and tokenizer lie: the folder itself, or that of its first module; None: it has none.

    Raises:
        EncoderError: its list of modules cannot be read.
    """
    modules = read_modules(folder)
    if not modules:
        return folder
    return modules[0].folder if modules[0].kind == "Transformer" else None


def trainer_device(device: str) -> bool:
    """Whether the Trainer can be kept to a device: the CPU, or the first GPU, which it takes by itself."""
    wanted = torch.device(device)
    return wanted.type == "cpu" or (wanted.type == "cuda" and not wanted.index)


def finetune(
    folder: Path,
    train: tuple[Texts, Floats],
    dev: Texts,
    num_classes: int,
    settings: Settings,
    seed: int,
    device: str = "cpu",
    progress: str = "",
) -> list[Floats]:
    """Dev predictions after each epoch: (n,) float64 each, class numbers, or scores where `num_classes` is 0.

    Equal calls give equal predictions on the CPU; on a GPU up to its order of summation.

    Args:
        folder: a transformer's and its tokenizer's, local; the head is new, drawn by `seed`.
        train: one or two texts a row, by column, and labels (n,): class numbers or scores.
        dev: the same columns of the dev rows.
        device: one that `trainer_device` admits.
        progress: what a bar is called; empty: none.

    Raises:
        EncoderError: the folder has no whole model that transformers can put such a head on.
    """
    set_seed(seed)  # the head's weights; the Trainer sets it again for orders and dropout
    try:
        config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, num_labels=max(1, num_classes)
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if tokenizer.pad_token is None:  # GPT-2's; what is padded is masked
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        config.pad_token_id = tokenizer.pad_token_id
        config.problem_type = "single_label_classification" if num_classes else "regression"
        model, _ = load_model(folder, AutoModelForSequenceClassification, config=config)
    except EncoderError:
        raise
    except Exception as error:  # what the library raises for a model without such a head is of any type
        raise EncoderError(f"{folder}: cannot be fine-tuned ({one_line(error, MOST_SAID)})") from None
    texts, labels = train
    limit = _limit(model, settings.max_length)
    gold = [int(label) for label in labels] if num_classes else labels.tolist()
    history: list[Floats] = []

    def after_epoch(found: EvalPrediction) -> dict[str, float]:
        outputs = np.asarray(found.predictions, np.float64).reshape(len(dev[0]), -1)
        history.append(outputs.argmax(axis=1).astype(np.float64) if num_classes else outputs[:, 0])
        return {}

    with tempfile.TemporaryDirectory(prefix="clearspan-finetuning-") as scratch, _quiet():
        trainer = Trainer(
            model=model,
            args=_arguments(settings, Path(scratch), len(labels), seed, device),
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=_rows(tokenizer, texts, gold, limit),
            eval_dataset=_rows(tokenizer, dev, [gold[0]] * len(dev[0]), limit),  # labels make it call `after_epoch`
            compute_metrics=after_epoch,
            callbacks=[_Bar(progress)] if progress else [],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return history


def _arguments(settings: Settings, scratch: Path, num_rows: int, seed: int, device: str) -> TrainingArguments:
    steps = -(-num_rows // settings.batch_size) * settings.epochs
    arguments = TrainingArguments(
        output_dir=str(scratch),
        use_cpu=torch.device(device).type == "cpu",
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=4 * settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=round(settings.warmup * steps),
        weight_decay=settings.weight_decay,
        adam_beta2=settings.adam_beta2,
        adam_epsilon=settings.adam_epsilon,
        max_grad_norm=0.0,  # fairseq's command for RoBERTa clips nothing
        train_sampling_strategy="random",  # by length, the dev rows would come in another order too
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=seed,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # or the batch would be split over all of them, and its size multiplied
    return arguments


def _rows(tokenizer: Any, texts: Texts, labels: Sequence[float], limit: int) -> list[dict[str, Any]]:
    encoded = tokenizer(*texts, truncation=True, max_length=limit)
    return [
        {name: column[row] for name, column in encoded.items()} | {"labels": label} for row, label in enumerate(labels)
    ]


def _limit(model: PreTrainedModel, max_length: int) -> int:
    longest = getattr(model.config, "max_position_embeddings", None)
    if isinstance(longest, int) and longest > 0:
        return min(max_length, longest - first_position(model))
    return max_length


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No word on stdout, which is for results: accelerate imports DeepSpeed where it is installed, whose log goes there
    and begins by saying that there is no GPU."""

    def mute(record: logging.LogRecord) -> bool:
        return False

    log = logging.getLogger("DeepSpeed")
    log.addFilter(mute)
    try:
        with quiet_transformers(), contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        log.removeFilter(mute)


class _Bar(TrainerCallback):
    """A bar with rate and ETA on stderr; the Trainer's own writes its log to stdout."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc=self._name, unit="step", disable=None)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(1)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()
