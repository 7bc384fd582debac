"""The systems that are compared: for each trained one its recipe, as differences from the recipe that all share.

    a dataset's name, an objective's name -> as in recipes; `recipe` adds the paths, the length and the optimizer

All but the static encoder begin with the pretrained one and its masked-LM head, pool by the mean, and have one learning
rate and schedule: objectives and data are what differs. CLEAR's systems contrast [CLS], as the paper does, or the mean.
No number was tuned on a score.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.findings.scales import Scale

Options = dict[str, Any]
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
        model: the recipe's section; {}: the pretrained encoder.
        optimizer: changes of the optimizer's options.
        scratch: whether it begins without the pretrained encoder, and so has the tokens of its pretraining too.
    """

    title: str
    paper: str
    objectives: Mapping[str, Options]
    batches: Mapping[str, int]
    turns: Mapping[str, Options] = field(default_factory=dict)
    model: Options = field(default_factory=dict)
    optimizer: Options = field(default_factory=dict)
    scratch: bool = False

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.batches)

    @property
    def synonyms(self) -> bool:
        """Return whether it needs a list of synonyms."""
        return "subs" in str(self.objectives.get("clear", {}).get("augment", ""))


def spans(scale: Scale, **changes: Any) -> Options:
    """Return the objective of DeCLUTR: spans of 8 to `max_span` tokens in place of 32 to 512."""
    sampler: Options = {"num_anchors": 2, "num_positives": 1, "min_span": 8, "max_span": scale.max_span}
    return {"data": "documents", "sampler": {**sampler, "placement": "grid", **changes}}


def masked(data: str) -> Options:
    return {"type": "mlm", "data": data, "input": "sentence"}


def patches(data: str, loss: str) -> Options:
    """Return the objective of VisualCSE or AudioCSE, with the published code's weight."""
    return {"type": "patches", "data": data, "loss": loss, "weight": {"images": 0.05, "audio": 0.01}[data]}


