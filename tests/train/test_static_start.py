"""How a static encoder begins: by frequencies in the shards, or with what another encoder knows of each token."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from torch import Tensor, nn

from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.shards import Dataset
from clearspan.train import distill
from clearspan.train.config.options import RecipeError
from clearspan.train.export import save_model
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.model.tokenizer import load_tokenizer, special_tokens
from clearspan.train.recipe import load_recipe
from clearspan.train.start import static_start
from clearspan.train.start.build_encoder import build_encoder
from clearspan.train.start.static_start import _embedded_alone, distilled, rank_weights
from clearspan.train.start.token_weights import inverse_frequencies
from tests.conftest import exit_code
from tests.train.conftest import TINY_MODEL

STATIC = ["model.config.model_type=static", "model.config.hidden_size=24"]


@pytest.fixture(scope="module")
def teacher(dataset_folder: Path, tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported transformer of 32 dimensions, by the shards' tokenizer."""
    recipe = load_recipe("mlm-only", [*TINY_MODEL, "model.path=''", f"data.text.path={dataset_folder}", "output=o"])
    tokenizer, folder = load_tokenizer(tokenizer_folder), tmp_path_factory.mktemp("models") / "teacher"
    encoder = build_encoder(recipe, tokenizer)
    encoder.drop_mlm_head()
    save_model(encoder, tokenizer, folder, "")
    return folder


@pytest.fixture(scope="module")
def table(dataset_folder: Path, tokenizer_folder: Path) -> Callable[..., Tensor]:
    """Return the initial vectors of a static model for some overrides."""

    def make(*overrides: str) -> Tensor:
        recipe = load_recipe("demo", ["model.config=null", *overrides, f"data.text.path={dataset_folder}", "output=o"])
        encoder = build_encoder(recipe, load_tokenizer(tokenizer_folder), [Dataset(dataset_folder)])
        weight: Tensor = encoder.base.embeddings.weight.detach()
        return weight

    return make


@pytest.fixture(scope="module")
def weights(dataset_folder: Path, tokenizer_folder: Path) -> Tensor:
    special = load_tokenizer(tokenizer_folder).all_special_ids
    return inverse_frequencies([Dataset(dataset_folder)], 1500, special)[:, None]


def test_distilled_vectors_are_those_of_each_token_alone(
    table: Callable[..., Tensor], weights: Tensor, teacher: Path, tokenizer_folder: Path
) -> None:
    """All 32 components: a rotation keeps the products of the centered vectors of unit length. RoBERTa has no position
    for the padding token, which changes the mean a little.
    """
    found = table(STATIC[0], "model.init=distill", f"model.distill={teacher}") / weights
    special, pad = special_tokens(load_tokenizer(tokenizer_folder)), 1
    model = SentenceTransformer(str(teacher), device="cpu")
    with torch.no_grad():
        ids = torch.tensor([[*special.prefix, token, *special.suffix] for token in range(1500)])
        states = model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["sentence_embedding"]
    expected = torch.nn.functional.normalize(states - states.mean(dim=0), dim=1)
    assert found.shape == (1500, 32)
    found, expected = (torch.cat([rows[:pad], rows[pad + 1 :]]) for rows in (found, expected))
    torch.testing.assert_close(found @ found.T, expected @ expected.T, atol=5e-3, rtol=0)


def test_random_dimensions_stand_beside_the_first_principal_components(
    table: Callable[..., Tensor], weights: Tensor, teacher: Path
) -> None:
    given = ["model.init=distill", f"model.distill={teacher}"]
    alone = table(*given, STATIC[0]) / weights
    both = table(*given, STATIC[0], "model.random_dims=16") / weights
    assert both.shape == (1500, 48)
    torch.testing.assert_close(both[:, :32], alone)
    torch.testing.assert_close(both[:, 32:].norm(dim=1), torch.ones(1500))
    few = table(*given, *STATIC, "model.random_dims=16") / weights
    assert few.shape == (1500, 24)
    torch.testing.assert_close(few[:, :8], torch.nn.functional.normalize(alone[:, :8], dim=1), atol=1e-4, rtol=1e-3)


