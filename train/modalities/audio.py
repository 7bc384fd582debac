"""Audio clips as patches of their log-mel spectrograms (NonLing-CSE appendix B, after SSAST: Gong et al. 2021).

    host     frames of 10 ms x 128 mel bins -> cut, mixed with another clip, normalized, padded, masked -> float16
    device   patches of 24 x 24 -> linear layer, class token, position embeddings

A clip of 1,024 frames gives 5 x 42 patches and a class token, which are 211 rows of the packed batch. The paper does
not augment clips. It encodes each clip twice, and the two vectors differ only by dropout. The augmentations in the
paper's code are options here.
"""

import dataclasses
import math
from typing import Annotated, Literal, Self

import numpy as np
import torch
from annotated_types import Ge, Le
from scipy import special
from torch import Tensor, nn

from clearspan.shards import Dataset, ShardError
from clearspan.shards.schema import MEL_BINS
from clearspan.train import draws
from clearspan.train.config.optimizer import Positive
from clearspan.train.config.options import Count, Fraction
from clearspan.train.data.batch import Rows
from clearspan.train.modalities import Modality, ModalityConfig, in_threads

DRAWS = 7
"""The number of random numbers for a view, in this order: whether the clip is mixed, and with which clip; length and
start of the masked bins; length and start of the masked frames; the share of the clip in the mixture."""

MIN_SHARE = 1e-9
"""The smallest share of a clip in a mixture, -180 dB. A small `mixup_alpha` may draw a share of 0, whose logarithm is
infinite."""


