"""Logits and loss over the vocabulary in chunks: the numbers of plain logits, padded or not, without their memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearspan.train.model import chunked_cross_entropy
from clearspan.train.model.chunked_cross_entropy import cross_entropy
from tests.train.conftest import VOCABULARY
from tests.train.ranks import train_alone
from tests.train.runs import metrics, same_weights, without_its_last_checkpoint
from tests.train.test_learner import learner_and_batch

ROWS, WIDTH = 50, 24
CHUNK = 16
"""Rows of a chunk in these tests: 50 rows are three chunks and a part of one."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_cross_entropy, "CHUNK_BYTES", {"cpu": 4 * VOCABULARY * CHUNK})


def problem(size: int = VOCABULARY, bias: bool = True) -> tuple[Tensor, nn.Linear, Tensor]:
    """States, a decoder and labels, of which some slots are unused."""
    torch.manual_seed(0)
    decoder, states = nn.Linear(WIDTH, size, bias), torch.randn(ROWS, WIDTH, requires_grad=True)
    labels = decoder(states).argmax(1)  # most of them would be predicted
    labels[::3] = (labels[::3] + 1) % size
    labels[5:8] = chunked_cross_entropy.IGNORED
    return states, decoder, labels


def plain(states: Tensor, decoder: nn.Linear, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same from logits that are kept."""
    logits = decoder(states)
    loss = F.cross_entropy(logits.float(), labels, ignore_index=chunked_cross_entropy.IGNORED, reduction="sum")
    return loss, (logits.argmax(1) == labels).sum()


def gradients(loss: Tensor, states: Tensor, decoder: nn.Linear) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [states, *decoder.parameters()], retain_graph=True))


@pytest.mark.guarantee("vocabulary-padding")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("multiple", [1, 64])
def test_loss_count_and_gradients_are_those_of_plain_logits(multiple: int, bias: bool) -> None:
    given = problem(bias=bias)
    (loss, correct), (expected, count) = cross_entropy(*given, True, multiple), plain(*given)
    torch.testing.assert_close(loss, expected)
    assert correct == count and 20 < count < ROWS
    for found, right in zip(gradients(0.3 * loss, *given[:2]), gradients(0.3 * expected, *given[:2]), strict=True):
        torch.testing.assert_close(found, right, atol=1e-6, rtol=1e-5)


@pytest.mark.guarantee("vocabulary-padding")
def test_in_bf16_the_numbers_are_those_of_a_plain_layer_under_autocast() -> None:
    given = problem()
    with torch.autocast("cpu", torch.bfloat16):
        (loss, correct), (expected, count) = cross_entropy(*given, True), plain(*given)
    assert loss.dtype == torch.float32 and correct == count
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    for found, right in zip(gradients(loss, *given[:2]), gradients(expected, *given[:2]), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, right, atol=2e-2 * right.abs().max().item(), rtol=2e-2)


@pytest.mark.guarantee("vocabulary-padding")
@pytest.mark.parametrize("size", [VOCABULARY, 1499, 65, 63, 128, 50265])
def test_a_padded_vocabulary_gives_the_same_numbers(size: int) -> None:
    """The loss bit for bit, and the gradients too unless the vocabulary is so small or odd that a CPU takes another
    kernel for the other shape.
    """
    given = problem(size)
    (loss, count), (padded, same) = (cross_entropy(*given, True, multiple) for multiple in (1, 64))
    assert torch.equal(loss, padded) and count == same
    for found, right in zip(gradients(padded, *given[:2]), gradients(loss, *given[:2]), strict=True):
        torch.testing.assert_close(found, right, atol=1e-6, rtol=1e-5)
        assert size not in (VOCABULARY, 50265) or torch.equal(found, right)


@pytest.mark.guarantee("vocabulary-padding")
@pytest.mark.parametrize("bias", [True, False])
def test_an_added_row_is_never_predicted(bias: bool) -> None:
    """All real logits are far below 0, which an added row of zeros would have."""
    states, decoder, labels = problem(bias=bias)
    with torch.no_grad():
        decoder.weight.copy_(-decoder.weight.abs() - 1)
    states = states.detach().abs() * 10_000
    assert decoder(states).max() < -100_000
    labels = decoder(states).argmax(1)
    loss, correct = cross_entropy(states, decoder, labels, True, 64)
    assert correct == ROWS
    torch.testing.assert_close(loss, plain(states, decoder, labels)[0])


@pytest.mark.guarantee("vocabulary-padding")
@pytest.mark.parametrize("bias", [True, False])
def test_each_call_takes_the_weights_as_they_are_and_leaves_them_so(bias: bool) -> None:
    """As after a step, on the next model of one size, and after padding to another multiple."""
    for multiple in (64, 64, 128, 1):
        states, decoder, labels = problem(bias=bias)
        for _ in range(3):
            before = [parameter.detach().clone() for parameter in decoder.parameters()]
            loss, _ = cross_entropy(states, decoder, labels, False, multiple)
            expected, _ = plain(states, decoder, labels)
            torch.testing.assert_close(loss, expected)
            assert all(map(torch.equal, decoder.parameters(), before))
            with torch.no_grad():
                for parameter, gradient in zip(decoder.parameters(), gradients(loss, states, decoder)[1:], strict=True):
                    parameter -= 0.1 * gradient


@pytest.mark.guarantee("vocabulary-padding")
def test_in_bf16_a_padded_vocabulary_has_the_gradients_of_one_that_is_not() -> None:
    found = []
    for multiple in (1, 64):
        states, decoder, labels = problem()
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = cross_entropy(states, decoder, labels, True, multiple)
        found.append([loss, *gradients(loss, states, decoder)])
    for plain_one, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain_one, atol=1e-3 * plain_one.abs().max().item(), rtol=1e-3)


@pytest.mark.guarantee("vocabulary-padding")
def test_the_gradient_may_be_taken_twice() -> None:
    """As the norms by objective and then the step do."""
    states, decoder, labels = problem()
    loss, _ = cross_entropy(states, decoder, labels)
    assert all(map(torch.equal, gradients(loss, states, decoder), gradients(loss, states, decoder)))


class Watched(TorchDispatchMode):
    """The number of matrix products within it, and of the values of the largest tensor that they give."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.largest = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if "mm" in str(function):
            self.products += 1
        # The transposed weight is not contiguous.
        if isinstance(result, Tensor) and result.is_contiguous() and result.shape[1:] == (VOCABULARY,):
            self.largest = max(self.largest, result.numel())
        return result


@pytest.mark.guarantee("vocabulary-padding")
def test_no_more_logits_than_a_chunks_exist_at_once() -> None:
    given = problem()
    with Watched() as watched:
        loss, _ = cross_entropy(*given, True)
        loss.backward()
    assert watched.largest == CHUNK * VOCABULARY and watched.products == 3 * 4


@pytest.mark.guarantee("vocabulary-padding")
def test_what_needs_no_gradient_costs_no_product() -> None:
    states, decoder, labels = problem()
    with torch.no_grad(), Watched() as evaluated:
        assert not cross_entropy(states, decoder, labels)[0].requires_grad
    decoder.requires_grad_(False)
    with Watched() as frozen:
        cross_entropy(states, decoder, labels)[0].backward()
    assert (evaluated.products, frozen.products) == (4, 8) and decoder.weight.grad is None


@pytest.mark.guarantee("vocabulary-padding")
@pytest.mark.parametrize("multiple", [1, 64])
@pytest.mark.parametrize("trained", ["states", "weight", "bias", "states bias", ""])
def test_only_what_is_trained_gets_a_gradient_whatever_else_is_frozen(trained: str, multiple: int) -> None:
    states, decoder, labels = problem()
    tensors = {"states": states, "weight": decoder.weight, "bias": decoder.bias}
    for name, tensor in tensors.items():
        tensor.requires_grad_(name in trained.split())
    (loss, correct), (expected, count) = (
        cross_entropy(states, decoder, labels, True, multiple),
        plain(states, decoder, labels),
    )
    torch.testing.assert_close(loss, expected)
    assert correct == count and not correct.requires_grad and loss.requires_grad == bool(trained)
    if trained:
        loss.backward()
        found = {name: tensor.grad for name, tensor in tensors.items()}
        for name, right in zip(
            trained.split(), torch.autograd.grad(expected, [tensors[name] for name in trained.split()]), strict=True
        ):
            torch.testing.assert_close(found[name], right, atol=1e-5, rtol=1e-4)
        assert [name for name, gradient in found.items() if gradient is not None] == trained.split()


@pytest.mark.guarantee("vocabulary-padding")
def test_states_in_half_precision_have_a_loss_and_a_count_in_fp32() -> None:
    states, decoder, labels = problem(bias=False)
    half = states.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        (loss, correct), (expected, count) = (
            cross_entropy(half, decoder, labels, True, 64),
            plain(half, decoder, labels),
        )
    assert loss.dtype == correct.dtype == torch.float32 and correct == count
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)


