"""CLEAR's contrastive objective (Wu et al. 2020, section 3.1): two augmented views of a sentence are a positive pair.

    two views of each sentence, stored or made on the fly -> a vector of each view -> projection head -> NT-Xent

Inputs: text shards with the column `tokens` (`clearspan sentences`), or with stored views `view_0`, `view_1`, ...
(`clearspan sentences --augment`). No labels are needed.

Requires: if views are made on the fly, synonyms for the step `subs`, and a tokenizer that has the token [DEL] for steps
that delete.

Related: the loss is `train.model.losses.nt_xent`. The recipes add the objective `mlm` with `input: sentence`. The
objective `simcse` needs no augmentation: dropout makes its views.

Example, CLEAR with substitution and span deletion:

    clearspan train --recipe clear-subs+del-span data.text.path=SHARDS output=RUN

The views of all other sentences in the batch are negatives. `views: stored` reads two of the views that the pipeline
wrote; if there are more than two, each epoch draws a pair. `views: fly` makes new views in every epoch, in the thread
that reads the data, with the same functions as the pipeline. `views: auto` chooses `fly` if the augmentation steps have
all that they need. The head is only for training and is not exported.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor

from clearspan.cli.flags import NAME
from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import DEL, Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import PUBLISHED, read_synonyms
from clearspan.shards import Dataset, keyed
from clearspan.shards.schema import num_views
from clearspan.train.config.optimizer import Positive
from clearspan.train.config.options import Count
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.draws import Purpose
from clearspan.train.model.memory_bank import Memory
from clearspan.train.objectives import (
    ContrastiveObjective,
    Encoded,
    Metrics,
    NTXentConfig,
    Objective,
    Request,
    Setting,
    Workload,
)
from clearspan.train.step.example_lengths import length_moments

SAMPLE = 1024
"""The number of sentences whose views are made to estimate how long views are relative to their sentences."""


@dataclasses.dataclass
class ClearConfig(NTXentConfig):
    """The options of CLEAR's objective.

    The defaults are the paper's (section 4.1). The paper gives neither the temperature nor the size of the head. It
    takes the loss and the head from SimCLR (Chen et al. 2020), so the defaults are SimCLR's: the best temperature for
    normalized embeddings, 0.1, and an output of 128 dimensions.

    Args:
        augment: the augmentation steps in their order, e.g. `subs+del-span`; must be set.
        views: the source of the views. stored: the views in the shards. fly: new views in every epoch. auto: fly if
            `subs` has synonyms, from the recipe or the shards, and if the tokenizer has [DEL] for steps that delete;
            otherwise stored if the shards hold at least two views. Stored views save the host some work, but if there
            are only two, they are the same in every epoch.
        synonyms: the synonym file for the step `subs` on the fly, in the format of `clearspan sentences`; "" for the
            synonyms with which the shards were made.
        unit: the unit that steps delete and reorder: token, or word, so that the tokens of a word stay together.
        del_word: the fraction of a sentence's units that `del-word` deletes.
        del_spans: the number of spans that `del-span` deletes.
        del_span: the length of each span that `del-span` deletes, as a fraction of the sentence's units.
        reorder_pairs: the number of pairs of spans that `reorder` swaps.
        reorder_span: the length of each span that `reorder` swaps, as a fraction of the sentence's units.
        subs: the fraction of the words that `subs` replaces with synonyms.
        pool: the vector that represents a view. first: the state of its first token, [CLS] or <s>, as in the paper
            (section 3.1), whatever pooling the model has. mean: the vector that the model returns, including
            `model.head`; the model must have mean pooling. Set it to mean to contrast the vectors that are exported.
    """

    augment: str = ""
    views: Literal["auto", "stored", "fly"] = "auto"
    synonyms: str = ""
    unit: str = Augmentation.unit
    del_word: float = Augmentation.del_word
    del_spans: int = Augmentation.del_spans
    del_span: float = Augmentation.del_span
    reorder_pairs: int = Augmentation.reorder_pairs
    reorder_span: float = Augmentation.reorder_span
    subs: float = Augmentation.subs
    pool: Literal["first", "mean"] = "first"
    temperature: Positive = 0.1
    head: Literal["none", "tanh", "relu", "linear"] = "relu"
    head_dim: Count = 128

    @property
    def augmentation(self) -> Augmentation:
        """The augmentation that the options describe.

        Raises:
            ValueError: a step is unknown, or a fraction is out of range.
        """
        options = [f.name for f in dataclasses.fields(Augmentation) if f.name != "steps"]
        try:
            return Augmentation.parse(self.augment, **{name: getattr(self, name) for name in options})
        except ValueError as error:  # it names options, which are keys here
            raise ValueError(NAME.sub(r"\1", str(error))) from None

    def check(self) -> None:
        super().check()
        if not self.augment:
            raise ValueError("augment is not set; name the steps, e.g. augment=subs+del-span")
        substitutes = self.augmentation.substitutes
        if self.synonyms and not substitutes:
            raise ValueError(
                f"synonyms {self.synonyms} has no effect: augment {self.augment} has no subs; leave it out"
            )
        if self.synonyms and self.views == "stored":
            raise ValueError(
                f"synonyms {self.synonyms} has no effect with views: stored; leave it out, or set views=fly"
            )


def check_stored(dataset: Dataset, wanted: Augmentation) -> None:
    """Check that the views in the shards were made with the augmentation that the recipe asks for.

    If the manifest does not state how the views were made, nothing is checked.

    Raises:
        ValueError: they were made with other steps, or with other values of options that these steps use.
    """
    stored = dataset.manifest.fingerprint.get("options", {}).get("augmentation")
    if not stored:
        return
    if stored["steps"] != str(wanted):
        raise ValueError(
            f"augment {wanted}: the stored views of {dataset.folder} were made with {stored['steps']}: set augment to "
            "that, or views=fly"
        )
    for name, value in wanted.options().items():
        counts = name == "unit" or any(name.startswith(step.replace("-", "_")) for step in wanted.steps)
        if counts and name in stored and stored[name] != value:
            raise ValueError(
                f"{name} {value}: the stored views of {dataset.folder} have {stored[name]}: set {name} to that, or "
                "views=fly"
            )


def can_make_views(config: ClearConfig, setting: Setting) -> bool:
    """Return whether `views: auto` may make views on the fly, because the augmentation has all that it needs.

    Substitution needs a file of synonyms, and deletion a token [DEL] in the dataset's tokenizer. If the recipe names a
    synonym file, return True without a check: the user wants views on the fly then. Stored views do not use the file.
    """
    if config.synonyms:
        return True
    augmentation = config.augmentation
    dataset = setting.dataset
    if augmentation.substitutes and PUBLISHED not in dataset.files:
        return False
    return not augmentation.deletes or _tokenizer(dataset).token_to_id(DEL) is not None


def _tokenizer(dataset: Dataset) -> Tokenizer:
    return Tokenizer.from_file(str(dataset.local_tokenizer() / "tokenizer.json"))


def find_synonyms(config: ClearConfig, setting: Setting) -> dict[str, list[str]]:
    """Return the synonyms of each word, from the file that the recipe names, or else from the shards.

    Raises:
        ValueError: neither has synonyms, or the file of the recipe cannot be read or is not a synonym file.
        ShardError: the synonym file of the shards is missing, or its hash differs from the hash in the manifest.
    """
    if config.synonyms:
        try:
            return read_synonyms(config.synonyms)
        except OSError as error:
            raise ValueError(f"synonyms {config.synonyms}: {error.strerror or error}") from None
    dataset = setting.dataset
    if PUBLISHED not in dataset.files:
        raise ValueError(
            f"augment {config.augment}: subs needs synonyms: set objectives.{setting.name}.synonyms=FILE "
            f"({dataset.folder} was made without synonyms)"
        )
    return dict(json.loads(dataset.read_file(PUBLISHED)))


class StoredViews:
    """Reader of two views of each sentence that are stored in the shards.

    Call it with the rows to read. It returns the first views of all rows, and their second views. If the shards hold
    more than two views, a pair is drawn at random for each sentence in each epoch.

    Args:
        count: the number of views that the shards hold of each sentence, at least 2.
        setting: the source of the random keys for drawing pairs.
    """

    def __init__(self, count: int, setting: Setting) -> None:
        self.count = count
        self.setting = setting
        self.columns = [f"view_{view}" for view in range(count)]

    def notes(self, epochs: float) -> list[str]:
        """Return a note for the user if the views are the same in several epochs; otherwise [].

        This is the case if the shards hold only two views, and the run reads the dataset more than once.

        Args:
            epochs: the number of times that the run reads the dataset.
        """
        if self.count > 2 or epochs <= 1:
            return []
        name = f"objectives.{self.setting.name}"
        return [
            f"{name}: the shards' two views of each sentence are the same in all {math.ceil(epochs)} epochs: set "
            f"{name}.views=fly for new ones in each, or make the shards again with more `views`"
        ]

    def __call__(self, rows: Rows) -> list[Ragged]:
        stored = [rows.ragged(name) for name in self.columns]
        if self.count == 2:
            return stored
        keys = self.setting.keys(rows.epoch, rows.ids, Purpose.STORED_VIEWS)
        draws = keyed.shift(keyed.draw(keys[:, None], np.array([1, 2])), 11)
        first, step = draws[:, 0] % self.count, draws[:, 1] % (self.count - 1)
        whole = Ragged.concatenate(stored)
        numbers = np.arange(len(rows.ids))
        return [whole.take(view * len(numbers) + numbers) for view in (first, (first + 1 + step) % self.count)]


class FreshViews:
    """Maker of two new views of each sentence in each epoch.

    Call it with the rows that hold the sentences. It returns the first views of all rows, and their second views. The
    random draws depend on the seed, the epoch, the sentence and the view.

    Args:
        config: the options of the objective, which describe the augmentation.
        setting: the objective's dataset, and the source of random keys.
        stored: the number of views that the shards hold, for `notes`; 0 if they hold none.

    Raises:
        ValueError: the augmentation needs synonyms, or the token [DEL] in the tokenizer, and they are missing.
        ShardError: the synonym file of the shards is damaged.
    """

    columns = ("tokens",)

    def __init__(self, config: ClearConfig, setting: Setting, stored: int = 0) -> None:
        augmentation = config.augmentation
        synonyms = find_synonyms(config, setting) if augmentation.substitutes else None
        tokenizer = _tokenizer(setting.dataset)
        if augmentation.deletes and tokenizer.token_to_id(DEL) is None:
            raise ValueError(
                f"augment {augmentation}: the tokenizer of {setting.dataset.folder} has no {DEL}: make the shards "
                "again with `clearspan sentences --del-token`"
            )
        self.setting = setting
        self.augmenter = Augmenter(augmentation, tokenizer, synonyms)
        self.unread = stored if config.views == "auto" else 0

    def __call__(self, rows: Rows) -> list[Ragged]:
        keys = self.setting.keys(rows.epoch, rows.ids, Purpose.VIEW)
        return [self.augmenter(rows.ragged("tokens"), keyed.mix(keys, view)) for view in range(2)]

    def notes(self, epochs: float) -> list[str]:
        """Return a note for the user if `views: auto` ignores views that the shards hold; otherwise [].

        Args:
            epochs: not used; `StoredViews.notes` has the same signature.
        """
        if not self.unread:
            return []
        name = f"objectives.{self.setting.name}"
        views = f"{self.unread} views" if self.unread > 1 else "one view"
        return [f"{name}: makes new views in every epoch; {name}.views=stored uses the shards' {views}"]


class Clear(ContrastiveObjective):
    """NT-Xent between the projected vectors of two views of each sentence (CLEAR Eq. 1).

    The objective encodes two views of each sentence: the first in the block `view_0`, the second in the block `view_1`.
    A view's negatives are both views of every other sentence in the micro-batch, on all ranks. With gradient caching,
    the other sentences are those of the whole step. The option `memory` adds negatives, `mask_equal` removes some.

    The loss is the mean over all views, whereas Eq. 2 is their sum. The masked-LM loss is a mean too, so the relative
    weight of the two losses does not depend on the batch size.
    """

    config: ClearConfig
    masks_equal = True

    def __init__(self, config: ClearConfig, setting: Setting, views: StoredViews | FreshViews) -> None:
        super().__init__(config, setting)
        self.pools = config.pool == "mean"
        self.views = views
        self.memory = Memory(config.memory, self.head_dim)

    @classmethod
    def build(cls, config: ClearConfig, setting: Setting, earlier: Sequence[Objective]) -> Self:
        if config.pool == "mean" and setting.pooling != "mean":
            raise ValueError(
                "pool: mean needs a model that pools by the mean, and the pooling of this model is "
                f"{setting.pooling}: set "
                "model.pooling=mean, or pool=first"
            )
        if config.pool == "first" and setting.attends and not setting.special.prefix:
            raise ValueError(
                "the tokenizer puts no token such as [CLS] or <s> before a sentence, whose state the loss needs: "
                "give it a post-processor that does, and make the shards again, or set pool=mean"
            )
        stored = num_views(setting.sample.schema) if setting.sample is not None else 0
        if config.views == "stored" and stored < 2:
            raise ValueError(
                f"views: stored needs two views, {setting.dataset.folder} holds {stored}: make the shards again with "
                f"`views` 2, or set views=fly"
            )
        if config.views == "stored" or (config.views == "auto" and stored >= 2 and not can_make_views(config, setting)):
            check_stored(setting.dataset, config.augmentation)
            return cls(config, setting, StoredViews(stored, setting))
        return cls(config, setting, FreshViews(config, setting, stored))

    @property
    def columns(self) -> Sequence[str]:
        return [*self.views.columns, "tokens"] if self.config.mask_equal else self.views.columns

    def notes(self, epochs: float) -> list[str]:
        return self.views.notes(epochs)

    @functools.cached_property
    def _view_moments(self) -> tuple[float, float]:
        """The mean and the variance of the number of tokens in a view, estimated from the lengths of the sentences."""
        mean, variance = length_moments(self.setting)
        ratio = self._length_ratio()
        return ratio * mean, ratio**2 * variance

    def workload(self) -> Workload:
        mean, variance = self._view_moments
        return Workload(2, 2 * mean, 4 * variance, 0, self.setting.capacity)  # both views are long or short together

    def block_moments(self, block: str) -> tuple[float, float]:
        return self._view_moments if block in ("view_0", "view_1") else super().block_moments(block)

    def _length_ratio(self) -> float:
        """Return the mean length of a view divided by the mean length of a sentence, in tokens.

        Both means are taken over the first examples of the dataset. Return 1.0 if it has no examples.
        """
        batch = self.setting.sample
        if batch is None:
            return 1.0
        names = {"tokens", *self.columns}
        columns: Columns = {name: Ragged.from_arrow(batch.column(name)).slice(slice(0, SAMPLE)) for name in names}
        rows = Rows(self.setting.data, columns, batch.column("id").to_numpy()[:SAMPLE], 0)
        capacity = self.setting.capacity
        cut = [int(lists.lengths.clip(max=capacity).sum()) for lists in (rows.ragged("tokens"), *self.views(rows))]
        return sum(cut[1:]) / (2 * max(1, cut[0]))

    def collate(self, rows: Rows) -> Columns:
        views: Columns = {f"view_{number}": view for number, view in enumerate(self.views(rows))}
        return {**views, "tokens": rows.columns["tokens"]} if self.config.mask_equal else views

    def request(self, batch: Batch) -> Request:
        keys = enumerate(self.setting.sequence_keys(batch, 2))
        capacity = self.setting.capacity
        sequences = {f"view_{view}": batch.sequences(f"view_{view}", key, capacity) for view, key in keys}
        texts = (batch.lists(name).slices(capacity) for name in ("tokens", *sequences) if name in batch.columns)
        return Request(sequences, context=self.identities(batch.ids, *texts))

    def loss(self, encoded: Encoded, context: Tensor | None) -> tuple[Tensor, Metrics]:
        read = encoded.pooled if self.pools else encoded.first
        views = read("view_0"), read("view_1")
        first, second = self.projected(*views)
        same = None if context is None else self.share_a_key(context)
        return self.memory.nt_xent(first, second, self.config.temperature, same), self.sphere_metrics(encoded, *views)