def systems(scale: Scale, synonyms: Path | None = None) -> dict[str, System]:
    """Return every system that is trained, by name.

    Args:
        synonyms: the file for substitution.
    """
    documents, sentences = scale.documents, scale.sentences
    views = max(2, sentences * 2 // 3)  # CLEAR encodes a sentence three times: twice augmented, once masked
    separate = {"input": "separate", "data": "documents", "sampler": spans(scale)["sampler"] | {"num_anchors": 2}}
    simcse: Options = {"data": "sentences", "head": "tanh", "positives": "dropout"}
    both = {"spans": spans(scale), "mlm": {"data": "documents", "input": "anchor"}}

    def declutr(title: str, factor: float = 1, **sampler: Any) -> System:
        return System(
            title, "DeCLUTR", {**both, "spans": spans(scale, **sampler)}, {"documents": int(documents * factor)}
        )

    def clear(name: str, suffix: str) -> System:
        pool, contrasted = POOLS[suffix]
        options: Options = {"data": "sentences", "views": "fly", "pool": pool, **AUGMENTATIONS[name]}
        if "subs" in name:
            options["synonyms"] = str(synonyms)
        title = f"CLEAR, {contrasted}: MLM + {name}"
        return System(title, "CLEAR", {"clear": options, "mlm": masked("sentences")}, {"sentences": views})

    def pairs(title: str, data: str) -> System:
        return System(title, "SimCSE", {"simcse": {**simcse, "data": data, "positives": "pairs"}}, {data: sentences})

    def beside(title: str, data: str, loss: str) -> System:
        # The rate of the other modality is a tenth of that of text: Table C.1's is a thirtieth, of pretrained patches.
        turn = {"learning_rate": scale.rate / 10, "schedule": "cosine"}
        objectives = {"simcse": simcse, data: patches(data, loss)}
        return System(title, "NonLing-CSE", objectives, {"sentences": sentences, data: scale.pairs}, {data: turn})

    return {
        "mlm": System("MLM only, on spans", "DeCLUTR", {"mlm": separate}, {"documents": documents * 3 // 2}),
        "declutr": declutr("DeCLUTR: spans + MLM"),
        "declutr-spans-only": System("spans only", "DeCLUTR", {"spans": both["spans"]}, {"documents": documents}),
        "declutr-light-mlm": System(
            "spans + a tenth of MLM's loss",
            "DeCLUTR",
            {**both, "mlm": {**both["mlm"], "weight": 0.1}},
            {"documents": documents},
        ),
        "declutr-1-anchor": declutr("1 anchor, twice the documents", 2, num_anchors=1),
        "declutr-2-positives": declutr("2 positives", 0.75, num_positives=2),
        "declutr-adjacent": declutr("adjacent positives", positives="adjacent"),
        "declutr-subsuming": declutr("subsumed positives", positives="subsuming"),
        "mlm-sentences": System(
            "MLM only, on sentences", "CLEAR", {"mlm": masked("sentences")}, {"sentences": 2 * sentences}
        ),
        **{f"clear-{name}{suffix}": clear(name, suffix) for suffix in POOLS for name in AUGMENTATIONS},
        "simcse": System("SimCSE, unsupervised", "SimCSE", {"simcse": simcse}, {"sentences": sentences}),
        "simcse-deleted": pairs("SimCSE with 10 % of the words deleted", "deleted"),
        "simcse-cropped": pairs("SimCSE with crops of 90 %", "cropped"),
        "simcse-sup": System(
            "SimCSE, supervised",
            "SimCSE",
            {"simcse": {"data": "triplets", "hard_negative_weight": 0}},
            {"triplets": sentences},
        ),
        "visualcse": beside("VisualCSE, SupCon", "images", "paper"),
        "visualcse-simclr": beside("VisualCSE, SimCLR", "images", "simclr"),
        "audiocse": beside("AudioCSE, SupCon", "audio", "paper"),
        "audiocse-simclr": beside("AudioCSE, SimCLR", "audio", "simclr"),
        "combined": System(
            "all objectives together",
            "",
            {
                **both,
                "clear": {"data": "sentences", "augment": "del-span", "views": "fly"},
                "simcse": simcse,
                "images": patches("images", "simclr"),
                "audio": patches("audio", "simclr"),
            },
            {"documents": documents // 2, "sentences": sentences // 3, "images": scale.pairs, "audio": scale.pairs},
        ),
        "static": System(
            "static encoder, spans only",
            "",
            {"spans": spans(scale, positives="adjacent")},
            {"documents": 8 * documents},
            model={"config": {"model_type": "static", "hidden_size": 2 * scale.hidden}},
            optimizer={  # those of the recipe `static`
                "learning_rate": 0.1,
                "betas": [0.9, 0.999],
                "eps": 1.0e-6,
                "weight_decay": 0.0,
                "schedule": "linear",
            },
            scratch=True,
        ),
    }


def encoder(scale: Scale) -> Options:
    """Return the configuration of the encoder; two passes over a text differ by its dropout."""
    return {
        "model_type": "modernbert",
        "hidden_size": scale.hidden,
        "intermediate_size": scale.hidden,
        "num_hidden_layers": scale.layers,
        "num_attention_heads": scale.heads,
        "layer_types": ["full_attention"] * scale.layers,
        "max_position_embeddings": scale.positions,
        "embedding_dropout": 0.1,
        "attention_dropout": 0.1,
        "mlp_dropout": 0.1,
    }


def pretraining(scale: Scale) -> System:
    """Return the training of the base encoder: MLM on long spans of documents, and on sentences."""
    longest = scale.positions - 2
    sampler = {
        "num_anchors": 2,
        "min_span": longest // 2,
        "max_span": longest,
        "placement": "uniform",
        "min_distance": 0,
    }
    objectives = {
        "mlm": {"data": "documents", "input": "separate", "sampler": sampler},
        "sentences": masked("sentences"),
    }
    batches = {"documents": scale.documents, "sentences": scale.sentences // 2}
    return System("pretrained by MLM", "", objectives, batches, model={"config": encoder(scale), "pooling": "mean"})


MODALITIES: dict[str, Options] = {
    "images": {  # small pictures, in views that an encoder of this size can match
        "image_size": 32,
        "patch_size": 8,
        "min_scale": 0.5,
        "jitter": [0.2, 0.2, 0.2, 0.05],
        "grey_probability": 0.0,
    },
    "audio": {"frames": 120, "patch_size": 24},
}


def recipe(system: System, scale: Scale, shards: Path, base: Path, steps: int, rate: float) -> Options:
    """Return the whole recipe of a system, without seed and output.

    Args:
        shards: the folder of the datasets' folders.
        base: the folder of the pretrained encoder.
        rate: peak learning rate.
    """
    data: dict[str, Options] = {}
    for name, batch_size in system.batches.items():
        data[name] = {"path": str(shards / name), "batch_size": batch_size}
        if name == "documents":
            data[name]["short_documents"] = "skip"
        if name in MODALITIES:
            data[name]["modality"] = MODALITIES[name]
    return {
        "model": system.model or {"path": str(base), "pooling": "mean"},
        "data": data,
        "objectives": dict(system.objectives),
        "optimization": "alternate" if system.turns else "sum",
        "turns": dict(system.turns),
        "optimizer": {
            "learning_rate": rate,
            "betas": [0.9, 0.98],
            "eps": 1.0e-6,
            "weight_decay": 0.01,
            "schedule": "slanted_triangular",
            **system.optimizer,
        },
        "training": {
            "max_steps": steps,
            "primary": next(iter(system.batches)),
            "logging_steps": 1,  # counts the tokens of every step
            "save_steps": max(10, steps // 4),
        },
        "output": "???",
    }
