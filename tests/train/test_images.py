"""Pictures on the host and as patches: crops, views and colours against references written from their definitions."""

import colorsys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from clearspan.shards import Dataset, keyed
from clearspan.train import draws, modalities
from clearspan.train.data.batch import Rows
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.modalities.images import CROP_TRIES, DRAWS, ImageConfig, ImageModality, crop_box, shifted_hue, view
from tests.train.test_learner import learner_and_batch

PLAIN = {"flip_probability": 0.0, "jitter_probability": 0.0, "grey_probability": 0.0}
"""Options of a view that is a crop and nothing else."""
JITTERED = ("brightness", "contrast", "saturation", "hue")
PLACES = {name: 4 * CROP_TRIES + number for number, name in enumerate(("flip", "jitter", "grey", *JITTERED))}
"""Where the draws of a view stand after those of its crop."""
ORDER = slice(DRAWS - 4, DRAWS)


def uniforms(keys: range) -> np.ndarray:
    return draws.uniform(torch.from_numpy(keyed.mix(7, np.array(keys))), DRAWS).numpy()


@pytest.fixture(scope="module")
def photograph(shared_data: Path) -> Image.Image:
    """A photograph of some 300 x 200 pixels in many colours."""
    path = min((shared_data / "images" / "caltech60" / "butterfly").glob("*.jpg"))
    return Image.open(path).convert("RGB")


@pytest.fixture(scope="module")
def square(photograph: Image.Image) -> Image.Image:
    """96 x 96 of its pixels."""
    return photograph.crop((100, 50, 196, 146))


def tries(size: tuple[int, int], uniforms: np.ndarray, min_scale: float) -> Iterator[tuple[float, float, bool]]:
    """The width, the height and whether it fits of each try, by RandomResizedCrop's rule: a share of the area that is
    uniform, an aspect that is uniform in its logarithm.
    """
    for share, aspect, _, _ in uniforms:
        area = size[0] * size[1] * (min_scale + share * (1 - min_scale))
        ratio = (3 / 4) ** (1 - aspect) * (4 / 3) ** aspect
        width, height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        yield width, height, 1 <= width <= size[0] and 1 <= height <= size[1]


def reference_box(size: tuple[int, int], uniforms: np.ndarray, min_scale: float) -> tuple[int, int, int, int]:
    """RandomResizedCrop as its documentation and code say, one try after the other."""
    for (width, height, fits), (_, _, x, y) in zip(tries(size, uniforms, min_scale), uniforms, strict=True):
        if fits:  # randint(0, room + 1): each place alike
            left = [n for n in range(size[0] - width + 1) if n / (size[0] - width + 1) <= x][-1]
            top = [n for n in range(size[1] - height + 1) if n / (size[1] - height + 1) <= y][-1]
            return left, top, width, height
    aspect = size[0] / size[1]
    if aspect < 3 / 4:
        width, height = size[0], round(size[0] / (3 / 4))
    elif aspect > 4 / 3:
        width, height = round(size[1] * (4 / 3)), size[1]
    else:
        width, height = size
    return (size[0] - width) // 2, (size[1] - height) // 2, width, height


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 10**9), st.floats(0.01, 1.0))
@example(1000, 10, 3, 1.0)
@example(10, 1000, 3, 1.0)
def test_a_crop_is_that_of_the_published_rule(width: int, height: int, key: int, min_scale: float) -> None:
    drawn = uniforms(range(key, key + 1))[0, : 4 * CROP_TRIES].reshape(CROP_TRIES, 4)
    box = crop_box((width, height), drawn, min_scale)
    assert box == reference_box((width, height), drawn, min_scale)
    left, top, w, h = box
    assert 0 <= left <= left + w <= width and 0 <= top <= top + h <= height and w >= 1 and h >= 1
    if any(fits for *_, fits in tries((width, height), drawn, min_scale)):
        # Sides are rounded: by half a pixel at most.
        assert (w - 0.5) * (h - 0.5) <= width * height and (w + 0.5) * (h + 0.5) >= min_scale * width * height - 1e-6
        assert (w + 0.5) / (h - 0.5) >= 3 / 4 and (w - 0.5) / (h + 0.5) <= 4 / 3


def changed(picture: np.ndarray, which: str, factor: float) -> np.ndarray:
    """A picture (h, w, 3) in grey levels with one property changed, in floating point."""
    grey = (picture @ [299, 587, 114] / 1000)[..., None]
    if which == "hue":
        hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in (picture / 255).reshape(-1, 3)]
        turned = [colorsys.hsv_to_rgb((h + factor) % 1, s, v) for h, s, v in hsv]
        return 255 * np.array(turned).reshape(picture.shape)
    begin = {"brightness": 0.0, "contrast": round(grey.mean()), "saturation": grey}[which]
    return np.clip(begin + factor * (picture - begin), 0, 255)


def whole(size: int, **options: object) -> ImageConfig:
    """Options under which a square picture of this size is cropped and resized to itself, and stays as it is."""
    return ImageConfig(image_size=size, patch_size=1, min_scale=1.0, **{**PLAIN, **options})


def drawn(**values: float) -> np.ndarray:
    """The draws of a view that are 0.5 but for these."""
    found = np.full(DRAWS, 0.5)
    for name, value in values.items():
        found[PLACES[name]] = value
    return found


def only(which: str) -> list[float]:
    """The published jitter of one property alone."""
    return [most if name == which else 0.0 for name, most in zip(JITTERED, ImageConfig().jitter, strict=True)]


