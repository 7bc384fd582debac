"""Fine-tune a transformer on one labeled task, with transformers' Trainer.

    model folder ──> encoder with a new head ──> epochs over the training rows ──> dev predictions after each epoch

Only the dev predictions are returned. No weights are saved, and the Trainer's output folder is temporary. Weights and
optimizer state are fp32 on every device.
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
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import set_seed

from clearspan.common.model_folder import read_modules, refusing
from clearspan.common.pretrained import load_model, max_tokens, quiet_transformers

Texts = tuple[list[str], ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FinetuningSettings:
    """The settings of fine-tuning.

    Except `max_length`, the defaults are RoBERTa's for all tasks of GLUE (Liu et al. 2019, section 5.1 and appendix C,
    table 10). Adam's settings are from the command in fairseq's `examples/roberta/README.glue.md`.

    Attributes:
        batch_size: the number of rows in a step; RoBERTa searches 16 and 32.
        learning_rate: the peak learning rate; RoBERTa searches 1e-5, 2e-5 and 3e-5.
        epochs: the number of passes over the training rows.
        warmup: the fraction of the steps in which the learning rate rises linearly; afterwards it falls linearly to 0.
        weight_decay: the weight decay of AdamW.
        adam_beta2, adam_epsilon: AdamW's beta2 and epsilon.
        max_length: the most tokens in a row, unless the encoder's limit is lower; longer rows are truncated. RoBERTa
            uses 512.
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
    """Return the folder that holds a model's transformer and tokenizer; None if the model has no transformer.

    For a sentence-transformers folder, this is the folder of the first module; for any other folder, the folder itself.

    Raises:
        EncoderError: the folder's `modules.json` cannot be read.
    """
    modules = read_modules(folder)
    if not modules:
        return folder
    return modules[0].folder if modules[0].kind == "Transformer" else None


def is_trainer_device(device: str) -> bool:
    """Return whether transformers' Trainer can run on a device.

    The Trainer runs on the CPU or on the first GPU, and cannot be given another device.
    """
    parsed = torch.device(device)
    return parsed.type == "cpu" or (parsed.type == "cuda" and not parsed.index)


def finetune(
    folder: Path,
    train: tuple[Texts, Floats],
    dev: Texts,
    num_classes: int,
    settings: FinetuningSettings,
    seed: int,
    device: str = "cpu",
    progress: bool = False,
) -> list[Floats]:
    """Fine-tune a transformer with a new head, and return the predictions for the dev rows after each epoch.

    On a CPU, equal calls return equal predictions. On a GPU they may differ, because the order of summation varies.

    Args:
        folder: the local folder of a transformer and its tokenizer.
        train: the texts of the n training rows, as one list of n texts, or two lists if a row is a pair; and the
            labels, (n,), which are class indices or scores.
        dev: the texts of the m dev rows, as one or two lists of m texts.
        num_classes: the number of classes; 0 for regression.
        settings: the settings of fine-tuning, such as the batch size and the learning rate.
        seed: the seed of the head's weights, of the order of rows, and of dropout.
        device: the torch device: the CPU or the first GPU, since the Trainer runs on no other device.
        progress: whether to show a progress bar on a terminal.

    Returns:
        For each epoch, the predictions for the m dev rows, (m,) float64: class indices, or scores for regression.

    Raises:
        EncoderError: the folder holds no complete model, or transformers has no classification head for its
            architecture.
    """
    set_seed(seed)  # for the head's weights; the Trainer seeds again for orders and dropout
    model, tokenizer = _with_head(folder, num_classes)
    texts, labels = train
    limit = min(settings.max_length, max_tokens(model) or settings.max_length)
    gold = [int(label) for label in labels] if num_classes else labels.tolist()
    history: list[Floats] = []

    def after_epoch(prediction: EvalPrediction) -> dict[str, float]:
        outputs = np.asarray(prediction.predictions, np.float64).reshape(len(dev[0]), -1)
        history.append(outputs.argmax(axis=1).astype(np.float64) if num_classes else outputs[:, 0])
        return {}

    with tempfile.TemporaryDirectory(prefix="clearspan-finetuning-") as scratch, _quiet():
        trainer = Trainer(
            model=model,
            args=_arguments(settings, Path(scratch), len(labels), seed, device, progress),
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=_rows(tokenizer, texts, gold, limit),
            # Only with labels does the Trainer call `after_epoch`.
            eval_dataset=_rows(tokenizer, dev, [gold[0]] * len(dev[0]), limit),
            compute_metrics=after_epoch,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return history


def _with_head(folder: Path, num_classes: int) -> tuple[Any, Any]:
    """Load a transformer and its tokenizer; return the transformer with a new head, and the tokenizer.

    Args:
        folder: the local folder of the two.
        num_classes: the number of classes that the head predicts; 0 for a head that predicts a score.

    Raises:
        EncoderError: the folder holds no complete model, or transformers has no classification head for its
            architecture.
    """
    with refusing(f"{folder}: cannot be fine-tuned"):
        safe = {"local_files_only": True, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(folder, num_labels=max(1, num_classes), **safe)
        tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        if tokenizer.pad_token is None:  # as GPT-2's; any token will do, since padding is masked
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        config.pad_token_id = tokenizer.pad_token_id
        config.problem_type = "single_label_classification" if num_classes else "regression"
        model, _ = load_model(folder, AutoModelForSequenceClassification, config=config)
    return model, tokenizer


def _arguments(
    settings: FinetuningSettings, scratch: Path, num_rows: int, seed: int, device: str, progress: bool
) -> TrainingArguments:
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
        max_grad_norm=0.0,  # fairseq's command for RoBERTa does not clip gradients
        train_sampling_strategy="random",  # sampling by length would also reorder the dev rows
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=not (progress and sys.stderr.isatty()),
        dataloader_pin_memory=False,
        seed=seed,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # otherwise the batch size would be multiplied by the number of GPUs
    return arguments


def _rows(tokenizer: Any, texts: Texts, labels: Sequence[float], limit: int) -> list[dict[str, Any]]:
    encoded = tokenizer(*texts, truncation=True, max_length=limit, split_special_tokens=True)
    return [
        {name: column[row] for name, column in encoded.items()} | {"labels": label} for row, label in enumerate(labels)
    ]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Return a context in which libraries, such as DeepSpeed, write nothing to stdout, the place of results."""
    log = logging.getLogger("DeepSpeed")
    was_disabled = log.disabled
    log.disabled = True
    try:
        with quiet_transformers(), contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        log.disabled = was_disabled
