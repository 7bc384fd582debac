"""Log-mel spectrograms as 24 x 24 patches (NonLing-CSE appendix B, after SSAST: Gong et al. 2021).

    frames of 10 ms x 128 mel bins -> mixed with another clip, normalised, cut or filled, stretches masked -> float16
                                   -> patches of 24 x 24 -> a linear layer, a class token, positions

1,024 frames give 5 x 42 patches and the class token: 211 rows. The paper changes nothing of a clip, and tells its two
passes apart by dropout alone; what its code does besides is here as options.
"""

import dataclasses
import math

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from clearspan.shards import Dataset, ShardError
from clearspan.shards.schema import MEL_BINS
from clearspan.train import draws
from clearspan.train.data.batch import Rows
from clearspan.train.modalities import Modality, check_view, in_threads

DRAWS = 7
"""Of a view: whether it is mixed, and with whom; a length and a start of masked bins, and of masked frames; of the
mixture's Beta, where there is one."""

LEAST_SHARE = 1e-9
"""Of a clip in a mixture, -180 dB: a small mixup_alpha draws shares that are 0 in floating point, which has no log."""


@dataclasses.dataclass
class Config:
    """The paper's clips, and nothing changed of them.

    Args:
        frames: of 10 ms; a longer clip is cut, a shorter one filled with 0.
        patch_size: rows and columns of a patch.
        positions: whether patches are told their place, by embeddings that are learned. The published code's are not.
        normalize: by the shards' mean and deviation, (x - mean) / (2 std), as SSAST does; else values stay as they are.
        freq_mask, time_mask: SpecAugment's (Park et al. 2019), at most so many bins and frames that become 0.
        mixup: the probability that a clip is mixed with another of its batch; the label is that of the louder one.
        mixup_alpha: the mixture's share is drawn from Beta(alpha, alpha).
        views: 2 for two that are mixed and masked differently, 1 for one that is encoded twice.
    """

    frames: int = 1024
    patch_size: int = 24
    positions: bool = True
    normalize: bool = True
    freq_mask: int = 0
    time_mask: int = 0
    mixup: float = 0.0
    mixup_alpha: float = 10.0
    views: int = 1

    def check(self) -> None:
        if not 1 <= self.patch_size <= min(MEL_BINS, self.frames):
            raise ValueError(
                f"patch_size {self.patch_size} must be at least 1, and at most frames {self.frames} and {MEL_BINS} bins"
            )
        check_view(f"frames {self.frames} and patch_size {self.patch_size}", MEL_BINS * self.frames, self.patches)
        if not 0 <= self.freq_mask <= MEL_BINS:
            raise ValueError(f"freq_mask {self.freq_mask} must lie between 0 and {MEL_BINS}")
        if not 0 <= self.time_mask <= self.frames:
            raise ValueError(f"time_mask {self.time_mask} must lie between 0 and frames {self.frames}")
        if not 0 <= self.mixup <= 1:
            raise ValueError(f"mixup {self.mixup} must lie between 0 and 1")
        if not 0 < self.mixup_alpha < math.inf:
            raise ValueError(f"mixup_alpha {self.mixup_alpha} must be positive")
        if self.mixup_alpha != type(self).mixup_alpha and not self.mixup:
            raise ValueError(f"mixup_alpha {self.mixup_alpha} has no effect without mixup")
        if self.views not in (1, 2):
            raise ValueError(f"views {self.views} is not 1 or 2")
        if self.views == 2 and not (self.freq_mask or self.time_mask or self.mixup):
            raise ValueError("views 2 has no effect without freq_mask, time_mask or mixup")

    @property
    def patches(self) -> int:
        """Rows of a view: those of whole patches, and the class token's."""
        return (MEL_BINS // self.patch_size) * (self.frames // self.patch_size) + 1


def build(config: Config, dataset: Dataset) -> "Audio":
    statistics = dataset.manifest.statistics
    if config.normalize and not (statistics and statistics["std"] > 0):
        raise ValueError(f"normalize: {dataset.folder} does not tell its mean and deviation: run the pipeline again")
    return Audio(config, statistics["mean"] if config.normalize else 0, statistics["std"] if config.normalize else 0.5)


class Audio(Modality):
    """Spectrograms, float16 (n, views, frames, 128): (x - mean) / (2 std)."""

    columns = ("frames", "label")

    def __init__(self, config: Config, mean: float, std: float) -> None:
        self.config, self.mean, self.std = config, mean, std
        self.views = config.views
        self.patches = config.patches

    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        clips, own = rows.listed("frames"), rows.numbers("label")
        labels = own.copy()
        uniforms = draws.uniform(torch.from_numpy(keys), DRAWS).numpy()
        values = np.zeros((*keys.shape, self.config.frames, MEL_BINS), np.float16)
        # One partner and one share for all views of a clip, whose label they have in common.
        shares = self._shares(uniforms[:, 0, 0], uniforms[:, 0, -1])

        def prepare(row: int) -> None:
            clip = self._cut(clips[row], rows.dataset, rows.ids[row])
            if shares[row] < 1:
                assert rows.peer is not None
                other = rows.peer(row, uniforms[row, 0, 1])
                clip = mixed(clip, self._cut(other["frames"], rows.dataset, other["id"]), shares[row])
                labels[row] = own[row] if shares[row] >= 0.5 else other["label"]
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
                f"data.{dataset}: the clip of example {example} has values that are no numbers: run the pipeline again"
            )
        return clip

    def _shares(self, whether: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
        """The share of each clip in its mixture, of two uniforms (n,), above 0; 1 for one that is not mixed."""
        alpha = self.config.mixup_alpha
        shares = special.betaincinv(alpha, alpha, quantiles).clip(min=LEAST_SHARE)
        return np.where(whether < self.config.mixup, shares, 1.0)

    def embedding(self, dim: int) -> nn.Module:
        return PatchEmbedding(self.config, self.patches, dim)


def mixed(clip: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """The log-mel frames of `share` of one clip's waveform and the rest of another's, as long as the longer one.

    Of two sounds that do not depend on each other the energies add up: log(share^2 e^x + (1 - share)^2 e^y).
    """
    longer, shorter = clip + 2 * math.log(share), other + 2 * math.log1p(-share)
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    both = longer[: len(shorter)]
    # numpy's logaddexp, which is exact where one is far below the other, is slow.
    both[:] = np.maximum(both, shorter) + np.log(1 + np.exp(-np.abs(both - shorter)))
    return longer


def mask(frames: np.ndarray, uniforms: np.ndarray, config: Config) -> None:
    """Sets a stretch of bins and one of frames to 0, in place, each of 0 up to its most, at any place: frames
    (frames, 128), uniforms (4,).
    """
    for axis, most, length, start in ((1, config.freq_mask, *uniforms[:2]), (0, config.time_mask, *uniforms[2:])):
        size = int(length * (most + 1))
        first = int(start * (frames.shape[axis] - size + 1))
        frames[(slice(None),) * axis + (slice(first, first + size),)] = 0


class PatchEmbedding(nn.Module):
    """float16 (n, frames, 128) -> (n, patches, dim): the class token, then the patches of the lowest bins in the
    order of time, then those above.
    """

    def __init__(self, config: Config, patches: int, dim: int) -> None:
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
