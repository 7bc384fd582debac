"""Pictures on the host and as patches: crops, views and colours against references written from their definitions."""

import colorsys
import dataclasses
import io
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from shards import Dataset, ShardError, keyed
from tests.train.ranks import train_alone
from tests.train.test_learner import learner_and_batch
from train import draws, modalities
from train.data.batch import Rows
from train.data.stream import ExampleStream, StreamError, StreamState
from train.modalities.images import CROP_TRIES, DRAWS, Config, Images, PatchEmbedding, crop_box, shifted_hue, view
from train.options import DatasetConfig, RecipeError
from train.recipe import modality

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


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a small fresh ViT."""
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(5)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    ViTModel(ViTConfig(**sizes)).save_pretrained(folder)
    return folder


@pytest.fixture
def recipe(tiny_patches: list[str], images_folder: Path) -> list[str]:
    """Overrides of a run over pictures of 64 x 64 pixels."""
    return [*tiny_patches, f"data.others.path={images_folder}", "data.others.modality.image_size=64"]


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


def test_areas_and_aspects_of_crops_are_drawn_evenly() -> None:
    """Of a picture that nearly every try fits into, against the 10th, 50th and 90th percentile of even draws."""
    drawn = uniforms(range(4000))[:, : 4 * CROP_TRIES].reshape(-1, CROP_TRIES, 4)
    boxes = np.array([crop_box((4000, 4000), one, 0.1) for one in drawn])
    fits = np.array([next(tries((4000, 4000), one, 0.1))[2] for one in drawn])
    assert fits.mean() > 0.85
    shares, aspects = boxes[:, 2] * boxes[:, 3] / 4000**2, boxes[:, 2] / boxes[:, 3]
    small = shares < 0.7  # of which every try fits, whatever its aspect
    np.testing.assert_allclose(np.quantile(shares[small], [0.1, 0.5, 0.9]), [0.16, 0.4, 0.64], atol=0.02)
    even = np.exp(np.array([-0.8, 0, 0.8]) * math.log(4 / 3))
    np.testing.assert_allclose(np.quantile(aspects[small], [0.1, 0.5, 0.9]), even, atol=0.02)


def changed(picture: np.ndarray, which: str, factor: float) -> np.ndarray:
    """A picture (h, w, 3) in grey levels with one property changed, in floating point."""
    grey = (picture @ [299, 587, 114] / 1000)[..., None]
    if which == "hue":
        hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in (picture / 255).reshape(-1, 3)]
        turned = [colorsys.hsv_to_rgb((h + factor) % 1, s, v) for h, s, v in hsv]
        return 255 * np.array(turned).reshape(picture.shape)
    begin = {"brightness": 0.0, "contrast": round(grey.mean()), "saturation": grey}[which]
    return np.clip(begin + factor * (picture - begin), 0, 255)


def whole(size: int, **options: object) -> Config:
    """Options under which a square picture of this size is cropped and resized to itself, and stays as it is."""
    return Config(image_size=size, patch_size=1, min_scale=1.0, **{**PLAIN, **options})


def drawn(**values: float) -> np.ndarray:
    """The draws of a view that are 0.5 but for these."""
    found = np.full(DRAWS, 0.5)
    for name, value in values.items():
        found[PLACES[name]] = value
    return found


def only(which: str) -> list[float]:
    """The published jitter of one property alone."""
    return [most if name == which else 0.0 for name, most in zip(JITTERED, Config().jitter, strict=True)]


def as_levels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture, np.float64)


def test_a_view_without_changes_is_the_crop_resized(photograph: Image.Image, square: Image.Image) -> None:
    assert view(square, drawn(), whole(96)) == square
    one = uniforms(range(1))[0]
    left, top, width, height = crop_box(photograph.size, one[: 4 * CROP_TRIES].reshape(CROP_TRIES, 4), 0.2)
    crop = photograph.crop((left, top, left + width, top + height))
    assert view(photograph, one, Config(**PLAIN)) == crop.resize((224, 224), Image.Resampling.BILINEAR)


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.8, 0.999])
@pytest.mark.parametrize("which", ["brightness", "contrast", "saturation"])
def test_brightness_contrast_and_saturation_are_blends(square: Image.Image, which: str, strength: float) -> None:
    config = whole(96, jitter_probability=1.0, jitter=only(which))
    found = as_levels(view(square, drawn(**{which: strength}), config))
    assert np.abs(found - changed(as_levels(square), which, 1 + 0.4 * (2 * strength - 1))).max() <= 2


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.8, 0.999])
def test_a_turn_of_the_hue_is_one_of_the_colour_circle(square: Image.Image, strength: float) -> None:
    """8-bit HSV has 255 hues: six grey levels of a bright colour."""
    config = whole(96, jitter_probability=1.0, jitter=only("hue"))
    found = as_levels(view(square, drawn(hue=strength), config))
    expected = changed(as_levels(square), "hue", 0.1 * (2 * strength - 1))
    assert np.abs(found - expected).max() <= 10 and np.abs(found - expected).mean() < 2
    assert np.abs(found - as_levels(square)).mean() > 3, "the photograph has colours"


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
        expected = view(photograph, one, Config(**PLAIN))
        steps = [{"flip_probability": 0.5}]
        steps += [{"jitter_probability": 0.8, "jitter": only(JITTERED[n])} for n in np.argsort(one[ORDER])]
        for step in [*steps, {"grey_probability": 0.2}]:
            same_draws = np.concatenate([np.full(4 * CROP_TRIES, 0.5), one[4 * CROP_TRIES :]])
            expected = view(expected, same_draws, whole(224, **step))
        assert view(photograph, one, Config()) == expected


def test_every_order_of_the_changes_and_every_strength_is_as_likely() -> None:
    many = uniforms(range(24_000))
    orders = Counter(map(tuple, np.argsort(many[:, ORDER]).tolist()))
    assert len(orders) == 24 and min(orders.values()) > 850 and max(orders.values()) < 1150
    np.testing.assert_allclose(many.mean(0), 0.5, atol=0.01)
    np.testing.assert_allclose(np.corrcoef(many, rowvar=False), np.eye(DRAWS), atol=0.035)


def test_mirrored_jittered_and_grey_are_as_many_as_the_probabilities_say(square: Image.Image) -> None:
    small = square.resize((8, 8))
    asymmetric = np.asarray(small)
    many = uniforms(range(6000))
    many[:, : 4 * CROP_TRIES] = 0.5

    def share(changed_by: str, **options: object) -> float:
        views = (np.asarray(view(small, one, whole(8, **options))) for one in many)
        return float(np.mean([bool((found != asymmetric).any()) for found in views]))

    assert share("flip", flip_probability=0.5) == pytest.approx(0.5, abs=0.02)
    assert share("jitter", jitter_probability=0.8) == pytest.approx(0.8, abs=0.02)
    assert share("grey", grey_probability=0.2) == pytest.approx(0.2, abs=0.02)


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
    images, rows = Images(Config(image_size=64)), rows_of(images_folder, 24)
    values, labels = images.collate(rows, two_keys(rows))
    assert values.shape == (24, 2, 64, 64, 3) and values.dtype == np.uint8 and labels.dtype == np.int64
    part = Rows("others", {name: column[5:9] for name, column in rows.columns.items()}, rows.ids[5:9], 3)
    assert (images.collate(part, two_keys(part))[0] == values[5:9]).all()
    for threads in (1, 7):
        with ThreadPoolExecutor(threads) as pool:
            monkeypatch.setattr(modalities, "_pool", lambda pool=pool: pool)
            assert (images.collate(rows, two_keys(rows))[0] == values).all()
    assert all((first != second).any() for first, second in values)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_views_and_labels_are_the_same_on_any_number_of_ranks(
    images_folder: Path, recipe: list[str], micro_batches: int
) -> None:
    """And those of the next epoch are others."""
    learner, _, _ = learner_and_batch([*recipe, f"training.gradient_accumulation_steps={micro_batches}"])

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


@pytest.mark.parametrize("width", [32, 48])
def test_patches_are_the_embeddings_of_the_pretrained_vit(vit: Path, width: int) -> None:
    """With the class token: 197 of 224 x 224 pixels, normalised; projected where the encoder has another width."""
    embedding = PatchEmbedding(Config(path=str(vit)), width)
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalised = (pixels / 255 - mean) / std
    with torch.no_grad():
        expected = ViTModel.from_pretrained(vit).embeddings(normalised.permute(0, 3, 1, 2))
        found = embedding(pixels)
        if width != 32:
            expected = expected @ embedding.project.weight.T + embedding.project.bias
    assert found.shape == (2, 197, width)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_fresh_patches_begin_as_a_fresh_vits() -> None:
    """Weights, class token and positions of deviation 0.02, as small as a pretrained text encoder's."""
    torch.manual_seed(0)
    fresh = dict(PatchEmbedding(Config(image_size=64), 32).named_parameters())
    for name in ("cls_token", "position_embeddings", "patch_embeddings.projection.weight"):
        assert fresh[f"embeddings.{name}"].std().item() == pytest.approx(0.02, abs=0.008)


