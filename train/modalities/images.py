"""Images as patches (Dosovitskiy et al. 2021), in two random views of each image (NonLing-CSE section 3.3).

    host     JPEG -> decoded once -> each view: random crop, resize, mirror, color jitter, grayscale -> uint8 pixels
    device   normalize -> ViT's embeddings of patches, class token and positions -> projection if the ViT's hidden size
             is not the encoder's

Crops and color jitter are SimCLR's (Chen et al. 2020, appendix A), without blur. The published code takes them from
torchvision. Here Pillow computes them on 8-bit pixels.
"""

import dataclasses
import functools
import io
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Len
from PIL import Image, ImageEnhance, UnidentifiedImageError
from torch import Tensor, nn

from clearspan.common.terminal import one_line
from clearspan.shards import ShardError
from clearspan.train import draws
from clearspan.train.config.optimizer import Finite, Positive
from clearspan.train.config.options import Count, Fraction
from clearspan.train.data.batch import Rows
from clearspan.train.modalities import Modality, ModalityConfig, in_threads

CROP_TRIES = 10
ASPECTS = (3 / 4, 4 / 3)
"""The range of a crop's aspect ratio, width / height, which is drawn uniformly on a log scale."""
DRAWS = 4 * CROP_TRIES + 11
"""The number of random numbers for a view, in this order: 4 for each try of a crop; 3 that decide whether the view is
mirrored, jittered and made gray; 4 strengths of the jitter; and 4 for the order of the four jitters."""