@pytest.mark.guarantee("vocabulary-padding")
def test_the_gradient_of_the_bias_is_summed_in_fp32() -> None:
    """Each of 1,001 rows adds 1/8, and 125.125 is no number of bf16."""
    decoder, labels = nn.Linear(WIDTH, 8), torch.zeros(1001, dtype=torch.int64)
    with torch.no_grad():
        decoder.bias.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        cross_entropy(torch.zeros(1001, WIDTH), decoder, labels)[0].backward()
    assert decoder.bias.grad is not None and decoder.bias.grad.tolist() == [125.125 - 1001] + [125.125] * 7


@pytest.mark.guarantee("vocabulary-padding")
def test_a_number_of_correct_predictions_is_counted_only_where_it_is_asked_for() -> None:
    assert cross_entropy(*problem())[1] == 0


@pytest.mark.guarantee("vocabulary-padding")
@pytest.mark.parametrize(
    ("chunk_bytes", "rows"),
    [(1, 1), (4 * 100 * 3, 3), (4 * 100 * 64, 64), (4 * 100 * 65, 64), (4 * 100 * 127, 64), (4 * 100 * 200 + 399, 192)],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_rows_of_a_chunk_fit_its_bytes_and_are_whole_groups(
    device: str, chunk_bytes: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(chunked_cross_entropy, "CHUNK_BYTES", {"cpu": chunk_bytes})
    monkeypatch.setattr(
        chunked_cross_entropy._CrossEntropy, "apply", lambda *given: (asked.append(given), given)[1][:2]
    )
    decoder = nn.Linear(WIDTH, 100, device=device)
    states, labels = torch.empty(8, WIDTH, device=device), torch.zeros(8, dtype=torch.int64, device=device)
    cross_entropy(states, decoder, labels)
    assert asked[-1][4:] == (torch.float32, 1, rows, True, False)
    with torch.no_grad():
        cross_entropy(states, decoder, labels, True, 8)
    assert asked[-1][4:] == (torch.float32, 8, rows, False, True)
    frozen = nn.Linear(WIDTH, 100, bias=False, device=device).requires_grad_(False)
    cross_entropy(states, frozen, labels)
    assert asked[-1][7] is False
    monkeypatch.setattr(chunked_cross_entropy, "ALIGNED", {device: 64})
    cross_entropy(states, decoder, labels)
    assert asked[-1][5] == 64


class Shapes(TorchDispatchMode):
    """The shapes of what matrix products within it take and give."""

    def __init__(self) -> None:
        super().__init__()
        self.products: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if "mm" in str(function):
            self.products |= {tuple(tensor.shape) for tensor in (*args, result) if isinstance(tensor, Tensor)}
        return result


@pytest.mark.guarantee("vocabulary-padding")
def test_as_on_cuda_the_matrix_is_padded_the_gradients_are_not_and_the_host_reads_nothing() -> None:
    """On a device without values, where reading one raises."""
    decoder = nn.Linear(WIDTH, VOCABULARY, device="meta")
    states = torch.empty(ROWS, WIDTH, device="meta", requires_grad=True)
    labels = torch.empty(ROWS, dtype=torch.int64, device="meta")
    given = states, decoder.weight, decoder.bias, labels
    with Shapes() as shapes:
        loss, correct = chunked_cross_entropy._CrossEntropy.apply(
            *given, torch.bfloat16, chunked_cross_entropy.ALIGNED["cuda"], 16, True, True
        )
    loss.backward()
    assert (WIDTH, 1536) in shapes.products and not {(WIDTH, VOCABULARY), (16, VOCABULARY)} & shapes.products
    assert loss.dtype == correct.dtype == torch.float32
    for tensor in (states, decoder.weight, decoder.bias):
        assert tensor.grad is not None and tensor.grad.shape == tensor.shape and tensor.grad.dtype == torch.float32


def test_a_step_of_an_encoder_keeps_no_logits(tiny: list[str]) -> None:
    learner, batches, _ = learner_and_batch(tiny)
    with Watched() as watched:
        learner(batches)[0].backward()
    assert 0 < watched.largest <= CHUNK * VOCABULARY


@pytest.mark.exhaustive
@pytest.mark.guarantee("vocabulary-padding")
def test_training_with_a_padded_vocabulary_is_training_without_bit_for_bit(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLM beside spans: losses, exported weights and configuration. A checkpoint of one goes on as the other."""
    runs = [tmp_path / name for name in ("as-it-is", "padded", "resumed")]
    options = [*tiny, "training.save_steps=3"]
    monkeypatch.setenv("ALIGNED", "64")
    train_alone(*options, f"output={runs[0]}")
    train_alone(*options, f"output={runs[1]}", script="tests/train/aligned.py")
    without_its_last_checkpoint(runs[0], runs[2])
    train_alone(*options, f"output={runs[2]}", "--resume", script="tests/train/aligned.py")
    names = ("loss", "mlm/loss", "mlm/accuracy", "spans/loss", "grad_norm")
    assert metrics(runs[0], names) == metrics(runs[1], names) == metrics(runs[2], names)
    configuration = [(run / "model" / "config.json").read_text() for run in runs]
    assert configuration[0] == configuration[1] and f'"vocab_size": {VOCABULARY}' in configuration[0]
    assert same_weights(runs[0], runs[1]) and same_weights(runs[0], runs[2])
