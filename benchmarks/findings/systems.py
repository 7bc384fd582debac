"""The systems that are compared: for each one its recipe, as differences from the recipe that all share.

    a dataset's name, an objective's name -> as in recipes; `recipe` adds the paths, the length and the optimizer

All begin with the pretrained encoder and its masked-LM head, pool by the mean, and have one learning rate and schedule:
objectives and data are what differs. CLEAR's systems contrast [CLS], as the paper does, or the mean. No number was
tuned on a score.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.findings.scales import Scale

Options = dict[str, Any]
SHARED: Options = yaml.safe_load(Path(__file__).with_name("shared.yaml").read_text(encoding="utf-8"))
PRETRAINED, UNTRAINED = "pretrained", "untrained"
TITLES = {
    "glove": "GloVe, mean of word vectors",
    "tfidf": "tf-idf",
    "bm25": "BM25",
    UNTRAINED: "the encoder, untrained",
    PRETRAINED: "the encoder, pretrained by MLM",
}
"""Titles of the baselines, which are scored but not trained."""
AUGMENTATIONS: dict[str, Options] = {
    **{steps: {"augment": steps} for steps in ("del-word", "del-span", "reorder", "subs", "subs+del-span")},
    "1-token": {"augment": "del-word", "del_word": 0.01},
}
"""Options of CLEAR's augmentations, and of a control that deletes one token, as sentences have at most 62."""
POOLS = {"": ("first", "[CLS]"), "-mean": ("mean", "means")}
"""Suffix of a system of CLEAR -> what it contrasts: the value of the option `pool`, and a name."""


@dataclass(frozen=True)
class System:
    """A system that is trained.

    Attributes:
        title: its name in tables.
        paper: the paper whose objective it has.
        objectives: the recipe's section; `batches`: dataset -> examples of a step.
        turns: the recipe's section; with turns, each one has its own update.
    """

    title: str
    paper: str
    objectives: Mapping[str, Options]
    batches: Mapping[str, int]
    turns: Mapping[str, Options] = field(default_factory=dict)


def spans(scale: Scale, **changes: Any) -> Options:
    """Return the objective of DeCLUTR: spans of 8 to `max_span` tokens in place of 32 to 512."""
    sampler: Options = {"num_anchors": 2, "num_positives": 1, "min_span": 8, "max_span": scale.max_span}
    return {"data": "documents", "sampler": {**sampler, "placement": "grid", **changes}}


def masked(data: str) -> Options:
    return {"type": "mlm", "data": data, "input": "sentence"}


def systems(scale: Scale, synonyms: Path | None = None) -> dict[str, System]:
    """Return every system that is trained, by name.

    Args:
        synonyms: the file for substitution.
    """
    return {**_declutr(scale), **_clear(scale, synonyms), **_simcse(scale)}


def _declutr(scale: Scale) -> dict[str, System]:
    mlm = {"data": "documents", "input": "anchor"}
    separate = {"mlm": {**mlm, "input": "separate", "sampler": spans(scale)["sampler"]}}

    def system(title: str, objectives: Mapping[str, Options], factor: float = 1) -> System:
        return System(title, "DeCLUTR", objectives, {"documents": int(scale.documents * factor)})

    def both(title: str, factor: float = 1, **sampler: Any) -> System:
        return system(title, {"spans": spans(scale, **sampler), "mlm": mlm}, factor)

    light = {"spans": spans(scale), "mlm": {**mlm, "weight": 0.1}}
    return {
        "mlm": system("MLM only, on spans", separate, 1.5),
        "declutr": both("DeCLUTR: spans + MLM"),
        "declutr-spans-only": system("spans only", {"spans": spans(scale)}),
        "declutr-light-mlm": system("spans + a tenth of MLM's loss", light),
        "declutr-1-anchor": both("1 anchor, twice the documents", 2, num_anchors=1),
        "declutr-2-positives": both("2 positives", 0.75, num_positives=2),
        "declutr-adjacent": both("adjacent positives", positives="adjacent"),
        "declutr-subsuming": both("subsumed positives", positives="subsuming"),
    }