def test_distill_writes_a_model_that_sentence_transformers_loads(
    teacher: Path, dataset_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in (("ranks", []), ("counts", ["--shards", str(dataset_folder)])):
        line = ["--model", str(teacher), "--output", str(tmp_path / name), "--random-dims", "8", *data]
        assert distill.main(line) == 0
    said = capsys.readouterr().out
    assert "ranks: a static encoder of 1,500 tokens x 40 dimensions, weighted by Zipf's law" in said
    assert f"weighted by their frequency in {dataset_folder}" in said
    vectors = [
        SentenceTransformer(str(tmp_path / name)).encode("An owl hunts at night.") for name in ("ranks", "counts")
    ]
    assert vectors[0].shape == (40,) and not np.allclose(*vectors)
    assert "made of another encoder with Clearspan" in (tmp_path / "ranks" / "README.md").read_text()


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["model.init=distill", *STATIC], "model.init distill: .*model.distill"),
        (["model.init=idf", *TINY_MODEL], "model.init idf .*model.config.model_type=static"),
        (["model.init=idf", *STATIC, "model.path=m"], "model.init idf .*model.path"),
        ([*STATIC, "model.distill=m"], "model.distill m .*model.init random"),
        ([*STATIC, "model.init=idf", "model.random_dims=8"], "model.random_dims 8 .*model.init idf"),
        ([*STATIC, "model.init=distill", "model.distill=/nowhere"], "model.distill /nowhere: no config.json here"),
    ],
)
def test_a_start_that_cannot_be_is_refused(table: Callable[..., Tensor], overrides: list[str], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        table(*overrides)


def test_an_encoder_with_another_tokenizer_is_refused(
    teacher: Path,
    sentences_folder: Path,
    table: Callable[..., Tensor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    learn_tokenizer(["other words in another order"] * 9, 300, tmp_path / "other")
    recipe = load_recipe(
        "demo", [*STATIC, "model.init=distill", f"model.distill={teacher}", "data.text.path=d", "output=o"]
    )
    with pytest.raises(RecipeError, match=r"model\.distill .* its tokenizer is not the one the shards were made with"):
        build_encoder(recipe, load_tokenizer(tmp_path / "other"))
    line = ["--model", str(teacher), "--output", str(tmp_path / "out"), "--shards", str(sentences_folder)]
    assert distill.main(line) == 1
    assert "its tokenizer is not the one the shards were made with" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_distill_refuses_what_cannot_work_in_one_line(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", str(teacher), "--output"]
    for line, reason in (
        ([*given, str(teacher)], "is inside --model, which is read: name a folder outside of it"),
        ([*given, str(tmp_path / "o"), "--dims", "0"], "--dims must be at least 1"),
        (["--model", "nowhere", "--output", "o"], "--model nowhere: no such folder"),
        (["--tokenizer", "mine.json", "--output", "o"], "--tokenizer mine.json: no such folder or tokenizer.json"),
        (["--tokenizer", str(teacher), "--output", "o", "--random-dims", "5"], "no effect without --model"),
    ):
        assert exit_code(distill.main, *line) == 2
        err = capsys.readouterr().err
        assert reason in err and err.count("\n") == 1


def test_frequent_words_weigh_less_where_nothing_is_counted() -> None:
    vocabulary = {"[PAD]": 0, "[unused1]": 1, "a": 2, "the": 3, "##ing": 4, "owl": 5}
    weights = rank_weights(vocabulary, 7)
    assert weights[3] < weights[4] < weights[5] and weights[[0, 1, 2, 6]].tolist() == [weights[3].item()] * 4


class Embedding(nn.Module):
    """A module whose embedding of a row is made of the vectors of all its tokens, by their places."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors, self.calls = vectors, []

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        rows = features["input_ids"]
        assert torch.equal(features["attention_mask"], torch.ones_like(rows))
        self.calls.append(rows)
        places = torch.arange(1.0, rows.shape[1] + 1)
        return {"sentence_embedding": (self.vectors[rows] * places[:, None]).sum(1).half()}


class Positive(nn.Module):
    """A layer after the embedding."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["sentence_embedding"].abs()}


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("dims", [2, 4])
def test_tokens_are_embedded_between_special_tokens_centered_and_projected(
    dims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all layers but the normalization, a few tokens at a time."""
    monkeypatch.setattr(static_start, "TOGETHER", 4)
    vectors = torch.randn(9, 4, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 4, 2, 8])
    embedding = Embedding(vectors)
    special = SpecialTokens([7, 8], [6], 0, None)
    found = distilled(nn.Sequential(embedding, Normalize(), Positive(), Normalize()), special, 6, dims)
    assert [rows.tolist() for rows in embedding.calls] == [
        [[7, 8, token, 6] for token in tokens] for tokens in ([0, 1, 2, 3], [4, 5])
    ]
    rows = torch.stack([vectors[7] + 2 * vectors[8] + 3 * vectors[token] + 4 * vectors[6] for token in range(6)])
    rows = rows.half().float().abs()
    _, _, axes = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    expected = torch.nn.functional.normalize((rows - rows.mean(0)) @ axes[:dims].T, dim=1)
    torch.testing.assert_close(found.abs(), expected.abs(), atol=2e-5, rtol=1e-4)
    assert found.dtype == torch.float32 and found.shape == (6, dims)


@pytest.mark.guarantee("encoders-of-any-class")
def test_components_are_those_of_all_tokens_of_the_encoder_at_hand() -> None:
    """Of the tokens that differ most, only a few, and of one encoder after another of its class."""
    none = SpecialTokens([], [], 0, None)
    for seed in (1, 2):
        vectors = torch.randn(700, 4, generator=torch.Generator().manual_seed(seed))
        vectors[[7, 411, 698]] *= 40
        rows = vectors.half().float()
        _, _, axes = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
        expected = torch.nn.functional.normalize((rows - rows.mean(0)) @ axes[:2].T, dim=1)
        found = distilled(nn.Sequential(Embedding(vectors)), none, 700, 2)
        torch.testing.assert_close(found.abs(), expected.abs(), atol=1e-4, rtol=1e-3)


@pytest.mark.guarantee("encoders-of-any-class")
def test_a_tokenizer_without_special_tokens_and_a_static_model_embed_the_token_alone(tokenizer_folder: Path) -> None:
    vectors = torch.randn(1500, 3, generator=torch.Generator().manual_seed(1))
    embedding, ids = Embedding(vectors), torch.tensor([3, 1, 4])
    none = SpecialTokens([], [], 0, None)
    torch.testing.assert_close(_embedded_alone(nn.Sequential(embedding), none, ids), vectors[ids].half().float())
    tokenizer = load_tokenizer(tokenizer_folder).backend_tokenizer
    table = StaticEmbedding(tokenizer, embedding_weights=vectors.numpy())
    special = SpecialTokens([0], [2], 1, None)
    assert torch.equal(_embedded_alone(nn.Sequential(table, Normalize()), special, ids), vectors[ids])
