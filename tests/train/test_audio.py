"""Clips on the host and as patches: normalised, cut and filled, masked, and mixed as their waveforms would be."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from clearspan.shards import Dataset, ShardError, keyed
from clearspan.shards.layouts import array_of
from clearspan.shards.schema import MEL_BINS
from clearspan.train import draws
from clearspan.train.config.options import RecipeError
from clearspan.train.data.batch import Batch, Rows
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.modalities.audio import AudioConfig, AudioModality, SpectrogramEmbedding, mask, mixed
from clearspan.train.objectives.patches import PatchContrast
from tests.train.test_learner import learner_and_batch

FRAMES = 118
"""Of every clip of the dataset."""


@pytest.fixture(scope="module")
def clips(audio_folder: Path) -> dict[int, np.ndarray]:
    """The log-mel frames of every example, by id."""
    batches = [batch for batch in Dataset(audio_folder) if batch.num_rows]
    return {
        number: array_of(frames).astype(np.float32)
        for batch in batches
        for number, frames in zip(batch["id"].to_pylist(), batch["frames"], strict=True)
    }


@pytest.fixture(scope="module")
def labels(audio_folder: Path) -> dict[int, int]:
    """The class of every example, by id."""
    rows = [row for batch in Dataset(audio_folder) for row in batch.select(["id", "label"]).to_pylist()]
    return {row["id"]: row["label"] for row in rows}


@pytest.fixture
def recipe(tiny_patches: list[str], audio_folder: Path) -> list[str]:
    """Overrides of a run over clips of 120 frames."""
    return [*tiny_patches, f"data.others.path={audio_folder}", "data.others.modality.frames=120"]


def collated(folder: Path, options: AudioConfig, **changes: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(ids, values, labels) of every micro-batch from the first on, of one rank, whose keys are those of the epoch."""
    audio = AudioModality.build(options, Dataset(folder))

    def collate(rows: Rows) -> dict[str, dict[str, np.ndarray]]:
        keys = keyed.mix(3, rows.epoch, rows.ids)[:, None]
        values, labels = audio.collate(rows, keyed.mix(keys, np.arange(audio.views)))
        return {"one": {"values": values, "labels": labels}}

    settings = {"batch_size": 16, "seed": 5, "shuffle_shards": 2, **changes}
    for batch, _ in ExampleStream("others", Dataset(folder), **settings).batches(StreamState(), audio.columns, collate):
        own: Batch = batch.of("one")
        yield batch.ids.numpy(), own.values("values").numpy(), own.values("labels").numpy()


def test_a_clip_is_normalised_by_the_mean_and_deviation_of_all(
    audio_folder: Path, clips: dict[int, np.ndarray], labels: dict[int, int]
) -> None:
    everything = np.concatenate(list(clips.values())).astype(np.float64)
    mean, std = everything.mean(), everything.std()
    ids, values, found = next(collated(audio_folder, AudioConfig(frames=FRAMES)))
    assert values.shape == (16, 1, FRAMES, MEL_BINS) and values.dtype == np.float16
    for number, value, label in zip(ids, values[:, 0], found, strict=True):
        np.testing.assert_allclose(value, (clips[number] - mean) / (2 * std), atol=2e-3)
        assert label == labels[number]


def test_a_longer_clip_is_cut_and_a_shorter_one_filled_with_zeros(
    audio_folder: Path, clips: dict[int, np.ndarray]
) -> None:
    for frames in (50, 200):
        ids, values, _ = next(collated(audio_folder, AudioConfig(frames=frames, normalize=False)))
        for number, value in zip(ids, values[:, 0], strict=True):
            assert (value[:FRAMES] == clips[number][:frames]).all() and not value[FRAMES:].any()


@pytest.mark.slow
def test_masks_are_of_any_length_up_to_their_most_at_any_place() -> None:
    """Lengths are uniform from none to the most, and every place where one fits is as likely."""
    options = AudioConfig(frames=40, freq_mask=6, time_mask=9, views=2)
    uniforms = draws.uniform(torch.arange(20_000), 4).numpy()
    lengths, starts = {0: [], 1: []}, {0: [], 1: []}
    for one in uniforms:
        values = np.ones((40, MEL_BINS))
        mask(values, one, options)
        frames, bins = np.flatnonzero((values == 0).all(1)), np.flatnonzero((values == 0).all(0))
        for axis, found in ((0, frames), (1, bins)):
            lengths[axis].append(len(found))
            assert not len(found) or (np.diff(found) == 1).all()
            if len(found) == 3:
                starts[axis].append(found[0])
        assert (values == 0).sum() == len(frames) * MEL_BINS + len(bins) * 40 - len(frames) * len(bins)
    for axis, most, room in ((0, 9, 40 - 3), (1, 6, MEL_BINS - 3)):
        assert set(lengths[axis]) == set(range(most + 1)) and set(starts[axis]) == set(range(room + 1))
        assert stats.chisquare(np.bincount(lengths[axis])).pvalue > 0.001
        assert stats.chisquare(np.bincount(starts[axis])).pvalue > 0.001


