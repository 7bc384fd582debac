"""Pictures as patches: a pretrained ViT's own embeddings or fresh ones, and what a recipe may ask of them."""

import dataclasses
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from clearspan.common.checksummed import dump_checksummed
from clearspan.shards import Dataset, ShardError
from clearspan.train.config.options import DatasetConfig, RecipeError
from clearspan.train.modalities.images import ImageConfig, ImageEmbedding, ImageModality
from clearspan.train.recipe import load_recipe, modality
from clearspan.train.run_folder import INPUTS, check, inputs
from tests.train.ranks import train_alone
from tests.train.test_images import rows_of, two_keys
from tests.train.test_learner import learner_and_batch


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a small fresh ViT."""
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(5)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    ViTModel(ViTConfig(**sizes)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("width", [32, 48])
def test_patches_are_the_embeddings_of_the_pretrained_vit(vit: Path, width: int) -> None:
    """With the class token: 197 of 224 x 224 pixels, normalised; projected where the encoder has another width."""
    embedding = ImageEmbedding(ImageConfig(path=str(vit)), width)
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
    fresh = dict(ImageEmbedding(ImageConfig(image_size=64), 32).named_parameters())
    for name in ("cls_token", "position_embeddings", "patch_embeddings.projection.weight"):
        assert fresh[f"embeddings.{name}"].std().item() == pytest.approx(0.02, abs=0.008)


def test_fresh_patches_are_those_of_the_seed(tiny_images: list[str]) -> None:
    def patches(seed: int) -> dict[str, torch.Tensor]:
        learner, _, _ = learner_and_batch([*tiny_images, f"training.seed={seed}"])
        return learner.embeddings.state_dict()

    first, again, other = patches(1), patches(1), patches(2)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not any(torch.equal(value, other[name]) for name, value in first.items() if value.abs().sum() > 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["image_size=60"], "modality: image_size 60 .*patch_size 16"),
        (
            ["jitter=[0.4,0.4,0.4,0.6]"],
            r"modality: jitter \[0.4, 0.4, 0.4, 0.6\]: .*at most 0.5",
        ),
        (["mean=[.nan,0,0]"], r"modality.mean.0 must be finite"),
        (["path={vit}", "hidden_size=32"], "modality: hidden_size 32 .*path"),
        (["image_size=1000000"], "modality.image_size must be at most 4,096"),
        (["hidden_size=10000000000000"], "modality: .*(memory|size|storage)"),
        (
            ["path={vit}", "patch_size=8"],
            "modality: path .*vit.*: its image_size is 224",
        ),
        (["path={vit}", "image_size=224", "patch_size=8"], "modality: path .*: its patch_size is 16"),
        (["path={nowhere}"], "modality: path .*nowhere: no config.json here"),
        (["path={bert}"], "modality: path .*bert.*: holds a bert"),
        (["path={grey}", "image_size=224"], "modality: path .*grey: its images have 1 channels"),
        (["path={damaged}", "image_size=224"], "modality: .*damaged.*complete"),
        (["image_size=large"], r"data\.others\.modality\.image_size must be an integer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_work_are_refused(
    tiny_images: list[str], folders: dict[str, Path], options: list[str], said: str
) -> None:
    words = [f"data.others.modality.{option.format(**folders)}" for option in options]
    with pytest.raises(RecipeError, match=rf"^(data\.others\.)?{said}") as error:
        learner_and_batch([*tiny_images, *words])
    assert "\n" not in str(error.value)


def test_the_recipe_states_the_options_that_were_not_given(images_folder: Path) -> None:
    """As of everything else that decides a run: they are what `--dry-run` prints and a run saves."""
    config = DatasetConfig(path=str(images_folder), modality={"image_size": 64})
    modality("others", config, Dataset(images_folder))
    assert config.modality == dataclasses.asdict(ImageConfig(image_size=64))


@pytest.mark.exhaustive
def test_a_resume_with_another_vit_in_the_folder_is_refused(tiny_images: list[str], vit: Path, tmp_path: Path) -> None:
    folder, run = tmp_path / "vit", tmp_path / "run"
    shutil.copytree(vit, folder)
    sizes = ["image_size=224", f"path={folder}"]
    options = [*tiny_images, *(f"data.others.modality.{one}" for one in sizes), "training.max_steps=1", f"output={run}"]
    train_alone(*options)
    ViTModel(ViTConfig(hidden_size=48, num_hidden_layers=0)).save_pretrained(folder)
    recipe = load_recipe("demo", options)
    with pytest.raises(RecipeError, match=r"^data\.others\.modality\.path .*: is no longer what the run in"):
        check(recipe, resume=True)
    (run / INPUTS).write_bytes(dump_checksummed({"finished": True, "inputs": inputs(recipe)}))
    resumed = train_alone(*options, "--resume", code=1)
    assert "holds weights of another model" in resumed.stderr and "embeddings.patches-others" in resumed.stderr


def test_pictures_are_never_too_short(tiny_images: list[str]) -> None:
    with pytest.raises(RecipeError, match=r"^data\.others\.short_documents has no effect: .* holds images"):
        learner_and_batch([*tiny_images, "data.others.short_documents=skip"])


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
    said = rf"^data\.others: .* example {rows.ids[1]} cannot be decoded"
    with pytest.raises(ShardError, match=said):
        ImageModality(ImageConfig(image_size=64)).collate(rows, two_keys(rows))