@dataclasses.dataclass
class AudioConfig(ModalityConfig):
    """The options of views of audio clips. The defaults are the paper's, without augmentation.

    Args:
        frames: the length of a view, in frames of 10 ms. A longer clip is cut, and a shorter clip is padded with 0.
        patch_size: the height and the width of a patch, in mel bins and in frames.
        positions: whether patches have learned position embeddings. In the published code they have none.
        normalize: whether to normalize values with the mean and standard deviation of the dataset, as SSAST does:
            (x - mean) / (2 std). Otherwise values are unchanged.
        freq_mask: the largest number of adjacent mel bins that are set to 0 (SpecAugment, Park et al. 2019); 0 for no
            masking.
        time_mask: the largest number of adjacent frames that are set to 0 (SpecAugment); 0 for no masking.
        mixup: the probability that a clip is mixed with another clip of its batch. The clip with the larger share gives
            the label.
        mixup_alpha: the parameter of the distribution Beta(alpha, alpha) of a clip's share in a mixture. With a lower
            value, one of the two clips dominates more.
        views: 2 for two views with different masks, 1 for one view that is encoded twice.
    """

    frames: Annotated[int, Ge(1), Le(1 << 19)] = 1024
    patch_size: int = 24
    positions: bool = True
    normalize: bool = True
    freq_mask: Annotated[int, Ge(0), Le(MEL_BINS)] = 0
    time_mask: Count = 0
    mixup: Fraction = 0.0
    mixup_alpha: Positive = 10.0
    views: Literal[1, 2] = 1

    def check(self) -> None:
        if not 1 <= self.patch_size <= min(MEL_BINS, self.frames):
            raise ValueError(
                f"patch_size {self.patch_size} must be at least 1, and at most frames {self.frames} and {MEL_BINS} bins"
            )
        if self.time_mask > self.frames:
            raise ValueError(f"time_mask {self.time_mask} is more than frames {self.frames}")
        if self.mixup_alpha != type(self).mixup_alpha and not self.mixup:
            raise ValueError(f"mixup_alpha {self.mixup_alpha} has no effect without mixup")
        if self.views == 2 and not (self.freq_mask or self.time_mask or self.mixup):
            raise ValueError("views 2 has no effect without freq_mask, time_mask or mixup")

    @property
    def patches(self) -> int:
        """The number of rows of a view in the packed batch: one for each whole patch, and one for the class token."""
        return (MEL_BINS // self.patch_size) * (self.frames // self.patch_size) + 1


class AudioModality(Modality):
    """The modality of audio clips.

    The views of n clips are log-mel spectrograms, (n, views, frames, 128 mel bins) float16, with `views` and `frames`
    of `config`. Their values x are normalized as (x - mean) / (2 std).

    Args:
        config: the options.
        mean, std: the mean and the standard deviation of all values of the dataset; 0 and 0.5 to leave the values
            unchanged.
    """

    config: AudioConfig
    columns = ("frames", "label")

    def __init__(self, config: AudioConfig, mean: float, std: float) -> None:
        super().__init__(config)
        self.mean = mean
        self.std = std
        self.views = config.views
        self.patches = config.patches

    @classmethod
    def build(cls, config: AudioConfig, dataset: Dataset) -> Self:
        if not config.normalize:
            return cls(config, 0, 0.5)
        statistics = dataset.manifest.statistics
        if not (statistics and statistics["std"] > 0):
            raise ValueError(f"normalize: {dataset.folder} lacks mean and standard deviation: run the pipeline again")
        return cls(config, statistics["mean"], statistics["std"])

    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        clips = rows.listed("frames")
        own_labels = rows.numbers("label")
        labels = own_labels.copy()
        uniforms = draws.uniform(torch.from_numpy(keys), DRAWS).numpy()
        values = np.zeros((*keys.shape, self.config.frames, MEL_BINS), np.float16)
        # All views of a clip have one partner and one share, since they have one label.
        shares = self._shares(uniforms[:, 0, 0], uniforms[:, 0, -1])

        def prepare(row: int) -> None:
            clip = self._cut(clips[row], rows.dataset, rows.ids[row])
            if shares[row] < 1:
                assert rows.peer is not None
                other = rows.peer(row, uniforms[row, 0, 1])
                clip = mixed(clip, self._cut(other["frames"], rows.dataset, other["id"]), shares[row])
                labels[row] = own_labels[row] if shares[row] >= 0.5 else other["label"]
            normal = (clip - self.mean) / (2 * self.std)
            for number in range(self.views):
                out = values[row, number]
                out[: len(normal)] = normal
                mask(out, uniforms[row, number, 2:6], self.config)

        in_threads(prepare, range(len(labels)))
        return values, labels

    def _cut(self, frames: np.ndarray, dataset: str, example: int) -> np.ndarray:
        clip = frames[: self.config.frames].astype(np.float32)
        if not np.isfinite(clip).all():
            raise ShardError(
                f"data.{dataset}: the clip of example {example} has values that are not finite: run the pipeline again"
            )
        return clip

    def _shares(self, whether: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
        """Return the share of each of n clips in its mixture with another clip, (n,), above 0; 1 if it is not mixed.

        Args:
            whether: random numbers in [0, 1) that decide whether a clip is mixed, (n,).
            quantiles: random numbers in [0, 1) from which the shares of mixed clips are computed, (n,).
        """
        alpha = self.config.mixup_alpha
        shares = special.betaincinv(alpha, alpha, quantiles).clip(min=MIN_SHARE)
        return np.where(whether < self.config.mixup, shares, 1.0)

    def embedding(self, dim: int) -> nn.Module:
        return SpectrogramEmbedding(self.config, self.patches, dim)


def mixed(clip: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """Return the log-mel spectrogram of a mixture of two clips. It is as long as the longer clip.

    The waveform of the mixture is `share` times the first waveform plus (1 - share) times the second. Because the
    energies of independent sounds add up, each value is log(share^2 e^x + (1 - share)^2 e^y), where x and y are the
    values of the two clips.

    Args:
        clip, other: the log-mel spectrograms of the two clips, (frames, 128 mel bins) float32; the numbers of frames
            may differ.
        share: the share of the first clip, more than 0 and less than 1.
    """
    longer, shorter = clip + 2 * math.log(share), other + 2 * math.log1p(-share)
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    both = longer[: len(shorter)]
    # Not np.logaddexp: it is slow, and more exact than needed if one value is far below the other.
    both[:] = np.maximum(both, shorter) + np.log(1 + np.exp(-np.abs(both - shorter)))
    return longer


def mask(frames: np.ndarray, uniforms: np.ndarray, config: AudioConfig) -> None:
    """Set a random range of mel bins and a random range of frames to 0, in place.

    Args:
        frames: the spectrogram, (number of frames, 128 mel bins), which is changed.
        uniforms: four random numbers in [0, 1), from which these are computed: length and start of the range of bins,
            length and start of the range of frames.
        config: the options, of which `freq_mask` and `time_mask` are the largest lengths of the ranges.
    """
    for axis, longest, length, start in ((1, config.freq_mask, *uniforms[:2]), (0, config.time_mask, *uniforms[2:])):
        size = int(length * (longest + 1))
        first = int(start * (frames.shape[axis] - size + 1))
        frames[(slice(None),) * axis + (slice(first, first + size),)] = 0


class SpectrogramEmbedding(nn.Module):
    """The embedding layer for n spectrograms, (n, frames, 128 mel bins) float16 -> (n, patches, dim).

    The first row of the output is the class token. The patches follow, sorted by mel bins from the lowest, and then by
    time.

    Args:
        config: the options.
        patches: the number of rows of a spectrogram in the output: its patches and the class token.
        dim: the hidden size of the encoder.
    """

    def __init__(self, config: AudioConfig, patches: int, dim: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(1, dim, kernel_size=config.patch_size, stride=config.patch_size)
        self.cls_token = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, dim), std=0.02))
        self.positions = None
        if config.positions:
            self.positions = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, patches, dim), std=0.02))

    def forward(self, frames: Tensor) -> Tensor:
        patches = self.project(frames.float().transpose(1, 2)[:, None]).flatten(2).transpose(1, 2)
        embedded = torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], dim=1)
        return embedded if self.positions is None else embedded + self.positions
