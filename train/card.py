"""The model card of an export: how to use the model, and where it comes from.

    recipe, manifests of the shards, metrics.jsonl -> README.md, with the front matter that the Hub reads

The card states the sha256 of each dataset's manifest, and a manifest holds the sha256 of every shard. To check whether
a dataset is the one that the model was trained on, compare the output of `sha256sum DIR/manifest.json` with the card.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearspan.common.delimited import TABLE_SUFFIXES
from clearspan.common.hub import HUB, split
from clearspan.train.config.layers import parse
from clearspan.train.config.options import DEV, GIVEN, HELD_OUT

LIBRARY = "sentence-transformers"
TAGS = [LIBRARY, "feature-extraction", "sentence-similarity", "clearspan"]
UNCHANGED = "no checkpoint was better than the model you began with, and this is that model"
PREPARED = "no checkpoint was better than the first: the model you began with, pooled as the recipe says"
NO_STEP = "no step was taken yet, and this is the model you began with, pooled as the recipe says"
"""The remarks on a model that training has not changed. UNCHANGED: the best checkpoint is the one before the first
step, with the pooling and layers of the given model. PREPARED: the same, with the pooling and layers of the recipe.
NO_STEP: the checkpoint before the first step is exported because it is the last one.
"""
BEFORE = -1
"""The key that stands for the model that training started from, in mappings from step to scores."""
TEMPLATE = Path(__file__).with_name("model_card.md")


@dataclasses.dataclass(frozen=True)
class Origin:
    """The facts that the model card states about the origin of an exported model, in addition to the recipe.

    Attributes:
        step: the step of the exported checkpoint; None if the model does not come from a run.
        data: name of a training dataset -> its kind, path, size, hashes and prompts (`dataset_facts`).
        scores: step -> name of a metric -> its value at that step. The metrics are the dev score and held-out losses;
            the step -1 (`BEFORE`) stands for the model that training started from.
        start: a remark that training has not changed the model (`UNCHANGED`, `PREPARED` or `NO_STEP`); "" if training
            has changed it.
    """

    step: int | None = None
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scores: Mapping[int, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    start: str = ""


def dataset_facts(datasets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by which the model card identifies each dataset: kind, path, size, hashes and prompts.

    Args:
        datasets: name of a dataset in the recipe -> its `shards.Dataset`.

    Returns:
        Name of a dataset -> name of a value -> the value, such as a str or a number, that can be written as JSON.

    Raises:
        OSError: a manifest cannot be read.
    """
    from clearspan.shards import manifest, storage

    by_name = {}
    for name, dataset in datasets.items():
        entry = {"kind": dataset.manifest.kind, "path": dataset.folder, **dataset.manifest.totals}
        entry["manifest"] = storage.sha256(storage.join(dataset.folder, manifest.NAME))
        tokenizer = dataset.manifest.tokenizer
        entry |= {"tokenizer": tokenizer.sha256} if tokenizer else {}
        by_name[name] = entry | ({"prompts": dataset.manifest.prompts} if dataset.manifest.prompts else {})
    return by_name


def read_scores(metrics: Path, step: int) -> dict[int, dict[str, float]]:
    """Read the dev scores and the held-out losses of up to three steps from a metrics.jsonl.

    Args:
        metrics: the path of the metrics.jsonl.
        step: the step of the exported checkpoint.

    Returns:
        Step -> name of a metric -> its value. The steps are `step`; 0, the weights before the first step; and -1
        (`BEFORE`), the given model with the pooling of its folder, if the run changes the pooling or the layers after
        it. A step without any value is left out.
    """
    from clearspan.train.curves import lines_up_to
    from clearspan.train.selection.validation import PREFIX

    steps: dict[int, dict[str, float]] = {}
    for line in map(json.loads, lines_up_to(metrics, step)):
        for name, value in line.items():
            score, at = name.removeprefix(GIVEN), BEFORE if name.startswith(GIVEN) else line["step"]
            if (score == DEV or score.startswith(PREFIX)) and at in (BEFORE, 0, step):
                steps.setdefault(at, {})[score] = value
    return steps


def metric_fields(eval_data: str) -> dict[str, Any]:
    """Return the fields of `huggingface_hub.EvalResult` that describe the dev score: its task, dataset and metric.

    Args:
        eval_data: the recipe's `training.eval_data`, on which the dev score is computed.
    """
    if eval_data == HELD_OUT:
        task = {"task_type": "information-retrieval", "task_name": "Information Retrieval", "metric_type": "mrr"}
        return {**task, "dataset_name": "held-out texts", "metric_name": "MRR in percent"}
    path = Path(eval_data)
    name = path.name if path.suffix.lower() in TABLE_SUFFIXES else "STS-B dev"
    task = {"task_type": "semantic-similarity", "task_name": "Semantic Similarity", "metric_type": "spearman_cosine"}
    return {**task, "dataset_name": name, "metric_name": "Spearman by cosine in percent"}


def card(encoder: Any, name: str, recipe: str, origin: Origin) -> str:
    """Return the text of the model card.

    Args:
        encoder: the exported encoder, a `TrainableEncoder`.
        name: the model's name on the card.
        recipe: the recipe of the run, in YAML.
        origin: what the card states, besides the recipe, about the checkpoint, its training data and its scores.
    """
    from huggingface_hub import EvalResult, ModelCardData
    from jinja2 import Template

    options = parse(recipe) or {}
    measure = metric_fields(str(options.get("training", {}).get("eval_data", "")))
    first = origin.scores.get(BEFORE) or origin.scores.get(0, {})
    scores = {} if origin.step is None else origin.scores.get(origin.step, {})
    if origin.start == UNCHANGED:
        scores = first
    model = options.get("model")
    named = [str(model.get(key) or "") for key in ("path", "distill")] if isinstance(model, dict) else []
    base = next((name for name in named if name.startswith(HUB)), "")
    front = ModelCardData(library_name=LIBRARY, pipeline_tag="sentence-similarity", tags=TAGS)
    if base:
        front.base_model = split(base)[0]
    if DEV in scores:
        front.model_name = name
        front.eval_results = [EvalResult(dataset_type="unknown", metric_value=round(scores[DEV], 2), **measure)]
    trained = "A sentence encoder trained with Clearspan"
    if origin.start:
        trained = f"In training {origin.start}"
    elif not options.get("objectives"):
        trained = "A static encoder made of another encoder with Clearspan, without training"
    if base:
        trained += f", from `{base}`"
    dim = encoder.inference.truncate_dim or encoder.dim
    shape = f"{encoder.pooling} pooling over {dim} dimensions, at most {encoder.max_tokens} tokens"
    if not encoder.attends:
        shape = f"the mean of static token vectors of {dim} dimensions, over texts of any length"
    objectives = () if origin.start else options.get("objectives", {}).values()
    text: str = Template(TEMPLATE.read_text(encoding="utf-8"), trim_blocks=True, keep_trailing_newline=True).render(
        front=front.to_yaml(),
        name=name,
        origin=trained,
        shape=shape,
        attends=encoder.attends,
        dims=sorted({dim for objective in objectives for dim in objective.get("dims", []) if dim < encoder.dim}),
        dim=encoder.dim,
        prompts={side: prompt for side, prompt in encoder.inference.sides._asdict().items() if prompt},
        json=json.dumps,
        scores=scores,
        first=first,
        step=origin.step,
        labels={DEV: f"{measure['dataset_name']}, {measure['metric_name']}"},
        number=lambda value: "" if value is None else f"{value:.4g}",
        data=origin.data,
        recipe=recipe,
    )
    return text