def test_fresh_patches_are_those_of_the_seed(recipe: list[str]) -> None:
    def patches(seed: int) -> dict[str, torch.Tensor]:
        learner, _, _ = learner_and_batch([*recipe, f"training.seed={seed}"])
        return learner.embeddings.state_dict()

    first, again, other = patches(1), patches(1), patches(2)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not any(torch.equal(value, other[name]) for name, value in first.items() if value.abs().sum() > 0)


def test_fresh_patches_of_another_width_are_projected(recipe: list[str]) -> None:
    learner, batches, _ = learner_and_batch([*recipe, "data.others.modality.hidden_size=24"])
    (embedding,) = learner.embeddings.values()
    assert embedding.project.weight.shape == (32, 24) and learner(batches)[0].isfinite()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["image_size=60"], "modality: image_size 60 is no multiple of patch_size 16"),
        (["patch_size=0"], "modality: image_size 64 is no multiple of patch_size 0"),
        (["jitter=[0.4,0.4,0.4,0.6]"], r"modality: jitter \[0.4, 0.4, 0.4, 0.6\] must be four numbers .* at most 0.5"),
        (["jitter=[0.4,1.4,0.4,0.1]"], r"modality: jitter .* must be four numbers from 0 to 1"),
        (["jitter=[0.4]"], r"modality: jitter \[0.4\] must be four numbers"),
        (["min_scale=0"], "modality: min_scale 0.0 must lie above 0 and be at most 1"),
        (["grey_probability=1.5"], "modality: grey_probability 1.5 must lie between 0 and 1"),
        (["mean=[.nan,0,0]"], r"modality: mean \[nan, 0.0, 0.0\] must be three numbers"),
        (["std=[0,1,1]"], r"modality: std \[0.0, 1.0, 1.0\] must be three numbers above 0"),
        (["path={vit}", "hidden_size=32"], "modality: hidden_size 32: give a positive one, or path, which has its own"),
        (["hidden_size=-1"], "modality: hidden_size -1: give a positive one"),
        (
            ["path={vit}", "patch_size=8"],
            "modality: path .*vit.*: its image_size is 224, not 64: set image_size to 224",
        ),
        (["path={vit}", "image_size=224", "patch_size=8"], "modality: path .*: its patch_size is 16, not 8"),
        (["path={nowhere}"], "modality: path .*nowhere: no config.json here; give a local folder with a ViT"),
        (["path={bert}"], "modality: path .*bert.*: holds a bert, whose patches are not a ViT's"),
        (["path={grey}", "image_size=224"], "modality: path .*grey: its pictures have 1 channels, not 3"),
        (["path={damaged}", "image_size=224"], "modality: .*damaged.*: take the whole folder from its source again"),
        (
            ["colour=red"],
            r"unknown key 'data\.others\.modality\.colour': .* holds images: path, image_size, patch_size",
        ),
        (["image_size=large"], r"data\.others\.modality\.image_size: .*large.*could not be converted to Integer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_work_are_refused(
    recipe: list[str], folders: dict[str, Path], options: list[str], said: str
) -> None:
    words = [f"data.others.modality.{option.format(**folders)}" for option in options]
    with pytest.raises(RecipeError, match=rf"^(data\.others\.)?{said}") as error:
        learner_and_batch([*recipe, *words])
    assert "\n" not in str(error.value)


