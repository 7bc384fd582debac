"""Objectives over one packed forward."""

import dataclasses
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from clearspan.common.encoder.packing import pack_ids
from clearspan.shards import Dataset
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.data.batch import Batch, Rows, TokenLists
from clearspan.train.data.feed import MicroBatch
from clearspan.train.data.stream import StreamState
from clearspan.train.model.losses import nt_xent
from clearspan.train.model.masking import Masked, mask
from clearspan.train.model.packing import PackedBlocks, pack
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_learner import build_learner
from clearspan.train.start.build_streams import build_feed
from clearspan.train.step.learner import Learner
from tests.train.ranks import train_alone


def learner_and_batch(
    overrides: list[str], rank: int = 0, ranks: int = 1, static: bool = False, recipe: str = "demo"
) -> tuple[Learner, MicroBatch, Recipe]:
    """A learner without dropout and a rank's part of the first micro-batch."""
    loaded = load_recipe(recipe, [*overrides, "output=unused"])
    datasets = {name: Dataset(data.path) for name, data in loaded.data.items()}
    learner, _, _ = build_learner(loaded, datasets, ranks, static)
    feed = build_feed(loaded, datasets, learner, rank, ranks)
    return learner, first_batches(learner, feed.streams), loaded


def first_batches(learner: Learner, streams: dict, state: StreamState | None = None) -> MicroBatch:
    """The next micro-batch of each dataset."""
    state = state or StreamState()
    return {
        name: next(stream.batches(state, learner.columns(name), learner.collate))[0] for name, stream in streams.items()
    }


def step(
    overrides: list[str], rank: int = 0, ranks: int = 1, static: bool = False, recipe: str = "demo"
) -> list[torch.Tensor]:
    """Loss and gradients of one forward."""
    learner, batches, _ = learner_and_batch(overrides, rank, ranks, static, recipe)
    loss, _ = learner(batches)
    loss.backward()
    return [loss.detach(), *(p.grad for p in learner.parameters() if p.grad is not None)]


def test_two_objectives_mask_different_blocks_of_one(tiny: list[str]) -> None:
    second = ["objectives.more.type=mlm", "objectives.more.input=spans/positives"]
    for static in (False, True):
        learner, batches, _ = learner_and_batch([*tiny, *second], static=static)
        _, metrics = learner(batches)
        assert metrics["mlm/loss"] > 0 and metrics["more/loss"] > 0 and metrics["mlm/loss"] != metrics["more/loss"]
    assert metrics["masks_cut"] == 0
    with pytest.raises(RecipeError, match=r"objectives\.spans has no block 'negatives'"):
        learner_and_batch([*tiny, second[0], "objectives.more.input=spans/negatives"])


