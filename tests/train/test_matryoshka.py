"""`dims`: prefixes of the embedding that are trained as embeddings (Kusupati et al. 2022), and what an export says."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from clearspan.train.card import UNCHANGED, Origin, card
from clearspan.train.config.options import RecipeError
from clearspan.train.model.encoded import Encoded, SequenceVectors
from clearspan.train.model.losses import sup_con
from clearspan.train.model.source import Inference
from clearspan.train.objectives import Setting, simcse, spans
from tests.train.ranks import train_alone
from tests.train.test_learner import learner_and_batch
from tests.train.test_objectives import TWICE
from tests.train.test_simcse import written_out

DIM = 32


@pytest.fixture(scope="module")
def setting(tiny: list[str]) -> Setting:
    """Of a learner of 32 dimensions."""
    return learner_and_batch(tiny)[0].objectives[0].setting


def vectors(name: str, count: int = 6) -> tuple[Encoded, list[Tensor]]:
    """Vectors of two blocks in fp64."""
    drawn = torch.randn(2, count, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = (rows.requires_grad_() for rows in drawn)
    blocks = {f"{name}/{block}": slice(0, count) for block in ("anchors", "tokens", "first")}
    blocks |= {f"{name}/{block}": slice(count, 2 * count) for block in ("positives", "positive", "second")}
    rows = torch.cat([first, second])
    return Encoded(SequenceVectors(rows, rows, blocks), name), [first, second]


def test_the_loss_is_the_mean_over_whole_vectors_and_prefixes(setting: Setting) -> None:
    """SimCSE's, a pair at a time; naming the whole width changes nothing."""
    encoded, (first, second) = vectors(setting.name)
    for dims in ([4, 16], [16, 4, DIM]):
        own = simcse.SimCSE(simcse.SimcseConfig(dims=dims), setting, ["tokens"])
        loss, metrics = own.trained_loss(encoded, None)
        expected = torch.stack([written_out([first[:, :d], second[:, :d]], 0.05) for d in (4, 16, DIM)]).mean()
        torch.testing.assert_close(loss, expected)
        whole, alone = simcse.SimCSE(simcse.SimcseConfig(), setting, ["tokens"]).trained_loss(encoded, None)
        assert metrics == alone and not torch.isclose(loss, whole)


def test_a_head_reads_a_prefix_by_its_first_columns(setting: Setting) -> None:
    """MRL-E: one matrix of which a prefix uses the first columns. Spans average their projections."""
    config = spans.SpansConfig(head="tanh", head_dim=8, head_bias=True, dims=[4])
    config.sampler.num_positives = 1
    own = spans.SpanContrast(config, setting).double()
    linear = own.head[0]
    assert isinstance(linear, nn.Linear)
    encoded, blocks = vectors(setting.name)
    losses = []
    for d in (4, DIM):
        first, second = (torch.tanh(rows[:, :d] @ linear.weight[:, :d].T + linear.bias) for rows in blocks)
        # NT-Xent is SupCon whose classes have one example each.
        losses.append(sup_con(first, second, torch.arange(6), 0.05, "khosla"))
    torch.testing.assert_close(own.trained_loss(encoded, None)[0], torch.stack(losses).mean())


def test_components_beyond_a_prefix_have_no_gradient_from_its_loss(setting: Setting) -> None:
    encoded, (first, _) = vectors(setting.name)
    own = simcse.SimCSE(simcse.SimcseConfig(), setting, ["tokens"])
    own.loss(Encoded(encoded.forward, setting.name, dim=5), None)[0].backward()
    assert first.grad[:, :5].all() and not first.grad[:, 5:].any()


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ("[64]", "dims 64 is more than the 32"),
        ("[8,16,8]", r"dims \[8, 16, 8\]: .*twice"),
        ("[0]", r"dims\.0 must be at least 1"),
        ("[8] objectives.spans.memory=4", r"dims \[8\] .*memory 4"),
    ],
)
def test_dims_that_cannot_work_are_refused(tiny: list[str], dims: str, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"objectives\.spans(: |\.){said}"):
        learner_and_batch([*tiny, *f"objectives.spans.dims={dims}".split()])


def test_a_class_of_the_users_own_has_prefixes_and_refuses_to_mask(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer makes prefixes for every contrastive loss; only the loss itself can leave negatives out."""
    (tmp_path / "contrast_prefixes.py").write_text(TWICE)
    monkeypatch.syspath_prepend(tmp_path)
    words = [option for option in tiny if not option.startswith("objectives.spans")]
    words += ["objectives.twice.type=contrast_prefixes:Twice", "objectives.spans=null", "objectives.mlm=null"]
    learner, batches, _ = learner_and_batch([*words, "objectives.twice.dims=[8,16]"])
    learner(batches)
    assert len(__import__("contrast_prefixes").compared) == 3
    with pytest.raises(RecipeError, match=r"objectives\.twice: mask_equal has no effect in Twice: leave it out"):
        learner_and_batch([*words, "objectives.twice.mask_equal=true"])


def test_the_card_names_the_sizes_that_were_trained() -> None:
    encoder = SimpleNamespace(attends=True, pooling="mean", dim=32, max_tokens=64, inference=Inference())
    recipe = "objectives:\n  spans:\n    dims: [16, 8, 32]\n  mlm:\n    weight: 1.0\n"
    text = card(encoder, "mine", recipe, Origin(3))
    assert "8, 16 were trained as well as all 32" in text
    assert 'model = SentenceTransformer("mine", truncate_dim=8)' in text
    unchanged = card(encoder, "mine", recipe, Origin(0, start=UNCHANGED))
    assert "truncate_dim" not in unchanged + card(encoder, "mine", "a: {}", Origin(3))


@pytest.mark.slow
def test_an_export_is_cut_to_a_size_as_its_card_says(tiny: list[str], tmp_path: Path) -> None:
    train_alone(*tiny, "objectives.spans.dims=[8]", "training.max_steps=2", f"output={tmp_path / 'run'}")
    model = tmp_path / "run" / "model"
    assert "truncate_dim=8" in (model / "README.md").read_text()
    whole, cut = (SentenceTransformer(str(model), truncate_dim=d, device="cpu").encode("A list.") for d in (None, 8))
    assert (whole[:8] == cut).all() and whole.shape == (32,)
