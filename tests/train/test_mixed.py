"""Documents, sentences, triplets, pictures and clips in one packed forward: against padded ones, ranks and resuming."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearspan.common.encoder.packing import Packed
from clearspan.train.data.feed import MicroBatch
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.step.learner import Learner
from tests.train.conftest import TINY_MODEL, write_dataset
from tests.train.ranks import run_on_ranks, train_alone
from tests.train.runs import metrics, same_weights, without_its_last_checkpoint
from tests.train.test_learner import learner_and_batch, step
from tests.train.test_simcse import write_triplets

ROBERTA = dict(option.removeprefix("model.config.").split("=") for option in TINY_MODEL[1:])
SIZE = {key: value for key, value in ROBERTA.items() if key not in ("model_type", "type_vocab_size")}
ARCHITECTURES = {
    "roberta": ROBERTA,
    "bert": {**SIZE, "model_type": "bert", "max_position_embeddings": 64},
    "distilbert": {
        "model_type": "distilbert",
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 64,
        "max_position_embeddings": 64,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "modernbert": {
        "model_type": "modernbert",
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "local_attention": 16,
    },
}
DATA = {
    "documents": ["batch_size=4"],
    "sentences": ["batch_size=8"],
    "triplets": ["batch_size=4"],
    "images": ["batch_size=8", "modality.image_size=32", "modality.patch_size=8"],
    "audio": [
        "batch_size=8",
        *(f"modality.{option}" for option in ("frames=72", "mixup=0.5", "freq_mask=24", "time_mask=20", "views=2")),
    ],
}
SPANS = ("num_anchors=2", "num_positives=2", "max_span=24", "min_span=4", "placement=uniform", "min_distance=16")
OBJECTIVES = {
    "spans": ["data=documents", "turn=documents", *(f"sampler.{option}" for option in SPANS)],
    "mlm": ["data=documents", "turn=documents", "weight=0.5"],
    "clear": ["data=sentences", "turn=sentences", "augment=del-span+reorder", "views=fly"],
    "simcse": ["data=sentences", "turn=sentences", "head=tanh"],
    "supervised": ["data=triplets", "turn=triplets", "type=simcse", "hard_negative_weight=0.5"],
    "pictures": ["data=images", "turn=pictures", "type=patches"],
    "clips": ["data=audio", "turn=clips", "type=patches", "loss=paper", "weight=0.3"],
}
ALL = list(OBJECTIVES)
TRAINING = ["training.max_steps=6", "training.logging_steps=1", "training.save_steps=3", "training.bf16=false"]


@pytest.fixture(scope="module")
def folders(
    documents: list[list[int]],
    sentences: list[list[int]],
    sentences_folder: Path,
    images_folder: Path,
    audio_folder: Path,
    del_tokenizer_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """The five datasets; those of text are of one tokenizer, which has [DEL]."""
    folder = tmp_path_factory.mktemp("mixed")
    return {
        "documents": write_dataset(folder / "documents", documents, del_tokenizer_folder),
        "sentences": sentences_folder,
        "triplets": write_triplets(folder / "triplets", sentences, del_tokenizer_folder, 3),
        "images": images_folder,
        "audio": audio_folder,
    }


@pytest.fixture(scope="module")
def recipe_of(folders: dict[str, Path]) -> Callable[..., list[str]]:
    """Makes the overrides of `demo` that train these objectives alone, on the datasets that they read."""

    def overrides(names: list[str], more: Sequence[str] = (), model: str = "roberta") -> list[str]:
        made = ["data.text=null", "model.config=null", "model.pooling=mean", *TRAINING]
        made += [f"objectives.{name}=null" for name in ("spans", "mlm") if name not in names]
        made += [f"model.config.{key}={value}" for key, value in ARCHITECTURES[model].items()]
        made += [f"objectives.{name}.{option}" for name in names for option in OBJECTIVES[name]]
        used = dict.fromkeys(OBJECTIVES[name][0].removeprefix("data=") for name in names)
        made += [f"data.{name}.{option}" for name in used for option in (f"path={folders[name]}", *DATA[name])]
        made = [one for one in made if ".turn=" not in one] if "optimization=alternate" not in more else made
        return [*made, *more]

    return overrides


def states_loss_and_gradients(learner: Learner, batches: MicroBatch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The encoder's states of what is no filler, the summed loss, and every gradient by its parameter's name."""
    seen: list[Tensor] = []
    hook = learner.encoder.register_forward_hook(lambda _, given, out: seen.append(out[: given[0].num_tokens]))
    learner.zero_grad()
    loss, _ = learner(batches)
    loss.backward()
    hook.remove()
    gradients = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
    return seen[0].detach(), loss.detach(), gradients