def as_levels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture, np.float64)


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.8, 0.999])
@pytest.mark.parametrize("which", ["brightness", "contrast", "saturation"])
def test_brightness_contrast_and_saturation_are_blends(square: Image.Image, which: str, strength: float) -> None:
    config = whole(96, jitter_probability=1.0, jitter=only(which))
    found = as_levels(view(square, drawn(**{which: strength}), config))
    assert np.abs(found - changed(as_levels(square), which, 1 + 0.4 * (2 * strength - 1))).max() <= 2


@given(st.integers(-127, 127), st.integers(0, 999))
def test_hues_turn_as_pillows_hsv_does(turn: int, key: int) -> None:
    pixels = np.random.default_rng(key).integers(0, 256, (16, 16, 3), np.uint8)
    hsv = np.asarray(Image.fromarray(pixels).convert("HSV")).copy()
    hsv[..., 0] += np.uint8(turn % 256)
    found = shifted_hue(Image.fromarray(pixels), (turn + 0.5 * np.sign(turn)) / 255)
    assert found == Image.fromarray(hsv, "HSV").convert("RGB")


def test_grey_is_the_luminance_in_all_three_colours(square: Image.Image) -> None:
    found = as_levels(view(square, drawn(), whole(96, grey_probability=1.0)))
    expected = as_levels(square) @ [299, 587, 114] / 1000
    assert (found[..., 0] == found[..., 1]).all() and (found[..., 1] == found[..., 2]).all()
    assert np.abs(found[..., 0] - expected).max() <= 1


def test_a_mirrored_view_runs_from_right_to_left(square: Image.Image) -> None:
    found = np.asarray(view(square, drawn(), whole(96, flip_probability=1.0)))
    assert (found == np.asarray(square)[:, ::-1]).all()


def test_a_view_is_its_steps_one_after_the_other(photograph: Image.Image) -> None:
    """Cropped, mirrored, then the four changes in the drawn order, then grey."""
    for one in uniforms(range(12)):
        expected = view(photograph, one, ImageConfig(**PLAIN))
        steps = [{"flip_probability": 0.5}]
        steps += [{"jitter_probability": 0.8, "jitter": only(JITTERED[n])} for n in np.argsort(one[ORDER])]
        for step in [*steps, {"grey_probability": 0.2}]:
            same_draws = np.concatenate([np.full(4 * CROP_TRIES, 0.5), one[4 * CROP_TRIES :]])
            expected = view(expected, same_draws, whole(224, **step))
        assert view(photograph, one, ImageConfig()) == expected


def rows_of(folder: Path, count: int) -> Rows:
    """The first examples of a dataset of pictures."""
    table = [row for batch in Dataset(folder) for row in batch.to_pylist()][:count]
    ids = np.array([row["id"] for row in table])
    return Rows("others", {"image": [row["image"] for row in table], "label": np.array([0] * count)}, ids, 0)


def two_keys(rows: Rows) -> np.ndarray:
    return keyed.mix(rows.ids[:, None], np.arange(2))


def test_an_example_has_the_same_views_in_any_batch_and_number_of_threads(
    images_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, rows = ImageModality(ImageConfig(image_size=64)), rows_of(images_folder, 24)
    values, labels = images.collate(rows, two_keys(rows))
    assert values.shape == (24, 2, 64, 64, 3) and values.dtype == np.uint8 and labels.dtype == np.int64
    part = Rows("others", {name: column[5:9] for name, column in rows.columns.items()}, rows.ids[5:9], 3)
    assert (images.collate(part, two_keys(part))[0] == values[5:9]).all()
    for threads in (1, 7):
        with ThreadPoolExecutor(threads) as pool:
            monkeypatch.setattr(modalities, "_pool", lambda pool=pool: pool)
            assert (images.collate(rows, two_keys(rows))[0] == values).all()
    assert all((first != second).any() for first, second in values)


@pytest.mark.parametrize("launcher", ["LOCAL_SIZE", "LOCAL_WORLD_SIZE"])
def test_the_ranks_of_a_machine_share_its_cores(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """deepspeed's launcher sets LOCAL_SIZE, torchrun LOCAL_WORLD_SIZE."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 12)
    monkeypatch.setenv(launcher, "4")
    modalities._pool.cache_clear()
    assert modalities._pool()._max_workers == 3
    modalities._pool.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_views_and_labels_are_the_same_on_any_number_of_ranks(
    images_folder: Path, tiny_images: list[str], micro_batches: int
) -> None:
    """And those of the next epoch are others."""
    learner, _, _ = learner_and_batch([*tiny_images, f"training.gradient_accumulation_steps={micro_batches}"])

    def batches(rank: int, ranks: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        dataset = Dataset(images_folder)
        stream = ExampleStream("others", dataset, 8, 42, 2, micro_batches=micro_batches, rank=rank, ranks=ranks)
        drawn = stream.batches(StreamState(), learner.columns("others"), learner.collate)
        found = [next(drawn)[0] for _ in range(micro_batches * 13)]
        return [(one.ids, *(one.of("patches").values(name) for name in ("values", "labels"))) for one in found]

    alone, together = batches(0, 1), [batches(rank, 2) for rank in range(2)]
    known = {row["id"]: row["label"] for batch in Dataset(images_folder) for row in batch.to_pylist()}
    for one, *parts in zip(alone, *together, strict=True):
        for expected, *found in zip(one, *parts, strict=True):
            assert torch.equal(expected, torch.cat(found))
        assert one[2].tolist() == [known[number] for number in one[0].tolist()]
    of_epoch = [dict(zip(ids.tolist(), values, strict=True)) for ids, values, _ in alone]
    again = [(first, later) for first in of_epoch[:micro_batches] for later in of_epoch[-micro_batches:]]
    shared = [(a[number], b[number]) for a, b in again for number in a.keys() & b.keys()]
    assert len(alone) * 8 // micro_batches > 96 and all(not torch.equal(a, b) for a, b in shared)
