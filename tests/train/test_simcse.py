"""SimCSE: its blocks and loss, over sentences and triplets; one rank or two; a head for training or for use."""

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F

from clearspan.shards.schema import KINDS
from clearspan.train.config.options import RecipeError
from clearspan.train.step.example_lengths import length_moments
from tests.train.conftest import TINY_MODEL, publish, text_id
from tests.train.test_learner import learner_and_batch


def write_triplets(folder: Path, sentences: list[list[int]], tokenizer: Path, columns: int) -> Path:
    """Rows of consecutive sentences as a published dataset of so many columns of texts."""
    fields = KINDS["triplets"].schema(pa.uint16(), ["negative"] if columns == 3 else [])
    rows = [sentences[start : start + columns] for start in range(0, len(sentences) - columns, columns)]
    batches = []
    for start in range(0, len(rows), 32):
        part = rows[start : start + 32]
        lists = [pa.array([row[column] for row in part], fields.field("tokens").type) for column in range(columns)]
        ids = pa.array([text_id([token for text in row for token in text]) for row in part])
        batches.append(pa.RecordBatch.from_arrays([ids, *lists], schema=fields))
    return publish(folder, "triplets", batches, tokenizer, 20_000)


@pytest.fixture(scope="module")
def folders(
    sentences: list[list[int]],
    sentences_folder: Path,
    del_tokenizer_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Sentences, pairs, and triplets with a hard negative."""
    folder = tmp_path_factory.mktemp("simcse")
    made = {f"{n} texts": write_triplets(folder / str(n), sentences, del_tokenizer_folder, n) for n in (2, 3)}
    return {"1 text": sentences_folder, **made}


def overrides(path: Path, *more: str) -> list[str]:
    """The recipe of a run over these shards with SimCSE alone."""
    recipe = ["objectives.spans=null", "objectives.mlm=null", "objectives.simcse.data=text", "model.pooling=cls"]
    sizes = ["data.text.batch_size=8", "training.max_steps=6", "training.bf16=false", f"data.text.path={path}"]
    return [*TINY_MODEL, *recipe, *sizes, *more]


def written_out(texts: list[torch.Tensor], temperature: float, weight: float = 0.0) -> torch.Tensor:
    """SimCSE's loss of pooled vectors of each column, (n, h) each, by torch's own functions."""
    anchors, positives, *negatives = texts
    logits = F.cosine_similarity(anchors[:, None], positives[None], dim=-1) / temperature
    if negatives:
        hard = F.cosine_similarity(anchors[:, None], negatives[0][None], dim=-1) / temperature
        logits = torch.cat([logits, hard + weight * torch.eye(len(hard))], dim=1)
    return F.cross_entropy(logits, torch.arange(len(anchors)))


def test_a_model_without_dropout_is_told_where_the_two_passes_need_it(folders: dict[str, Path]) -> None:
    """It trains, on negatives alone; ModernBERT as it comes has none."""
    dropout = "model.config.hidden_dropout_prob=0.1"
    for name, words, said in (("1 text", [], True), ("1 text", [dropout], False), ("3 texts", [], False)):
        learner, *_ = learner_and_batch(overrides(folders[name], *words))
        (simcse,) = learner.of_turn("all")
        notes = simcse.notes(1.0)
        assert len(notes) == said and all("differ by dropout alone, and the model has no dropout" in n for n in notes)


@pytest.mark.parametrize("name", ["1 text", "2 texts", "3 texts"])
def test_the_loss_is_that_of_each_column_encoded_alone(folders: dict[str, Path], name: str) -> None:
    """Against the plain padded model: the [CLS] state of every text, one at a time."""
    weight = "objectives.simcse.hard_negative_weight=0.7" if name == "3 texts" else "objectives.simcse.weight=1.0"
    learner, batches, _ = learner_and_batch(overrides(folders[name], weight))
    loss, metrics = learner(batches)
    batch = batches["text"].of("simcse")
    columns = ["tokens", "positive", "negative"][: int(name[0])]
    columns = ["tokens", "tokens"] if len(columns) == 1 else columns
    base = learner.encoder.base
    base.set_attn_implementation("eager")
    capacity = learner.encoder.max_tokens - learner.special.count
    pooled = []
    for column in columns:
        lists = batch.lists(column)
        spans = itertools.pairwise(lists.offsets.tolist())
        texts = [lists.values[first:last][:capacity].long() for first, last in spans]
        ends = [torch.tensor(ids, dtype=torch.int64) for ids in (learner.special.prefix, learner.special.suffix)]
        whole = [torch.cat([ends[0], text, ends[1]]) for text in texts]
        pooled.append(torch.stack([base(input_ids=one[None]).last_hidden_state[0, 0] for one in whole]))
    expected = written_out(pooled, 0.05, 0.7 if name == "3 texts" else 0.0)
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    assert {"simcse/loss", "simcse/accuracy", "simcse/alignment", "simcse/uniformity"} <= metrics.keys()


@pytest.mark.parametrize(("name", "copies"), [("1 text", 2), ("2 texts", 1), ("3 texts", 1), ("3 texts", 2)])
def test_masked_lm_beside_it_masks_every_text_of_a_row(folders: dict[str, Path], name: str, copies: int) -> None:
    """As SimCSE's code: a column after the other, whole, a text's copies next to each other under different masks."""
    mlm = ["objectives.mlm.input=sentence", f"objectives.mlm.copies={copies}"]
    recipe = [one for one in overrides(folders[name]) if one != "objectives.mlm=null"]
    learner, batches, _ = learner_and_batch([*recipe, *mlm])
    objective = next(one for one in learner.objectives if one.name == "mlm")
    batch = batches["text"].of("mlm")
    sequences = objective.request(batch).sequences["sequences"]
    columns = ["tokens", "positive", "negative"][: int(name[0])]
    capacity, expected, found = learner.encoder.max_tokens - learner.special.count, [], []
    for lists in map(batch.lists, columns):
        for first, last in itertools.pairwise(lists.offsets.tolist()):
            expected += [lists.values[first:last][:capacity].tolist()] * copies
    slices = sequences.content
    for start, length in zip(slices.starts.tolist(), slices.lengths.tolist(), strict=True):
        found.append(slices.tokens[start : start + length].tolist())
    assert found == expected
    assert len(set(sequences.keys.tolist())) == len(expected) == 8 * len(columns) * copies
    assert objective.workload().sequences == len(columns) * copies
    moments = [length_moments(objective.setting, column)[0] for column in columns]
    assert objective.workload().mean_tokens == pytest.approx(copies * sum(moments))
    loss, metrics = learner(batches)
    assert torch.isfinite(loss) and "mlm/loss" in metrics


def test_a_head_for_training_is_the_objectives_and_one_that_stays_the_encoders(folders: dict[str, Path]) -> None:
    for_training, _, _ = learner_and_batch(overrides(folders["1 text"], "objectives.simcse.head=tanh"))
    assert any("head" in name for name, _ in for_training.objectives[0].named_parameters())
    assert not list(for_training.encoder.head.parameters())
    staying, _, _ = learner_and_batch(overrides(folders["3 texts"], "model.head=tanh"))
    assert list(staying.encoder.head.parameters()) and not list(staying.objectives[0].parameters())


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "2 texts",
            ["hard_negative_weight=1.0"],
            "hard_negative_weight 1 needs the column 'negative'",
        ),
        ("1 text", ["positives=pairs"], "positives: pairs needs the column 'positive'"),
        (
            "3 texts",
            ["positives=dropout", "hard_negative_weight=0"],
            "hard_negative_weight 0 .*positives: dropout",
        ),
        ("1 text", ["max_tokens=2"], r"objectives\.simcse: max_tokens 2 .* 2 special tokens"),
    ],
)
def test_options_that_cannot_work_are_refused(
    folders: dict[str, Path], name: str, options: list[str], said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        learner_and_batch(overrides(folders[name], *(f"objectives.simcse.{option}" for option in options)))


@pytest.mark.parametrize(("name", "lacks"), [("1 text", "positive"), ("2 texts", "negative")])
@pytest.mark.parametrize("recipe", ["simcse-sup-bert-base", "simcse-sup-roberta-large"])
def test_a_supervised_recipe_refuses_shards_without_its_columns(
    folders: dict[str, Path], recipe: str, name: str, lacks: str
) -> None:
    """It would train without supervision in silence."""
    words = [*TINY_MODEL, f"data.text.path={folders[name]}", "training.eval_steps=0"]
    with pytest.raises(RecipeError, match=f"hard_negative_weight 0 needs the column '{lacks}',"):
        learner_and_batch(words, recipe=recipe)


def test_positives_are_pairs_or_the_sentence_again_as_the_recipe_says(folders: dict[str, Path]) -> None:
    """Of the same triplets; by itself it takes all that the shards have."""
    said = {
        "auto": ("tokens", "positive", "negative"),
        "pairs": ("tokens", "positive", "negative"),
        "dropout": ("tokens",),
    }
    for positives, columns in said.items():
        learner, *_ = learner_and_batch(overrides(folders["3 texts"], f"objectives.simcse.positives={positives}"))
        assert tuple(learner.columns("text")) == columns


@pytest.mark.parametrize(("max_tokens", "longest"), [(12, 12), (0, 64), (500, 64)])
def test_texts_are_cut_to_the_tokens_asked_for(folders: dict[str, Path], max_tokens: int, longest: int) -> None:
    """Special tokens among them; never more than the encoder takes, and no budget has room for more."""
    words = overrides(folders["3 texts"], f"objectives.simcse.max_tokens={max_tokens}", "data.text.batch_size=128")
    learner, batches, _ = learner_and_batch(words)
    batch = batches["text"].of("simcse")
    lengths = torch.cat([batch.lists(column).lengths for column in ("tokens", "positive", "negative")]) + 2
    assert lengths.max() > 64
    assert learner(batches)[1]["tokens"] == lengths.clamp(max=longest).sum()
    workload = learner.objectives[0].workload()
    assert (workload.sequences, workload.longest) == (3, longest - 2)
    assert workload.mean_tokens == pytest.approx((lengths.clamp(max=longest) - 2).sum().item() / 128, rel=0.15)
