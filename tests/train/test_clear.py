"""CLEAR's objective and masked LM on sentences, against the paper's equations."""

import dataclasses
import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss
from tokenizers import Tokenizer

from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import read_synonyms
from clearspan.shards import Dataset, Manifest, ShardError, keyed
from clearspan.train.config.recipe import RecipeError, load
from clearspan.train.data.batch import Batch
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.draws import Purpose
from clearspan.train.learner import Learner
from clearspan.train.model.packing import pack_ids
from clearspan.train.objectives.clear import Clear, FreshViews, StoredViews
from tests.train.conftest import TINY_MODEL, text_id, write_sentences
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
    learner, batch = clear_and_batch([*tiny_clear, *stored])
    originals = [by_id(sentences)[i] for i in batch.ids.tolist()]
    for view in range(2):
        expected = [
            augmenter(Ragged.of([np.array(row)], np.uint16), keyed.mix(5, np.array([text_id(row)]), view))[0].tolist()
            for row in originals
        ]
        assert rows(batch.columns[f"clear/view_{view}"]) == expected
    assert list(batch.columns) == ["clear/view_0", "clear/view_1", "mlm/tokens"] and learner.fingerprints() == {}


def test_auto_makes_views_where_the_shards_hold_none(
    tiny_clear: list[str], sentences: list[list[int]], del_tokenizer_folder: Path, tmp_path: Path
) -> None:
    given = [*tiny_clear, f"data.text.path={write_sentences(tmp_path / 'bare', sentences[:40], del_tokenizer_folder)}"]
    losses = [clear_and_batch([*given, f"objectives.clear.views={views}"]) for views in ("auto", "fly")]
    assert torch.equal(*(run(learner, batch)[0] for learner, batch in losses))


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
    tiny_clear: list[str],
    sentences: list[list[int]],
    del_tokenizer_folder: Path,
    synonyms_file: Path,
    tmp_path: Path,
) -> None:
    """`_files/synonyms.json`, where the recipe names no file of its own; the manifest has its hash."""
    folder = with_synonyms(write_sentences(tmp_path / "bare", sentences, del_tokenizer_folder), synonyms_file)
    table = synonyms_file.read_bytes()
    given = [*tiny_clear, f"data.text.path={folder}"]
    (named, expected), (own, found) = (
        clear_and_batch([*given, *change]) for change in ([], ["objectives.clear.synonyms=null"])
    )
    assert torch.equal(expected.columns["clear/view_0"].values, found.columns["clear/view_0"].values)
    assert named.fingerprints() == own.fingerprints() and list(own.fingerprints()) == ["clear"]
    (folder / "_files" / "synonyms.json").write_bytes(table.replace(b"thing", b"THING"))
    with pytest.raises(ShardError, match=r"_files/synonyms\.json: its sha256"):
        clear_and_batch([*given, "objectives.clear.synonyms=null"])


def test_the_fingerprint_of_views_on_the_fly_is_of_what_their_synonyms_say(
    tiny_clear: list[str], synonyms_file: Path, tmp_path: Path
) -> None:
    """By it a run that resumes knows them again; the file's name and layout do not matter."""
    clear = clear_and_batch(tiny_clear)[0].objectives[0]
    table = json.loads(synonyms_file.read_text())
    given = {"same": table, "other": {**table, "object": ["entity"]}, "reversed": dict(reversed(table.items()))}
    found = {}
    for name, content in given.items():
        (tmp_path / name).write_text(json.dumps(content, indent=1))
        config = dataclasses.replace(clear.config, synonyms=str(tmp_path / name))
        found[name] = FreshViews(config, clear.setting).fingerprint
    assert found["same"] == clear.fingerprint()
    assert len(set(found.values())) == 3, "of words that share a form the first one counts"


def batches_of(
    learner: Learner, overrides: list[str], batch_size: int, state: StreamState | None = None
) -> Iterator[tuple[Batch, StreamState]]:
    """The stream of a recipe's dataset, all of it shuffled together."""
    dataset = Dataset(load(RECIPE, [*overrides, "output=o"]).data["text"].path)
    stream = ExampleStream("text", dataset, batch_size, 0, 100)
    return stream.batches(state or StreamState(), learner.columns("text"), learner.collate)


@pytest.mark.parametrize("views", [(), STORED], ids=["fly", "stored"])
def test_a_stream_that_goes_on_makes_the_views_of_one_that_never_stopped(
    tiny_clear: list[str], views: tuple[str, ...]
) -> None:
    """From the middle of an epoch into the next; of three stored views a pair is drawn anew in each."""
    learner, _ = clear_and_batch([*tiny_clear, *views])
    whole = list(itertools.islice(batches_of(learner, tiny_clear, 250), 4))
    resumed = itertools.islice(batches_of(learner, tiny_clear, 250, whole[0][1]), 3)
    assert [batch.epochs[0].item() for batch, _ in whole] == [0, 0, 1, 1]
    for (expected, state), (found, its_state) in zip(whole[1:], resumed, strict=True):
        assert its_state == state and torch.equal(found.ids, expected.ids)
        for name in ("clear/view_0", "clear/view_1", "mlm/tokens"):
            assert rows(found.columns[name]) == rows(expected.columns[name])


def test_a_pretrained_model_gets_an_embedding_for_del(
    tiny: list[str], tiny_clear: list[str], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """The shards' tokenizer is the model's own plus [DEL]: one row more, the others as before."""
    pretrained, _, _ = learner_and_batch(tiny)
    folder = tmp_path / "pretrained"
    pretrained.encoder.model.save_pretrained(folder)
    for path in tokenizer_folder.iterdir():
        shutil.copy(path, folder)
    given = [o for o in tiny_clear if o not in TINY_MODEL] + ["model.config=null", f"model.path={folder}"]
    models = [clear_and_batch(given)[0].encoder.model for _ in range(2)]
    before, after, again = (m.state_dict() for m in (pretrained.encoder.model, *models))
    for name, weights in after.items():
        assert torch.equal(weights[:1500] if len(weights) == 1501 else weights, before[name]), name
        assert torch.equal(weights, again[name])
    assert models[0].config.vocab_size == 1501
    assert models[0].lm_head.decoder.weight is models[0].get_input_embeddings().weight
    assert 0.01 < after["roberta.embeddings.word_embeddings.weight"][1500].std() < 0.03
