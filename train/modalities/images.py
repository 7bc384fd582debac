"""Pictures as 16 x 16 patches (Dosovitskiy et al. 2021), two random views of each (NonLing-CSE section 3.3).

    JPEG -> decoded once -> a view: random crop, resized, mirrored, colours changed, grey -> uint8 pixels
         -> normalised -> ViT's embeddings: patches, class token, positions -> a projection where the widths differ

The crops, colours and their order are SimCLR's (Chen et al. 2020, appendix A) as the published code takes them from
torchvision, on 8-bit pixels by Pillow; no blur.
"""

import dataclasses
import functools
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, UnidentifiedImageError
from torch import Tensor, nn

from clearspan.common.terminal import one_line
from clearspan.shards import Dataset, ShardError
from clearspan.train import draws
from clearspan.train.data.batch import Rows
from clearspan.train.modalities import Modality, check_view, in_threads

CROP_TRIES = 10
ASPECTS = (3 / 4, 4 / 3)
"""Width by height of a crop, drawn evenly in its logarithm."""
DRAWS = 4 * CROP_TRIES + 11
"""Of a view: four a crop, then whether it is mirrored, jittered, grey; four strengths, and four for their order."""


@dataclasses.dataclass
class Config:
    """The published views of 224 x 224 pixels.

    Args:
        path: a local folder of a pretrained ViT, whose embeddings it begins with; "": fresh ones.
        image_size: rows and columns of pixels of a view.
        patch_size: rows and columns of pixels of a patch.
        hidden_size: of fresh embeddings; 0: the encoder's.
        min_scale: the least share of a picture's area that a crop has.
        flip_probability: how often a view is mirrored.
        jitter: how much brightness, contrast, saturation (as a factor) and hue (of the circle) change at most.
        jitter_probability: how often a view's colours change.
        grey_probability: how often a view has no colour.
        mean, std: of red, green and blue from 0 to 1; ImageNet's.
    """

    path: str = ""
    image_size: int = 224
    patch_size: int = 16
    hidden_size: int = 0
    min_scale: float = 0.2
    flip_probability: float = 0.5
    jitter: list[float] = dataclasses.field(default_factory=lambda: [0.4, 0.4, 0.4, 0.1])
    jitter_probability: float = 0.8
    grey_probability: float = 0.2
    mean: list[float] = dataclasses.field(default_factory=lambda: [0.485, 0.456, 0.406])
    std: list[float] = dataclasses.field(default_factory=lambda: [0.229, 0.224, 0.225])

    def check(self) -> None:
        if self.patch_size < 1 or self.image_size < 1 or self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is no multiple of patch_size {self.patch_size}")
        check_view(
            f"image_size {self.image_size} and patch_size {self.patch_size}", 3 * self.image_size**2, self.patches
        )
        if self.hidden_size < 0 or (self.hidden_size and self.path):
            raise ValueError(f"hidden_size {self.hidden_size}: give a positive one, or path, which has its own")
        if not 0 < self.min_scale <= 1:
            raise ValueError(f"min_scale {self.min_scale} must lie above 0 and be at most 1")
        for name in ("flip_probability", "jitter_probability", "grey_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} {getattr(self, name)} must lie between 0 and 1")
        if len(self.jitter) != 4 or not all(0 <= one <= 1 for one in self.jitter) or self.jitter[3] > 0.5:
            raise ValueError(f"jitter {self.jitter} must be four numbers from 0 to 1, the last, of hue, at most 0.5")
        if len(self.mean) != 3 or not all(map(math.isfinite, self.mean)):
            raise ValueError(f"mean {self.mean} must be three numbers")
        if len(self.std) != 3 or not all(0 < one < math.inf for one in self.std):
            raise ValueError(f"std {self.std} must be three numbers above 0")

    @property
    def patches(self) -> int:
        """Rows of a view: its patches', and the class token's."""
        return (self.image_size // self.patch_size) ** 2 + 1


def build(config: Config, dataset: Dataset) -> "Images":
    return Images(config)


class Images(Modality):
    """Two views of each picture, uint8 (n, 2, image_size, image_size, 3)."""

    columns = ("image", "label")
    views = 2

    def __init__(self, config: Config) -> None:
        self.config = config
        self.patches = config.patches

    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pictures, labels = rows.listed("image"), rows.numbers("label")
        uniforms = draws.uniform(torch.from_numpy(keys), DRAWS).numpy()
        size = self.config.image_size
        pixels = np.empty((*keys.shape, size, size, 3), np.uint8)
        if self.config.jitter[3]:
            colour_tables()  # once, before threads ask for them together

        def prepare(row: int) -> None:
            try:
                picture = Image.open(io.BytesIO(pictures[row]), formats=["JPEG"]).convert("RGB")
            except Exception as error:  # what Pillow raises for damaged bytes is of many types
                why = "no JPEG" if isinstance(error, UnidentifiedImageError) else one_line(error)
                raise ShardError(
                    f"data.{rows.dataset}: the picture of example {rows.ids[row]} cannot be decoded ({why}): run the "
                    "pipeline again"
                ) from None
            for number, own in enumerate(uniforms[row]):
                pixels[row, number] = view(picture, own, self.config)

        in_threads(prepare, range(len(pictures)))
        return pixels, labels

    def embedding(self, dim: int) -> nn.Module:
        return PatchEmbedding(self.config, dim)


def view(picture: Image.Image, uniforms: np.ndarray, config: Config) -> Image.Image:
    """One random view of an RGB picture: uniforms (DRAWS,) in [0, 1) -> RGB of image_size x image_size."""
    crops, (mirror, jitter, grey), strengths, order = np.split(uniforms, np.cumsum([4 * CROP_TRIES, 3, 4]))
    left, top, width, height = crop_box(picture.size, crops.reshape(CROP_TRIES, 4), config.min_scale)
    size = (config.image_size, config.image_size)
    picture = picture.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BILINEAR)
    if mirror < config.flip_probability:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if jitter < config.jitter_probability:
        for which in np.argsort(order):
            change = config.jitter[which] * (2 * float(strengths[which]) - 1)
            if which == 3 and config.jitter[which]:  # to 8-bit HSV and back is a change even by 0
                picture = shifted_hue(picture, change)
            elif which < 3:
                picture = ENHANCERS[which](picture).enhance(1 + change)
    if grey < config.grey_probability:
        picture = picture.convert("L").convert("RGB")
    return picture


ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def crop_box(size: tuple[int, int], uniforms: np.ndarray, min_scale: float) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a random crop of a picture of (width, height), as torchvision's RandomResizedCrop:
    the first of the tries, uniforms (CROP_TRIES, 4), that fits; else the largest crop of an aspect that is allowed, in
    the middle.
    """
    width, height = size
    lowest, highest = math.log(ASPECTS[0]), math.log(ASPECTS[1])
    for area, aspect, x, y in uniforms:
        area = width * height * (min_scale + (1 - min_scale) * area)
        ratio = math.exp(lowest + (highest - lowest) * aspect)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(x * (width - w + 1)), int(y * (height - h + 1)), w, h
    w = min(width, round(height * ASPECTS[1]))
    h = min(height, round(width / ASPECTS[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def shifted_hue(picture: Image.Image, change: float) -> Image.Image:
    """An RGB picture with every hue turned by a part of the circle, -0.5 to 0.5, in 8-bit HSV as Pillow converts it."""
    to_hsv, to_rgb = colour_tables()
    hsv = to_hsv.take(np.frombuffer(picture.tobytes("raw", "RGBX"), "<u4") & 0xFFFFFF, mode="clip")
    hsv.view(np.uint8)[::4] += np.uint8(int(change * 255) % 256)
    return Image.frombytes("RGB", picture.size, to_rgb.take(hsv, mode="clip").tobytes(), "raw", "RGBX")


@functools.cache
def colour_tables() -> tuple[np.ndarray, np.ndarray]:
    """What Pillow makes of every 8-bit colour in HSV, and of every one of HSV in RGB: (2^24,) uint32 each, the first
    channel the lowest byte.

    They take 128 MB, once a process, and spare every view Pillow's two conversions, which are slow beside all else.
    """
    tables = np.zeros((2, 256, 256, 256, 4), np.uint8)

    def fill(third: int) -> None:
        second, first = np.indices((256, 256), np.uint8)
        plane = np.stack([first, second, np.full_like(first, third)], axis=-1).tobytes()
        for table, (mode, other) in zip(tables, (("RGB", "HSV"), ("HSV", "RGB")), strict=True):
            table[third, ..., :3] = np.asarray(Image.frombytes(mode, (256, 256), plane).convert(other))

    in_threads(fill, range(256))
    to_hsv, to_rgb = tables.view("<u4").reshape(2, -1)
    return to_hsv, to_rgb


class PatchEmbedding(nn.Module):
    """ViT's embeddings of normalised pixels: uint8 (n, size, size, 3) -> (n, patches, dim).

    Raises:
        ValueError: the folder of `path` holds a model of other pictures or patches, or none of ViT's.
        EncoderError: it is not whole.
    """

    embeddings: Any
    mean: Tensor
    std: Tensor

    def __init__(self, config: Config, dim: int) -> None:
        super().__init__()
        self.embeddings = _vit_embeddings(config, dim)
        width = int(self.embeddings.cls_token.shape[-1])
        self.project = nn.Linear(width, dim) if width != dim else nn.Identity()
        self.register_buffer("mean", 255 * torch.tensor(config.mean), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(config.std), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        normalised = (pixels.float() - self.mean) / self.std
        embedded: Tensor = self.project(self.embeddings(normalised.permute(0, 3, 1, 2)))
        return embedded


def _vit_embeddings(config: Config, dim: int) -> nn.Module:
    """ViT's patch, class and position embeddings, pretrained or fresh."""
    from transformers import AutoModel, ViTConfig, ViTModel

    from clearspan.common.pretrained import check_config, load_model

    sizes = {"image_size": config.image_size, "patch_size": config.patch_size}
    if not config.path:
        # Of a whole model, which draws their weights: the embeddings alone begin with positions fifty times as large.
        fresh = ViTConfig(hidden_size=config.hidden_size or dim, num_hidden_layers=0, **sizes)
        embeddings: nn.Module = ViTModel(fresh, add_pooling_layer=False).embeddings
        return embeddings
    folder = Path(config.path)
    if not (folder / "config.json").is_file():
        raise ValueError(f"path {folder}: no config.json here; give a local folder with a ViT")
    found = check_config(folder)
    if found.get("model_type") != "vit":
        raise ValueError(f"path {folder}: holds a {found.get('model_type')}, whose patches are not a ViT's")
    for name, wanted in sizes.items():
        if (has := found.get(name, getattr(ViTConfig(), name))) != wanted:
            raise ValueError(f"path {folder}: its {name} is {has}, not {wanted}: set {name} to {has}, or take another")
    if found.get("num_channels", 3) != 3:
        raise ValueError(f"path {folder}: its pictures have {found['num_channels']} channels, not 3: take another")
    embeddings = load_model(folder, AutoModel)[0].embeddings
    return embeddings