@dataclasses.dataclass
class ImageConfig(ModalityConfig):
    """The options of random views of images. The defaults are the paper's, with views of 224 x 224 pixels.

    Args:
        path: the local folder, or hf:ORG/NAME[@REVISION], of a pretrained ViT from which the patch embeddings are
            initialized; "" for random embeddings.
        image_size: the height and the width of a view, in pixels.
        patch_size: the height and the width of a patch, in pixels.
        hidden_size: the size of random embeddings; 0 for the hidden size of the encoder.
        min_scale: the smallest fraction of an image's area that a crop covers. Lower it for stronger augmentation.
        flip_probability: the probability that a view is mirrored.
        jitter: the largest relative changes of brightness, contrast and saturation, and the largest change of hue, as a
            fraction of the color circle.
        jitter_probability: the probability that a view's colors change.
        grey_probability: the probability that a view is made gray.
        mean, std: the mean and the standard deviation of red, green and blue with which pixels are normalized, on a
            scale from 0 to 1. The defaults are ImageNet's.
    """

    path: str = ""
    image_size: Annotated[int, Ge(1), Le(4096)] = 224
    patch_size: Annotated[int, Ge(1)] = 16
    hidden_size: Count = 0
    min_scale: Annotated[float, Gt(0), Le(1)] = 0.2
    flip_probability: Fraction = 0.5
    jitter: Annotated[list[Fraction], Len(4, 4)] = dataclasses.field(default_factory=lambda: [0.4, 0.4, 0.4, 0.1])
    jitter_probability: Fraction = 0.8
    grey_probability: Fraction = 0.2
    mean: Annotated[list[Finite], Len(3, 3)] = dataclasses.field(default_factory=lambda: [0.485, 0.456, 0.406])
    std: Annotated[list[Positive], Len(3, 3)] = dataclasses.field(default_factory=lambda: [0.229, 0.224, 0.225])

    def check(self) -> None:
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}")
        if self.hidden_size and self.path:
            raise ValueError(
                f"hidden_size {self.hidden_size} has no effect with path, whose model has a hidden size: set it to 0"
            )
        if self.jitter[3] > 0.5:
            raise ValueError(f"jitter {self.jitter}: the last number, of hue, is at most 0.5")

    @property
    def patches(self) -> int:
        """The number of rows of a view in the packed batch: one for each patch, and one for the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1


class ImageModality(Modality):
    """The modality of images.

    It makes two random views of each of n images: RGB pixels, (n, 2, image_size, image_size, 3) uint8, with
    `image_size` of `config`.
    """

    config: ImageConfig
    columns = ("image", "label")
    views = 2

    def __init__(self, config: ImageConfig) -> None:
        super().__init__(config)
        self.patches = config.patches

    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        images = rows.listed("image")
        labels = rows.numbers("label")
        uniforms = draws.uniform(torch.from_numpy(keys), DRAWS).numpy()
        size = self.config.image_size
        pixels = np.empty((*keys.shape, size, size, 3), np.uint8)
        if self.config.jitter[3]:
            color_tables()  # once, before several threads need them

        def prepare(row: int) -> None:
            try:
                image = Image.open(io.BytesIO(images[row]), formats=["JPEG"]).convert("RGB")
            except Exception as error:  # Pillow raises exceptions of many types for damaged bytes
                reason = "not a JPEG" if isinstance(error, UnidentifiedImageError) else one_line(error)
                raise ShardError(
                    f"data.{rows.dataset}: the image of example {rows.ids[row]} cannot be decoded ({reason}): run the "
                    "pipeline again"
                ) from None
            for number, own_uniforms in enumerate(uniforms[row]):
                pixels[row, number] = view(image, own_uniforms, self.config)

        in_threads(prepare, range(len(images)))
        return pixels, labels

    def embedding(self, dim: int) -> nn.Module:
        return ImageEmbedding(self.config, dim)


def view(image: Image.Image, uniforms: np.ndarray, config: ImageConfig) -> Image.Image:
    """Return a random view of an RGB image.

    Args:
        image: the RGB image.
        uniforms: 51 random numbers in [0, 1), (51,), in this order: 40 for the crop; 3 that decide whether the view is
            mirrored, jittered and made gray; 4 strengths of the jitter; and 4 for the order of the four jitters.
        config: the size of the view, and the probabilities and strengths of its changes.
    """
    crops, (mirror, jitter, gray), strengths, order = np.split(uniforms, np.cumsum([4 * CROP_TRIES, 3, 4]))
    left, top, width, height = crop_box(image.size, crops.reshape(CROP_TRIES, 4), config.min_scale)
    size = (config.image_size, config.image_size)
    image = image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BILINEAR)
    if mirror < config.flip_probability:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if jitter < config.jitter_probability:
        for kind in np.argsort(order):  # brightness, contrast, saturation, hue
            change = config.jitter[kind] * (2 * float(strengths[kind]) - 1)
            # A conversion to 8-bit HSV and back changes pixels even if the hue stays.
            if kind == 3 and config.jitter[kind]:
                image = shifted_hue(image, change)
            elif kind < 3:
                image = ENHANCERS[kind](image).enhance(1 + change)
    if gray < config.grey_probability:
        image = image.convert("L").convert("RGB")
    return image


ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def crop_box(size: tuple[int, int], uniforms: np.ndarray, min_scale: float) -> tuple[int, int, int, int]:
    """Return (left, top, width, height) of a random crop, as torchvision's RandomResizedCrop draws it.

    Up to 10 crops are tried, and the first one that fits into the image is returned. If none fits, the result is the
    largest centered crop with an aspect ratio, width / height, from 3/4 to 4/3.

    Args:
        size: the width and the height of the image, in pixels.
        uniforms: four random numbers in [0, 1) for each try, (10, 4), from which these are computed: area, aspect
            ratio, left and top.
        min_scale: the smallest fraction of the image's area that a crop covers.
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


def shifted_hue(image: Image.Image, change: float) -> Image.Image:
    """Return a copy of an RGB image whose hues are shifted in Pillow's 8-bit HSV.

    Args:
        image: the RGB image.
        change: the shift, as a fraction of the color circle, from -0.5 to 0.5.
    """
    to_hsv, to_rgb = color_tables()
    hsv = to_hsv.take(np.frombuffer(image.tobytes("raw", "RGBX"), "<u4") & 0xFFFFFF, mode="clip")
    hsv.view(np.uint8)[::4] += np.uint8(int(change * 255) % 256)
    return Image.frombytes("RGB", image.size, to_rgb.take(hsv, mode="clip").tobytes(), "raw", "RGBX")