def test_the_recipe_states_the_options_that_were_not_given(images_folder: Path) -> None:
    """As of everything else that decides a run: they are what `--dry-run` prints and a run saves."""
    config = DatasetConfig(path=str(images_folder), modality={"image_size": 64})
    modality("others", config, Dataset(images_folder))
    assert config.modality == dataclasses.asdict(Config(image_size=64))


def test_a_resume_with_another_vit_in_the_folder_is_refused(recipe: list[str], vit: Path, tmp_path: Path) -> None:
    folder, run = tmp_path / "vit", tmp_path / "run"
    shutil.copytree(vit, folder)
    sizes = ["image_size=224", f"path={folder}"]
    options = [*recipe, *(f"data.others.modality.{one}" for one in sizes), "training.max_steps=1", f"output={run}"]
    done = train_alone(*options)
    assert done.returncode == 0, done.stderr
    ViTModel(ViTConfig(hidden_size=48, num_hidden_layers=0)).save_pretrained(folder)
    resumed = train_alone(*options, "--resume")
    assert resumed.returncode == 1 and "Traceback" not in resumed.stderr
    assert "holds weights of another model" in resumed.stderr and "embeddings.patches-others" in resumed.stderr


def test_pictures_are_never_too_short(recipe: list[str]) -> None:
    with pytest.raises(RecipeError, match=r"^data\.others\.short_documents has no effect: .* holds images"):
        learner_and_batch([*recipe, "data.others.short_documents=skip"])