def test_masked_tokens_without_a_slot_are_counted(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    learner, batches, _ = learner_and_batch(tiny, static=True)
    assert learner(batches)[1]["masks_cut"] == 0
    slots = learner.objectives[1].num_slots(8)
    found = len(packed_and_masked(learner, batches["text"])[2].index)
    monkeypatch.setattr(learner.objectives[1], "num_slots", lambda _: found - 3)
    assert found < slots and learner(batches)[1]["masks_cut"] == 3


def test_objectives_share_a_column_on_the_device_and_find_only_their_own(tiny: list[str]) -> None:
    learner, batches, _ = learner_and_batch(tiny)
    batch = batches["text"].to(torch.device("cpu"))
    assert learner.columns("text") == ["tokens"] and list(batch.columns) == ["spans/tokens", "mlm/tokens"]
    assert batch.columns["spans/tokens"] is batch.columns["mlm/tokens"]
    learner.objectives[0].collate = lambda rows: {"other": rows.ids}
    rows = Rows("text", {"tokens": ["one"]}, batch.ids.numpy(), 0)
    assert learner.collate(rows).keys() == {"spans", "mlm"} and learner.collate(rows)["spans"].keys() == {"other"}


def packed_and_masked(learner: Learner, batch: Batch) -> tuple[PackedBlocks, PackedBlocks, Masked]:
    """(the packed spans, the same with masked anchors, where those are)."""
    spans, mlm = learner.objectives
    packed = pack(list(spans.request(batch.of("spans")).sequences.values()), learner.special)
    (masking,) = mlm.request(batch.of("mlm")).masking.values()
    return packed, *mask(packed, packed.blocks[0], masking)


def test_the_summed_loss_is_what_the_parts_give_by_hand(tiny: list[str]) -> None:
    """Masking, pooling, mean of positives, NT-Xent and cross-entropy, each span encoded on its own."""
    learner, batches, recipe = learner_and_batch(
        [*tiny, "objectives.spans.sampler.num_positives=2", "objectives.mlm.weight=0.5"]
    )
    total, metrics = learner(batches)
    packed, masked, where = packed_and_masked(learner, batches["text"])
    hidden = [learner.encoder(pack_ids([ids.tolist()])) for ids in masked.ids.split(masked.lengths)]
    pooled = torch.stack([states.mean(0) for states in hidden])
    anchors, positives = pooled[:16], pooled[16:].view(16, 2, -1).mean(1)
    contrastive = nt_xent(anchors, positives, recipe.objectives["spans"].temperature)
    logits = learner.encoder.mlm_logits(torch.cat(hidden)[where.index])
    cross_entropy = F.cross_entropy(logits, packed.ids[where.index])
    torch.testing.assert_close(metrics["spans/loss"], contrastive.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(metrics["mlm/loss"], cross_entropy.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(total, contrastive + 0.5 * cross_entropy, atol=1e-5, rtol=1e-5)


def test_two_forwards_at_once_give_what_each_gives_alone(tiny: list[str]) -> None:
    """Nothing of a batch stays behind: a second forward, before the first one's backward, changes nothing."""
    learner, batches, _ = learner_and_batch(tiny)
    text = batches["text"]
    other = {"text": dataclasses.replace(text, ids=text.ids + 1)}
    (alone, _), (changed, _) = learner(batches), learner(other)
    alone.backward()
    expected = [p.grad.clone() for p in learner.parameters() if p.grad is not None]
    learner.zero_grad()
    loss, _ = learner(batches)
    learner(other)
    loss.backward()
    assert torch.equal(loss, alone) and not torch.equal(changed, alone)
    assert all(map(torch.equal, expected, [p.grad for p in learner.parameters() if p.grad is not None]))


def test_a_documents_masks_do_not_depend_on_its_batch(tiny: list[str]) -> None:
    learner, batches, _ = learner_and_batch(tiny)
    batch = batches["text"]
    tokens = batch.columns["spans/tokens"]
    first = TokenLists(tokens.values[: tokens.offsets[1]], tokens.offsets[:2])
    alone = Batch({"spans/tokens": first, "mlm/tokens": first}, batch.ids[:1], batch.epochs[:1])
    drawn = [packed_and_masked(learner, documents)[1] for documents in (batch, alone)]
    assert torch.equal(*(masked.ids[: masked.cu_seqlens[2]] for masked in drawn))


def test_mlm_only_masks_anchors_of_its_own(tiny: list[str]) -> None:
    own = [o for o in tiny if not o.startswith("objectives.spans")]
    spans = [
        f"objectives.mlm.sampler.{key}" for key in ("min_span=4", "max_span=24", "placement=uniform", "min_distance=16")
    ]
    model = [f"model.config.{key}" for key in ("model_type=roberta", "num_hidden_layers=2", "num_attention_heads=4")]
    learner, batches, _ = learner_and_batch([*own, *spans, *model], recipe="mlm-only")
    _, metrics = learner(batches)
    assert metrics.keys() == {"loss", "tokens", "mlm/loss", "mlm/accuracy"}
    assert metrics["mlm/loss"].item() == pytest.approx(7.3, abs=0.5), "ln of the vocabulary, before any training"


def test_contrastive_only_trains_no_masked_lm_head(tiny: list[str]) -> None:
    learner, batches, _ = learner_and_batch([*tiny, "objectives.mlm=null"])
    learner(batches)[0].backward()
    assert not any("lm_head" in name for name, _ in learner.named_parameters())
    assert all(p.grad is not None for n, p in learner.named_parameters() if "token_type" not in n)


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["objectives.spans=null"], "type spans on data.text"),
        (["objectives.spans.sampler.min_span=65", "objectives.spans.sampler.max_span=70"], "min_span"),
        (["model.config.model_type=gpt-nope"], "gpt-nope"),
        (["model.config.no_such_option=1"], "roberta has no option 'no_such_option'"),
        (["model.config.num_attention_heads=3"], "multiple of the number"),
        (["model.config.num_attention_heads=0"], "model: "),
        (["model.config.vocab_size=10"], "10 embeddings .*1,500 ids"),
        (["model.pooling=max"], "pooling"),
    ],
)
def test_what_does_not_go_together_is_named(tiny: list[str], overrides: list[str], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        learner_and_batch([*tiny, *overrides])


def test_a_model_whose_head_is_not_known_is_refused_with_mlm_only(tiny: list[str]) -> None:
    albert = ["model.config=null", "model.config.model_type=albert", "model.config.embedding_size=16"]
    albert += ["model.config.hidden_size=32", "model.config.num_attention_heads=2", "model.config.intermediate_size=64"]
    given = [o for o in tiny if not o.startswith("model.config")]
    config = ["model.config.hidden_dropout_prob=0.0"]
    with pytest.raises(RecipeError, match="albert has no masked-LM head"):
        learner_and_batch([*given, *albert, *config])


@pytest.mark.guarantee("no-network")
def test_a_tokenizer_without_padding_gets_one_for_the_export(tokenizer_folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).pad_token == "</s>"


@pytest.mark.slow
def test_a_pretrained_folder_is_taken_with_its_own_tokenizer_only(
    tiny: list[str], tokenizer_folder: Path, minilm: Path, tmp_path: Path
) -> None:
    learner, _, _ = learner_and_batch(tiny)
    given = pretrained(tiny, learner.encoder.model, tokenizer_folder, tmp_path / "pretrained")
    again, _, _ = learner_and_batch(given)
    assert again.encoder.new_weights == []
    states, expected = again.encoder.model.state_dict(), learner.encoder.model.state_dict()
    assert all(torch.equal(states[key], expected[key]) for key in expected)
    with pytest.raises(RecipeError, match="tokenizer is not the one"):
        learner_and_batch([*given[:-1], f"model.path={minilm}"])


def pretrained(tiny: list[str], model: PreTrainedModel, tokenizer: Path, folder: Path) -> list[str]:
    """Overrides that train from a model, saved with a tokenizer; the last one is the path."""
    model.save_pretrained(folder)
    for path in tokenizer.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    given = [override for override in tiny if not override.startswith("model.config")]
    return [*given, "model.config=null", f"model.path={folder}"]


@pytest.mark.slow
def test_a_head_that_a_folder_has_not_starts_anew_by_the_seed_and_is_named(
    tiny: list[str], tokenizer_folder: Path, tmp_path: Path
) -> None:
    learner, _, _ = learner_and_batch(tiny)
    given = pretrained(tiny, learner.encoder.base, tokenizer_folder, tmp_path / "base")
    first, again, other = (learner_and_batch([*given, f"training.seed={seed}"])[0].encoder for seed in (1, 1, 2))
    assert {name.split(".")[0] for name in first.new_weights} == {"lm_head"}
    head = [encoder.model.lm_head.dense.weight for encoder in (first, again, other)]
    assert torch.equal(head[0], head[1]) and not torch.equal(head[0], head[2])
    done = train_alone(*given, "training.max_steps=1", f"output={tmp_path / 'run'}")
    line = f"{tmp_path / 'base'}: has no masked-LM head; a new one is drawn: lm_head.bias, "
    assert sum(line in printed for printed in done.stdout.splitlines()) == 1


def test_a_head_that_lacks_a_weight_is_refused_where_it_is_trained(
    tiny: list[str], tokenizer_folder: Path, tmp_path: Path
) -> None:
    learner, _, _ = learner_and_batch(tiny)
    given = pretrained(tiny, learner.encoder.model, tokenizer_folder, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    del weights["lm_head.dense.weight"]
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RecipeError, match=r"lacks 1 weights of its masked-LM head: lm_head\.dense\.weight"):
        learner_and_batch(given)
    without, _, _ = learner_and_batch([*given, "objectives.mlm=null"])
    assert without.encoder.new_weights == []


def test_two_objectives_of_one_type_draw_differently(tiny: list[str]) -> None:
    """And an objective draws the same beside others as alone."""
    span = [o.replace("objectives.spans.", "objectives.again.") for o in tiny if o.startswith("objectives.spans.")]
    learner, batches, _ = learner_and_batch([*tiny, "objectives.again.type=spans", *span])
    requests = [o.request(batches["text"].of(o.name)).sequences for o in learner.objectives if o.name != "mlm"]
    first, again = (request["anchors"].content.starts for request in requests)
    assert not torch.equal(first, again)
    alone, batches, _ = learner_and_batch(tiny)
    spans = alone.objectives[0]
    assert torch.equal(spans.request(batches["text"].of("spans")).sequences["anchors"].content.starts, first)
