"""CLEAR's objective and masked LM on sentences, against the paper's equations."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss
from tokenizers import Tokenizer

from clearspan.common.encoder.packing import pack_ids
from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import read_synonyms
from clearspan.shards import Manifest, ShardError, keyed
from clearspan.train.data.batch import Batch
from clearspan.train.draws import Purpose
from clearspan.train.objectives.clear import Clear, FreshViews, StoredViews
from clearspan.train.recipe import RecipeError
from clearspan.train.step.learner import Learner
from tests.train.conftest import text_id, write_sentences
from tests.train.test_learner import learner_and_batch

RECIPE = "clear-subs+del-span"
STORED = ("objectives.clear.views=stored", "objectives.clear.augment=del-span", "objectives.clear.synonyms=null")
MEAN = ("objectives.clear.pool=mean", "model.pooling=mean")
ONE_FORWARD = "training.gradient_accumulation_steps=1"


def clear_and_batch(overrides: list[str], **options) -> tuple[Learner, Batch]:
    learner, batches, _ = learner_and_batch(overrides, recipe=RECIPE, **options)
    return learner, batches["text"]


def run(learner: Learner, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return learner({"text": batch})


def projected(clear: Clear, states: torch.Tensor) -> torch.Tensor:
    """The projection head g (section 3.1) by hand: two layers, ReLU between them (SimCLR's, section 2.1)."""
    weight, bias, last_weight, last_bias = clear.head.parameters()
    assert [weight.shape, last_weight.shape] == [(32, 32), (128, 32)], "the width of the encoder, then 128"
    return torch.relu(states @ weight.T + bias) @ last_weight.T + last_bias


def rows(column) -> list[list[int]]:
    return [part.tolist() for part in column.values.split(column.lengths.tolist())]


def by_id(sentences: list[list[int]]) -> dict[int, list[int]]:
    return {text_id(row): row for row in sentences}


@pytest.mark.slow
@pytest.mark.parametrize("pool", [(), MEAN])
def test_the_loss_is_nt_xent_of_projected_vectors_of_views_made_by_hand(
    tiny_clear: list[str],
    sentences: list[list[int]],
    del_tokenizer_folder: Path,
    synonyms_file: Path,
    pool: tuple[str, ...],
) -> None:
    """Eq. 1 over the 2N views, each encoded on its own, against another implementation of the loss: of [CLS] states, or
    of means."""
    apart = "model.config.initializer_range=0.5"  # states of different sentences differ by far
    given = [*tiny_clear, "objectives.mlm=null", ONE_FORWARD, "training.seed=11", apart, *pool]
    learner, batch = clear_and_batch(given)
    tokenizer = Tokenizer.from_file(str(del_tokenizer_folder / "tokenizer.json"))
    augmenter = Augmenter(Augmentation.parse("subs+del-span"), tokenizer, read_synonyms(str(synonyms_file)))
    originals = [by_id(sentences)[i] for i in batch.ids.tolist()]
    block = Ragged.of([np.array(row) for row in originals], np.uint16)
    (clear,) = learner.objectives
    views = []
    for number in range(2):
        made = augmenter(block, keyed.mix(clear.setting.keys(0, batch.ids.numpy(), Purpose.VIEW), number))
        views += [made[row].tolist()[:62] for row in range(len(originals))]
    assert any(view != original for view, original in zip(views, originals * 2, strict=True))
    states = [learner.encoder(pack_ids([[0, *view, 2]])) for view in views]
    vectors = torch.stack([tokens.mean(0) if pool else tokens[0] for tokens in states])
    expected = NTXentLoss(temperature=0.1)(projected(clear, vectors), torch.arange(16).repeat(2))
    loss, metrics = run(learner, batch)
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    assert {"clear/alignment", "clear/uniformity"} <= metrics.keys()


def test_the_layers_after_the_pooling_train_where_the_mean_is_contrasted(tiny_clear: list[str]) -> None:
    given = [*tiny_clear, "model.head=tanh", "objectives.mlm=null"]
    learner, batch = clear_and_batch([*given, *MEAN])
    run(learner, batch)[0].backward()
    assert learner.encoder.head[0].linear.weight.grad.any()
    assert {*learner.encoder.head.parameters()} <= {*learner.parameters_of("all")}
    with pytest.raises(RecipeError, match=r"model\.head: no objective uses pooled vectors"):
        clear_and_batch(given)


def test_stored_views_are_the_shards_own(
    tiny_clear: list[str], sentences: list[list[int]], del_tokenizer_folder: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(del_tokenizer_folder / "tokenizer.json"))
    augmenter = Augmenter(Augmentation.parse("del-span"), tokenizer)
    folder = write_sentences(tmp_path / "two", sentences, del_tokenizer_folder, augmenter, 2)
    stored = [f"data.text.path={folder}", *STORED]
    _, batch = clear_and_batch([*tiny_clear, *stored])
    originals = [by_id(sentences)[i] for i in batch.ids.tolist()]
    for view in range(2):
        expected = [
            augmenter(Ragged.of([np.array(row)], np.uint16), keyed.mix(5, np.array([text_id(row)]), view))[0].tolist()
            for row in originals
        ]
        assert rows(batch.columns[f"clear/view_{view}"]) == expected
    assert list(batch.columns) == ["clear/view_0", "clear/view_1", "mlm/tokens"]


def with_synonyms(folder: Path, table: Path) -> Path:
    """The dataset with a table of synonyms beside its shards, as the pipeline leaves it."""
    (folder / "_files").mkdir()
    shutil.copy(table, folder / "_files" / "synonyms.json")
    manifest = Manifest.load(str(folder))
    manifest.fingerprint["options"]["files"] = {"synonyms.json": hashlib.sha256(table.read_bytes()).hexdigest()}
    manifest.save(str(folder))
    return folder


@pytest.fixture(scope="module")
def two_views(
    sentences: list[list[int]],
    tokenizer_folder: Path,
    del_tokenizer_folder: Path,
    synonyms_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Sentences with two views each, of subs or of reorder; `own` with synonyms beside it, `no-del` without [DEL]."""
    root, folders = tmp_path_factory.mktemp("two-views"), {}
    for name, steps, tokenizer in (
        ("subs", "subs+del-span", del_tokenizer_folder),
        ("own", "subs+del-span", del_tokenizer_folder),
        ("no-del", "reorder", tokenizer_folder),
    ):
        augmentation = Augmentation.parse(steps)
        table = read_synonyms(str(synonyms_file)) if augmentation.substitutes else None
        augmenter = Augmenter(augmentation, Tokenizer.from_file(str(tokenizer / "tokenizer.json")), table)
        folders[name] = write_sentences(root / name, sentences[:40], tokenizer, augmenter, 2)
    with_synonyms(folders["own"], synonyms_file)
    return folders


@pytest.mark.parametrize(
    ("shards", "augment", "synonyms", "expected"),
    [
        ("subs", "subs+del-span", False, StoredViews),
        ("subs", "subs+del-span", True, FreshViews),
        ("own", "subs+del-span", False, FreshViews),
        ("own", "del-word", False, FreshViews),
        ("no-del", "reorder", False, FreshViews),
    ],
)
def test_auto_makes_views_where_all_they_need_is_there(
    tiny_clear: list[str],
    two_views: dict[str, Path],
    synonyms_file: Path,
    shards: str,
    augment: str,
    synonyms: bool,
    expected: type,
) -> None:
    """The recipes' choice: synonyms of the recipe's or beside the shards, [DEL]; the shards' views where they lack."""
    given = [f"data.text.path={two_views[shards]}", f"objectives.clear.augment={augment}"]
    table = str(synonyms_file) if synonyms else "null"
    learner, _ = clear_and_batch(
        [*tiny_clear, *given, "objectives.clear.views=auto", f"objectives.clear.synonyms={table}"]
    )
    (clear, _) = learner.objectives
    assert type(clear.views) is expected
    (note,) = clear.notes(2.0)
    if expected is StoredViews:
        assert clear.notes(1.0) == [] and "are the same in all 2 epochs: set objectives.clear.views=fly" in note
    else:
        assert clear.notes(1.0) == [note] and "objectives.clear.views=stored uses the shards' 2 views" in note


def test_only_two_stored_views_in_several_epochs_are_worth_a_note(tiny_clear: list[str]) -> None:
    """Three are drawn from, new ones are new, whether the shards hold any or not."""
    for overrides in (STORED, ("objectives.clear.views=fly",)):
        (clear, _) = clear_and_batch([*tiny_clear, *overrides])[0].objectives
        assert clear.notes(500.0) == []
    clear.views = StoredViews(2, clear.setting)
    assert clear.notes(1.0) == [] and "in all 2 epochs" in clear.notes(1.01)[0] and "500" in clear.notes(500.0)[0]


def test_views_on_the_fly_take_the_synonyms_that_the_shards_were_made_with(
    tiny_clear: list[str], sentences: list[list[int]], del_tokenizer_folder: Path, synonyms_file: Path, tmp_path: Path
) -> None:
    """`_files/synonyms.json`, where the recipe names no file of its own; the manifest has its hash."""
    folder = with_synonyms(write_sentences(tmp_path / "bare", sentences, del_tokenizer_folder), synonyms_file)
    table = synonyms_file.read_bytes()
    given = [*tiny_clear, f"data.text.path={folder}"]
    (_, expected), (_, found) = (
        clear_and_batch([*given, *change]) for change in ([], ["objectives.clear.synonyms=null"])
    )
    assert torch.equal(expected.columns["clear/view_0"].values, found.columns["clear/view_0"].values)
    (folder / "_files" / "synonyms.json").write_bytes(table.replace(b"thing", b"THING"))
    with pytest.raises(ShardError, match=r"_files/synonyms\.json: its sha256"):
        clear_and_batch([*given, "objectives.clear.synonyms=null"])
