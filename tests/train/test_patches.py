"""The objective over pictures and clips: its loss is that of views encoded alone by the plain model."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from clearspan.common.encoder.packing import pack_ids
from clearspan.common.files import sha256
from clearspan.shards import Dataset, Manifest, ShardError, ShardWriter
from clearspan.shards.schema import KINDS
from clearspan.train.config.options import RecipeError
from clearspan.train.data.batch import Batch, Rows
from clearspan.train.objectives.patches import PatchContrast
from clearspan.train.step.learner import Learner
from tests.train.ranks import train_on_ranks
from tests.train.test_learner import learner_and_batch
from tests.train.test_losses import reference_sup_con
from tests.train.test_simcse import written_out

MODALITIES = {"images": ["image_size=64"], "audio": ["frames=120"]}
DROPOUT = ["model.config.hidden_dropout_prob=0.1", "model.config.attention_probs_dropout_prob=0.1"]


@pytest.fixture
def recipes(tiny_patches: list[str], images_folder: Path, audio_folder: Path) -> dict[str, list[str]]:
    """Overrides of a run over each kind of dataset."""
    folders = {"images": images_folder, "audio": audio_folder}
    options = {kind: [f"data.others.modality.{option}" for option in given] for kind, given in MODALITIES.items()}
    return {kind: [*tiny_patches, f"data.others.path={folders[kind]}", *options[kind]] for kind in MODALITIES}


def write_images(folder: Path, pictures: Sequence[bytes], labels: Sequence[int], classes: Sequence[str]) -> Path:
    """A published dataset of pictures."""
    (folder / "_files").mkdir(parents=True)
    (folder / "_files" / "classes.json").write_text(json.dumps(list(classes)))
    writer = ShardWriter(folder, "images", 0, 1 << 20)
    columns = KINDS["images"].schema()
    arrays = [pa.array(range(len(labels))), pa.array(pictures, pa.binary()), pa.array(labels, pa.int64())]
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=columns))
    fingerprint = {"options": {"files": {"classes.json": sha256(folder / "_files" / "classes.json")}}}
    counts = {"read": len(labels), "kept": len(labels), "filtered": {}, "bad": 0}
    Manifest("images", fingerprint, writer.close(), counts).save(str(folder))
    return folder


@pytest.fixture(scope="module")
def pictures(images_folder: Path) -> list[bytes]:
    return [row["image"] for batch in Dataset(images_folder) for row in batch.to_pylist()]


def encoded_alone(learner: Learner, batch: Batch) -> list[Tensor]:
    """The states of the class token of the first views and of the second, each view by itself through the plain model,
    whose embeddings give way to the patches.
    """
    base, (embedding,) = learner.encoder.base, learner.embeddings.values()
    base.set_attn_implementation("eager")
    values = batch.of("patches").values("values")
    found = []
    for view in range(2):
        states = []
        for one in values[:, view % values.shape[1]]:
            patches = embedding(one[None])
            with base.embeddings.register_forward_hook(lambda module, inputs, output, patches=patches: patches):
                ids = torch.zeros(1, patches.shape[1], dtype=torch.long)
                positions = torch.ones_like(ids)  # which no patch is told
                states.append(base(input_ids=ids, position_ids=positions).last_hidden_state[0, 0])
        found.append(torch.stack(states))
    return found


@pytest.mark.parametrize("head", ["tanh", "none"])
@pytest.mark.parametrize("loss", ["khosla", "simclr"])
@pytest.mark.parametrize("kind", MODALITIES)
def test_the_loss_is_that_of_each_view_encoded_alone(
    recipes: dict[str, list[str]], kind: str, loss: str, head: str
) -> None:
    words = [f"objectives.patches.loss={loss}", f"objectives.patches.head={head}", "objectives.patches.temperature=0.3"]
    learner, batches, _ = learner_and_batch([*recipes[kind], *words])
    _, metrics = learner(batches)
    first, second = encoded_alone(learner, batches["others"])
    if head == "tanh":
        linear = learner.objectives[1].head[0]
        first, second = (torch.tanh(states @ linear.weight.T + linear.bias) for states in (first, second))
    labels = batches["others"].of("patches").values("labels")
    if loss == "khosla":
        expected = reference_sup_con(first, second, labels.tolist(), 0.3, loss)
    else:  # NonLing-CSE's Eq. 5
        expected = written_out([first, second], 0.3)
    torch.testing.assert_close(metrics["patches/loss"], expected.detach(), atol=1e-4, rtol=1e-4)
    assert {"patches/accuracy", "patches/alignment", "patches/uniformity"} <= metrics.keys()


def test_heads_are_computed_in_fp32_under_autocast(recipes: dict[str, list[str]]) -> None:
    """What stays and what is for training only: an export and an evaluation know no autocast."""
    learner, _, _ = learner_and_batch([*recipes["images"], "model.head=tanh"])
    packed, objective = pack_ids([[5, 6, 7], [8, 9]]), learner.objectives[1]
    hidden = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    stays = learner.encoder.pool(hidden, packed)
    for_training = objective.head(stays)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(learner.encoder.pool(hidden, packed), stays)
        assert torch.equal(torch.cat(list(objective.projected(stays[:1], stays[1:]))), for_training)


def test_two_passes_of_a_clip_with_one_view_differ_by_dropout_alone(recipes: dict[str, list[str]]) -> None:
    still, batches, _ = learner_and_batch(recipes["audio"])
    assert still(batches)[1]["patches/alignment"] < 1e-10
    learner, batches, _ = learner_and_batch([*recipes["audio"], *DROPOUT])
    learner.train()
    assert learner(batches)[1]["patches/alignment"] > 1e-4


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())


def test_pictures_in_turns_with_text_ask_for_no_token_embedding(recipes: dict[str, list[str]]) -> None:
    """Its turn's forward is of patches alone and trains the layers, the patches' embeddings and its head."""
    learner, batches, _ = learner_and_batch([*recipes["images"], "optimization=alternate"], static=True)
    loss, metrics = learner(batches, "patches")
    loss.backward()
    assert metrics["tokens"] == 8 * 2 * 17 and metrics.keys() & {"simcse/loss"} == set()
    trained = {name for name, parameter in learner.named_parameters() if _has_gradient(parameter)}
    own = {id(parameter) for parameter in learner.parameters_of("patches")}
    assert {name for name, parameter in learner.named_parameters() if id(parameter) in own} == trained
    assert not any("word_embeddings" in name for name in trained)


def built(words: list[str]) -> PatchContrast:
    objective = learner_and_batch(words)[0].objectives[1]
    assert isinstance(objective, PatchContrast)
    return objective


@pytest.mark.parametrize("label", [8, -1])
def test_a_label_that_names_no_class_is_refused(
    recipes: dict[str, list[str]], pictures: list[bytes], label: int
) -> None:
    objective = built(recipes["images"])
    ids = np.array([11, 12, 13])
    rows = Rows("others", {"image": pictures[:3], "label": np.array([0, label, 7])}, ids, 0)
    said = rf"^data\.others: example 12 has the label {label}, but there are 8 classes: run the pipeline again$"
    with pytest.raises(ShardError, match=said):
        objective.collate(rows)


def test_one_class_gives_supcon_nothing_to_tell_apart(
    recipes: dict[str, list[str]], pictures: list[bytes], tmp_path: Path
) -> None:
    folder = write_images(tmp_path / "one", pictures[:12], [0] * 12, ["terrapin"])
    words = [*recipes["images"], f"data.others.path={folder}"]
    said = rf"^objectives\.patches: {folder} has examples of 1 class: loss khosla needs two .*: set loss: simclr$"
    with pytest.raises(RecipeError, match=said):
        learner_and_batch(words)
    learner, batches, _ = learner_and_batch([*words, "objectives.patches.loss=simclr"])
    assert learner(batches)[0].isfinite()


def test_classes_of_a_single_example_are_told_at_the_start(
    recipes: dict[str, list[str]], pictures: list[bytes], tmp_path: Path
) -> None:
    names = ["terrapin", "newt", "wreck", "goose", "toad"]
    folder = write_images(tmp_path / "few", pictures[:12], [0, 1, 2, 3, *[4] * 8], names)
    words = [*recipes["images"], f"data.others.path={folder}"]
    assert built(words).notes(1.0) == [
        "objectives.patches: 4 of 5 classes have a single example (terrapin, newt, wreck, ...), whose only positive "
        "is its other view"
    ]
    assert not built([*words, "objectives.patches.loss=simclr"]).notes(1.0)
    assert not built(recipes["images"]).notes(1.0)


def test_clips_encoded_twice_without_dropout_are_told_at_the_start(recipes: dict[str, list[str]]) -> None:
    masked = ["data.others.modality.views=2", "data.others.modality.freq_mask=24"]
    for words, said in (([], True), (DROPOUT, False), (masked, False)):
        notes = built([*recipes["audio"], *words]).notes(1.0)
        assert len(notes) == said and all("objectives.patches: its positives are two passes" in n for n in notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["objectives.patches.data=text", "data.others=null"],
            r"objectives\.patches: data\.text\.path .* holds sentences",
        ),
        (
            ["objectives.simcse.data=others", "data.text=null"],
            r"data: no dataset .*tokenizer",
        ),
        (
            ["objectives.more.type=spans", "objectives.more.data=others"],
            r"objectives\.more: type \w+ .*'tokens', .*data\.others\.path",
        ),
        (
            ["data.others.batch_size=4", "training.gradient_accumulation_steps=4"],
            r"objectives\.patches .* needs 2 or more: data\.others\.batch_size 4",
        ),
        (["data.text.modality.image_size=64"], r"data\.text\.modality has no effect: .* holds sentences"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_recipe_that_cannot_work_is_refused(recipes: dict[str, list[str]], words: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=f"^{said}") as error:
        learner_and_batch([*recipes["images"], *words])
    assert "\n" not in str(error.value)


@pytest.mark.exhaustive
def test_what_one_rank_alone_meets_is_a_line_of_each(
    tiny_patches: list[str], pictures: list[bytes], tmp_path: Path
) -> None:
    """A picture that cannot be decoded is one rank's; the other waits for it in vain."""
    folder = write_images(tmp_path / "images", [*pictures[:63], b"no picture"], [0, 1] * 32, ["a", "b"])
    options = [*tiny_patches, f"data.others.path={folder}", "data.others.modality.image_size=64"]
    done = train_on_ranks(2, *options, f"output={tmp_path / 'run'}", port=28210 + os.getpid() % 300, code=1)
    assert "example 63 cannot be decoded" in done.stderr
    assert "another rank ended" in done.stderr