def _clear(scale: Scale, synonyms: Path | None) -> dict[str, System]:
    alone = {"mlm": masked("sentences")}
    made = {"mlm-sentences": System("MLM only, on sentences", "CLEAR", alone, {"sentences": 2 * scale.sentences})}
    views = max(2, scale.sentences * 2 // 3)  # a sentence is encoded three times: twice augmented, once masked
    for suffix, (pool, contrasted) in POOLS.items():
        for name, augmentation in AUGMENTATIONS.items():
            options = {"data": "sentences", "views": "fly", "pool": pool, **augmentation}
            if "subs" in name:
                options["synonyms"] = str(synonyms)
            title = f"CLEAR, {contrasted}: MLM + {name}"
            made[f"clear-{name}{suffix}"] = System(title, "CLEAR", {"clear": options, **alone}, {"sentences": views})
    return made


def _simcse(scale: Scale) -> dict[str, System]:
    simcse: Options = {"data": "sentences", "head": "tanh", "positives": "dropout"}
    supervised = {"data": "triplets", "hard_negative_weight": 0}

    def system(title: str, **options: Any) -> System:
        given = {**simcse, **options}
        return System(title, "SimCSE", {"simcse": given}, {given["data"]: scale.sentences})

    def with_patches(title: str, data: str, loss: str) -> System:
        # The rate of the other modality is a tenth of that of text: Table C.1's is a thirtieth, of pretrained patches.
        turn = {"learning_rate": scale.rate / 10, "schedule": "cosine"}
        patches = {"type": "patches", "data": data, "loss": loss, "weight": {"images": 0.05, "audio": 0.01}[data]}
        batches = {"sentences": scale.sentences, data: scale.pairs}
        return System(title, "NonLing-CSE", {"simcse": simcse, data: patches}, batches, {data: turn})

    return {
        "simcse": system("SimCSE, unsupervised"),
        "simcse-deleted": system("SimCSE with 10 % of the words deleted", data="deleted", positives="pairs"),
        "simcse-cropped": system("SimCSE with crops of 90 %", data="cropped", positives="pairs"),
        "simcse-sup": System("SimCSE, supervised", "SimCSE", {"simcse": supervised}, {"triplets": scale.sentences}),
        "visualcse": with_patches("VisualCSE, SupCon", "images", "paper"),
        "visualcse-simclr": with_patches("VisualCSE, SimCLR", "images", "simclr"),
        "audiocse": with_patches("AudioCSE, SupCon", "audio", "paper"),
        "audiocse-simclr": with_patches("AudioCSE, SimCLR", "audio", "simclr"),
    }


def encoder(scale: Scale) -> Options:
    """Return the configuration of the encoder."""
    return {
        **SHARED["encoder"],
        "hidden_size": scale.hidden,
        "intermediate_size": scale.hidden,
        "num_hidden_layers": scale.layers,
        "num_attention_heads": scale.heads,
        "layer_types": ["full_attention"] * scale.layers,
        "max_position_embeddings": scale.positions,
    }


def pretraining(scale: Scale) -> System:
    """Return the training of the base encoder: MLM on long spans of documents, and on sentences."""
    longest = scale.positions - 2
    sampler = {"num_anchors": 2, "min_span": longest // 2, "max_span": longest}
    sampler |= {"placement": "uniform", "min_distance": 0}
    mlm = {"data": "documents", "input": "separate", "sampler": sampler}
    batches = {"documents": scale.documents, "sentences": scale.sentences // 2}
    batches = {name: size * scale.pretraining_factor for name, size in batches.items()}
    return System(TITLES[PRETRAINED], "", {"mlm": mlm, "sentences": masked("sentences")}, batches)


def recipe(system: System, model: Options, rate: float, shards: Path) -> Options:
    """Return the recipe of a system, without its length, seed and output.

    Args:
        model: the base encoder.
        rate: peak learning rate.
        shards: the folder of the datasets' folders.
    """
    data: dict[str, Options] = {}
    for name, batch_size in system.batches.items():
        data[name] = {"path": str(shards / name), "batch_size": batch_size}
        if name == "documents":
            data[name]["short_documents"] = "skip"
        if name in SHARED["modalities"]:
            data[name]["modality"] = SHARED["modalities"][name]
    return {
        "model": {**model, "pooling": "mean"},
        "data": data,
        "objectives": dict(system.objectives),
        "optimization": "alternate" if system.turns else "sum",
        "turns": dict(system.turns),
        "optimizer": {"learning_rate": rate, **SHARED["optimizer"]},
        "training": {"primary": next(iter(system.batches)), "logging_steps": 1},  # counts the tokens of every step
        "output": "???",
    }