@functools.cache
def color_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return lookup tables of Pillow's conversions from RGB to HSV and from HSV to RGB for all 8-bit colors.

    Each is (2^24,) uint32. The indices and the values are colors, with the first channel (R or H) in the lowest byte.
    The tables take 128 MB per process. They replace two conversions by Pillow, which would take most of the time of
    making a view.
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


class ImageEmbedding(nn.Module):
    """A ViT's embedding layer for n images, (n, image_size, image_size, 3) uint8 -> (n, patches, dim).

    It normalizes pixels first, and projects the embeddings to `dim` if the ViT has another hidden size. `image_size`
    and `patches` (patches and class token) are those of `config`.

    Args:
        config: the options.
        dim: the hidden size of the encoder.

    Attributes:
        embeddings: the ViT's embeddings of patches, class token and positions, of transformers.
        mean, std: the mean and the standard deviation by which pixels are normalized, (3,), on a scale from 0 to 255.

    Raises:
        ValueError: the folder `config.path` holds no ViT, or a ViT with another image size, patch size or number of
            channels.
        EncoderError: the folder is incomplete.
    """

    embeddings: Any
    mean: Tensor
    std: Tensor

    def __init__(self, config: ImageConfig, dim: int) -> None:
        super().__init__()
        self.embeddings = _vit_embeddings(config, dim)
        width = int(self.embeddings.cls_token.shape[-1])
        self.project = nn.Linear(width, dim) if width != dim else nn.Identity()
        self.register_buffer("mean", 255 * torch.tensor(config.mean), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(config.std), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        normalized = (pixels.float() - self.mean) / self.std
        embedded: Tensor = self.project(self.embeddings(normalized.permute(0, 3, 1, 2)))
        return embedded


def _vit_embeddings(config: ImageConfig, dim: int) -> nn.Module:
    """Return the embedding layer of a ViT, which embeds patches, class token and positions.

    It is that of the pretrained ViT in the folder `config.path`, or random if `config.path` is "".

    Args:
        config: the options.
        dim: the encoder's hidden size, which random embeddings have if `config.hidden_size` is 0.

    Raises:
        ValueError: the folder `config.path` holds no ViT, or a ViT with another image size, patch size or number of
            channels.
        EncoderError: the folder is incomplete.
    """
    from transformers import AutoModel, ViTConfig, ViTModel

    from clearspan.common.model_folder import check_config
    from clearspan.common.pretrained import load_model

    sizes = {"image_size": config.image_size, "patch_size": config.patch_size}
    if not config.path:
        # A whole model draws the weights: embeddings that are made alone have positions fifty times as large.
        fresh = ViTConfig(hidden_size=config.hidden_size or dim, num_hidden_layers=0, **sizes)
        embeddings: nn.Module = ViTModel(fresh, add_pooling_layer=False).embeddings
        return embeddings
    folder = Path(config.path)
    if not (folder / "config.json").is_file():
        raise ValueError(f"path {folder}: no config.json here; give a local folder with a ViT")
    model_config = check_config(folder)
    if model_config.get("model_type") != "vit":
        raise ValueError(
            f"path {folder}: holds a {model_config.get('model_type')}, not a ViT: name the folder of a ViT"
        )
    for name, size in sizes.items():
        its_size = model_config.get(name, getattr(ViTConfig(), name))
        if its_size != size:
            raise ValueError(
                f"path {folder}: its {name} is {its_size}, not {size}: set {name} to {its_size}, or take another model"
            )
    if model_config.get("num_channels", 3) != 3:
        raise ValueError(
            f"path {folder}: its images have {model_config['num_channels']} channels, not 3: take another model"
        )
    embeddings = load_model(folder, AutoModel)[0].embeddings
    return embeddings