@dataclasses.dataclass
class PaddedForwards:
    """What the encoder gives by one padded forward of each block through the plain model, instead of a packed one."""

    encoder: TrainableEncoder

    def __call__(self, packed: Packed, patches: Tensor | None) -> Tensor:
        bounds = packed.cu_seqlens.tolist()
        hidden = torch.zeros(len(packed.ids), self.encoder.dim)
        for block in packed.blocks:
            rows = [range(*bounds[number : number + 2]) for number in range(block.start, block.stop)]
            padded = nn.utils.rnn.pad_sequence([packed.ids[list(one)] for one in rows], True, 1)
            mask = nn.utils.rnn.pad_sequence([torch.ones(len(one)) for one in rows], True).bool()
            flat = [row for one in rows for row in one]
            if patches is not None and flat[0] < len(patches):
                states = self._of_patches(padded, patches[flat].view(*padded.shape, -1))
            else:
                states = self.encoder.base(input_ids=padded, attention_mask=mask.long()).last_hidden_state
            hidden = hidden.index_put((torch.tensor(flat),), states[mask])
        return hidden

    def _of_patches(self, ids: Tensor, patches: Tensor) -> Tensor:
        """Pictures or clips by themselves: what the model's layers make of their embeddings."""
        with self.encoder.base.embeddings.register_forward_hook(lambda *_: patches):
            return self.encoder.base(input_ids=ids).last_hidden_state


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True], ids=["", "budget"])
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_one_packed_forward_gives_what_a_padded_one_of_each_block_gives(
    recipe_of: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, model: str, static: bool
) -> None:
    """States, loss and every gradient, with all objectives: of text, pictures and clips."""
    learner, batches, _ = learner_and_batch(recipe_of(ALL, model=model), static=static)
    states, loss, gradients = states_loss_and_gradients(learner, batches)
    encoder = learner.encoder
    window = getattr(encoder.config, "sliding_window", None)
    assert (window is not None) == (model == "modernbert") and (window or 0) < 17  # the patches of a picture
    for implementation in ("eager", "sdpa"):
        encoder.base.set_attn_implementation(implementation)
        with monkeypatch.context() as patch:
            patch.setattr(encoder, "forward", PaddedForwards(encoder))
            expected_states, expected_loss, expected = states_loss_and_gradients(learner, batches)
        torch.testing.assert_close(states, expected_states, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(loss, expected_loss, atol=1e-5, rtol=1e-5)
        assert gradients.keys() == expected.keys() and len(gradients) > 40
        for name, gradient in expected.items():
            # A CPU's vector width fixes the order in which a sum over all rows is made: token types' is the longest.
            largest = max(1.0, gradient.abs().max().item())
            torch.testing.assert_close(
                gradients[name], gradient, atol=1e-5 * largest, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.slow
def test_autocast_to_bf16_changes_a_loss_by_its_rounding_alone(recipe_of: Callable[..., list[str]]) -> None:
    """Patches in bf16 meet embeddings in fp32; weights keep gradients in fp32."""
    learner, batches, _ = learner_and_batch(recipe_of(ALL))
    _, expected, _ = states_loss_and_gradients(learner, batches)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, found, gradients = states_loss_and_gradients(learner, batches)
    assert found.dtype == torch.float32 and found != expected
    torch.testing.assert_close(found, expected, atol=0, rtol=0.02)
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients.values())


class NothingFromTheHost(TorchDispatchMode):
    """Refuses to copy to the device, which waits for it where the memory is not pinned."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_):
            given = args[func.overloadpacket is torch.ops.aten.copy_]
            assert given.device == found.device, f"copies {given} to {found.device}"
        return found


@pytest.mark.slow
@pytest.mark.parametrize("losses", [("khosla", "paper"), ("published-code", "simclr")])
def test_a_step_of_a_fixed_shape_never_waits_for_the_device(
    recipe_of: Callable[..., list[str]], losses: tuple[str, str]
) -> None:
    """On tensors without values, whose reading, or a shape that depends on them, is an error."""
    options = [f"objectives.{name}.loss={loss}" for name, loss in zip(("pictures", "clips"), losses, strict=True)]
    learner, batches, _ = learner_and_batch(recipe_of(ALL, options), static=True)
    nowhere = torch.device("meta")
    learner.to(nowhere)
    on_device = {name: batch.to(nowhere) for name, batch in batches.items()}
    with NothingFromTheHost():
        total, metrics = learner(on_device)
        total.backward()
    assert all(value.device == nowhere for value in metrics.values())


@dataclasses.dataclass
class StepOnARank:
    """`step` of a recipe, to be sent to other processes."""

    overrides: list[str]

    def __call__(self, rank: int, ranks: int) -> list[Tensor]:
        return step(self.overrides, rank, ranks)


@pytest.mark.slow
def test_two_ranks_give_the_loss_and_gradients_of_one(recipe_of: Callable[..., list[str]]) -> None:
    overrides = recipe_of(ALL)
    one, (first, second) = step(overrides), run_on_ranks(StepOnARank(overrides), 2)
    assert len(one) == len(first) == len(second) > 30 and not torch.equal(first[-1], second[-1])
    for expected, a, b in zip(one, first, second, strict=True):
        torch.testing.assert_close((a + b) / 2, expected, atol=1e-5, rtol=1e-4)


RATES = ("tokens_per_s", "data_wait", "examples_per_s/")


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimization", ["sum", "alternate"])
def test_a_run_of_everything_resumes_bit_for_bit(
    recipe_of: Callable[..., list[str]], tmp_path: Path, optimization: str
) -> None:
    """With dropout, and steps of two micro-batches."""
    dropout = ["model.config.hidden_dropout_prob=0.1", "model.config.attention_probs_dropout_prob=0.1"]
    accumulation = ["training.gradient_accumulation_steps=2", f"optimization={optimization}"]
    options = recipe_of(ALL, [*dropout, *accumulation])
    whole = tmp_path / "whole"
    train_alone(*options, f"output={whole}")
    half = without_its_last_checkpoint(whole, tmp_path / "half")
    train_alone(*options, f"output={half}", "--resume")
    logged = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    names = [name for name in logged[0] if name != "step" and not name.startswith(RATES)]
    assert {f"{name}/loss" for name in ALL} < set(names) and len(logged) == 6
    assert metrics(half, names) == metrics(whole, names) and same_weights(half, whole)