def test_energies_of_a_mixture_add_up_and_the_longer_one_goes_on_alone() -> None:
    generator = np.random.default_rng(0)
    short, long = (generator.normal(-7, 3, (n, MEL_BINS)).astype(np.float32) for n in (5, 9))
    energies = 0.64 * np.exp(short.astype(np.float64)) + 0.04 * np.exp(long[:5].astype(np.float64))
    for found in (mixed(short, long, 0.8), mixed(long, short, 0.2)):
        np.testing.assert_allclose(found[:5], np.log(energies), atol=1e-4)
        assert len(found) == 9
    np.testing.assert_allclose(mixed(short, long, 0.8)[5:], long[5:] + np.log(0.04), atol=1e-4)


MIXING = AudioConfig(frames=FRAMES, normalize=False, mixup=1.0)


def partners(ids: np.ndarray, values: np.ndarray, clips: dict[int, np.ndarray]) -> Iterator[tuple[int, int, float]]:
    """(example, partner, its share) of each mixture of a micro-batch, found by what explains the values best."""
    shares = np.linspace(0.02, 0.98, 49)
    for number, value in zip(ids.tolist(), values[:, 0].astype(np.float64), strict=True):
        # Of a mixture, exp(value) = s^2 exp(own) + (1 - s)^2 exp(other): nothing else gives a small error.
        found = []
        for other in ids.tolist():
            for share in shares:
                made = np.logaddexp(clips[number][::16] + 2 * np.log(share), clips[other][::16] + 2 * np.log1p(-share))
                found.append((float(np.abs(made - value[::16]).mean()), other, float(share)))
        error, other, share = min(found)
        assert error < 0.05, "no example of the micro-batch is the partner"
        yield number, other, share


def test_a_clip_is_mixed_with_another_of_its_micro_batch_and_has_the_label_of_the_louder(
    audio_folder: Path, clips: dict[int, np.ndarray], labels: dict[int, int]
) -> None:
    drawn = collated(audio_folder, MIXING, batch_size=16, micro_batches=4)
    louder = set()
    for _ in range(6):
        ids, values, found = next(drawn)
        assert len(ids) == 4
        for (number, other, share), label in zip(partners(ids, values, clips), found, strict=True):
            assert other != number
            if abs(share - 0.5) > 0.02:
                assert label == labels[number if share > 0.5 else other]
                louder.add(share > 0.5)
    assert louder == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_mixtures_and_labels_are_the_same_on_any_number_of_ranks(audio_folder: Path, micro_batches: int) -> None:
    options = AudioConfig(frames=FRAMES, mixup=0.7, freq_mask=20, time_mask=30, views=2)
    alone = collated(audio_folder, options, micro_batches=micro_batches)
    ranks = [collated(audio_folder, options, micro_batches=micro_batches, rank=rank, ranks=4) for rank in range(4)]
    for _ in range(7):
        for expected, *found in zip(next(alone), *map(next, ranks), strict=True):
            assert (expected == np.concatenate(found)).all()


def test_shares_are_of_the_beta_distribution_and_as_many_as_are_to_be_mixed() -> None:
    uniforms = draws.uniform(torch.arange(20_000), 2).numpy().T
    shares = AudioModality(AudioConfig(mixup=0.5), 0, 1)._shares(*uniforms)
    assert (shares < 1).mean() == pytest.approx(0.5, abs=0.01)
    assert stats.kstest(shares[shares < 1], stats.beta(10, 10).cdf).pvalue > 0.01
    assert (AudioModality(AudioConfig(), 0, 1)._shares(*uniforms) == 1).all()


def test_a_share_too_small_for_a_float_is_no_error(audio_folder: Path) -> None:
    """Nearly all of Beta(0.001, 0.001) lies below what has a logarithm, or above what differs from 1."""
    options = dataclasses.replace(MIXING, mixup_alpha=0.001)
    drawn = collated(audio_folder, options)
    assert all(np.isfinite(next(drawn)[1]).all() for _ in range(5))