@pytest.fixture(scope="module")
def folders(vit: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A ViT's folder, and others that cannot be used."""
    made = {name: tmp_path_factory.mktemp("folders") / name for name in ("nowhere", "bert", "grey", "damaged")}
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(**small)).save_pretrained(made["bert"])
    ViTModel(ViTConfig(num_channels=1, **small)).save_pretrained(made["grey"])
    lacking = {name: value for name, value in ViTModel.from_pretrained(vit).state_dict().items() if "cls" not in name}
    made["damaged"].mkdir()
    save_file(lacking, made["damaged"] / "model.safetensors", {"format": "pt"})
    (made["damaged"] / "config.json").write_text((vit / "config.json").read_text())
    return {"vit": vit, **made}


def damaged(picture: bytes, how: str) -> bytes:
    if how == "cut short":
        return picture[: len(picture) // 2]
    if how == "of another format":
        file = io.BytesIO()
        Image.open(io.BytesIO(picture)).save(file, "PPM")
        return file.getvalue()
    if how == "too large":  # by its header, 65,500 x 65,500
        at = picture.index(b"\xff\xc0") + 5
        return picture[:at] + b"\xff\xdc\xff\xdc" + picture[at + 4 :]
    return b"" if how == "empty" else bytes(len(picture))


@pytest.mark.parametrize("how", ["cut short", "of another format", "too large", "empty", "zeros"])
def test_a_picture_that_cannot_be_decoded_is_named(images_folder: Path, how: str) -> None:
    rows = rows_of(images_folder, 3)
    rows.listed("image")[1] = damaged(rows.listed("image")[1], how)
    said = rf"^data\.others: the picture of example {rows.ids[1]} cannot be decoded \(.*\): run the pipeline again$"
    with pytest.raises(ShardError, match=said):
        Images(Config(image_size=64)).collate(rows, two_keys(rows))


def test_a_batch_that_the_ranks_cannot_share_is_refused(recipe: list[str]) -> None:
    with pytest.raises(StreamError, match=r"^data\.others\.batch_size 8 is not a multiple of the 3 ranks"):
        learner_and_batch([*recipe, "data.text.batch_size=9"], ranks=3)