def test_two_views_are_of_one_mixture_under_different_masks(audio_folder: Path) -> None:
    options = dataclasses.replace(MIXING, freq_mask=40, time_mask=60, views=2)
    _, values, _ = next(collated(audio_folder, options))
    assert values.shape == (16, 2, FRAMES, MEL_BINS)
    assert all((first != second).any() for first, second in values)
    both = (values != 0).all(axis=1)
    assert both.mean() > 0.3 and (values[:, 0][both] == values[:, 1][both]).all()


@pytest.mark.parametrize("positions", [True, False])
def test_1024_frames_are_211_rows_by_bins_then_by_time(positions: bool) -> None:
    """Each patch's row is its 24 x 24 values times the weights, all times of the lowest bins first; rests are left."""
    options = AudioConfig(positions=positions)
    audio = AudioModality(options, 0, 1)
    embedding = audio.embedding(32)
    assert isinstance(embedding, SpectrogramEmbedding) and audio.patches == 211
    frames = torch.randn(2, 1024, MEL_BINS, generator=torch.Generator().manual_seed(0)).half()
    with torch.no_grad():
        found = embedding(frames)
        assert found.shape == (2, 211, 32)
        if embedding.positions is not None:
            found = found - embedding.positions
        weights, bias = embedding.project.weight, embedding.project.bias
        torch.testing.assert_close(found[:, 0], embedding.cls_token[0].expand(2, -1))
        for bins in range(5):
            for time in (0, 1, 41):
                part = frames[:, 24 * time : 24 * time + 24, 24 * bins : 24 * bins + 24].float()
                expected = torch.einsum("ntb,hbt->nh", part, weights[:, 0]) + bias
                torch.testing.assert_close(found[:, 1 + 42 * bins + time], expected, atol=1e-4, rtol=1e-4)
    assert positions == (embedding.positions is not None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["patch_size=129"], "patch_size 129 must .*frames 120 "),
        (["frames=20"], "patch_size 24 must .*frames 20 "),
        (["freq_mask=129"], "modality.freq_mask must be at most 128"),
        (["time_mask=121"], "time_mask 121 is more than frames 120"),
        (["mixup=0.5", "mixup_alpha=0"], "modality.mixup_alpha must be above 0"),
        (["mixup_alpha=2"], "mixup_alpha 2.0 has no effect without mixup"),
        (["views=2"], "views 2 .* freq_mask, time_mask or mixup"),
        (["frames=1000000000"], "modality.frames must be at most 524,288"),
        (["image_size=64"], r"unknown key 'data\.others\.modality\.image_size'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_work_are_refused(recipe: list[str], options: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said) as error:
        learner_and_batch([*recipe, *(f"data.others.modality.{option}" for option in options)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_clip_of_values_that_are_no_numbers_is_named_mixed_or_not(
    audio_folder: Path, clips: dict[int, np.ndarray], value: float
) -> None:
    ids, frames = np.array(list(clips)[:4]), [one.astype(np.float16) for one in list(clips.values())[:4]]
    frames[2] = frames[2].copy()
    frames[2][7, 3] = value

    def peer(row: int, uniform: float) -> dict:
        return {"id": int(ids[(row + 1) % 4]), "frames": frames[(row + 1) % 4], "label": 0}

    rows = Rows("others", {"frames": frames, "label": np.zeros(4, np.int64)}, ids, 0, peer)
    for options in (AudioConfig(frames=FRAMES), MIXING):
        said = rf"^data\.others: .* example {ids[2]} .*not finite"
        with pytest.raises(ShardError, match=said):
            AudioModality(options, -7, 3).collate(rows, ids[:, None])


def test_a_dataset_without_statistics_is_not_normalised(
    audio_folder: Path, recipe: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.shards.manifest.Manifest._check_figures", lambda manifest, record: None)
    monkeypatch.setattr("clearspan.shards.manifest.Manifest.statistics", {})
    said = r"^data\.others\.modality: normalize: .* lacks mean and standard deviation: run the pipeline again"
    with pytest.raises(RecipeError, match=said):
        learner_and_batch(recipe)
    learner, batches, _ = learner_and_batch([*recipe, "data.others.modality.normalize=false"])
    assert isinstance(learner.objectives[1], PatchContrast) and learner(batches)[0].isfinite()
