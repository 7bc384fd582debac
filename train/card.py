"""The model card of an export: how to use the model, and where it comes from.

    recipe, manifests of the shards, metrics.jsonl -> README.md, with the front matter that the Hub reads

A dataset is identified by the sha256 of its manifest, which holds that of every shard: compare it with
`sha256sum DIR/manifest.json`.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from clearspan.train.options import DEV

if TYPE_CHECKING:
    from clearspan.train.selection.dev_score import Measure

TAGS = ["sentence-transformers", "feature-extraction", "sentence-similarity", "clearspan"]
UNCHANGED = "no checkpoint was better than the model you began with"
"""The remark on a run whose best checkpoint is the one before the first step."""
USE = """# {name}

{origin}: {shape}.

```python
from sentence_transformers import SentenceTransformer

embeddings = SentenceTransformer("{name}").encode(["A sentence.", "Another one."])
```
"""


TRANSFORMER = "In transformers, `AutoModel.from_pretrained` loads its transformer: vectors of tokens, before pooling.\n"
STATIC = "It loads in sentence-transformers only: it is a table of vectors, in which transformers finds no model.\n"
PREFIXES = """The first components of an embedding are an embedding too: {dims} were trained as well as all {dim}.

```python
model = SentenceTransformer("{name}", truncate_dim={first})
```
"""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The origin of an exported model, besides its recipe.

    Attributes:
        step: the checkpoint's step; None: the model is not from a run.
        data: the `facts` about each training dataset, by name.
        scores: the scores in training by step: of step 0 and of the checkpoint's.
    """

    step: int | None = None
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scores: Mapping[int, Mapping[str, float]] = dataclasses.field(default_factory=dict)


def facts(datasets: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values that identify each `shards.Dataset`, by its name in the recipe.

    Raises:
        OSError: a manifest cannot be read.
    """
    from clearspan.shards import manifest, storage

    by_name = {}
    for name, dataset in datasets.items():
        entry = {"kind": dataset.manifest.kind, "path": dataset.folder, **dataset.manifest.totals}
        entry["manifest"] = storage.sha256(storage.join(dataset.folder, manifest.NAME))
        tokenizer = dataset.manifest.tokenizer
        by_name[name] = entry | ({"tokenizer": tokenizer.sha256} if tokenizer else {})
    return by_name


def read_scores(metrics: Path, step: int) -> dict[int, dict[str, float]]:
    """Return the scores of step 0 and of another step that a metrics.jsonl holds, by step."""
    from clearspan.train.engine.tracking import lines_up_to
    from clearspan.train.selection.validation import PREFIX

    steps: dict[int, dict[str, float]] = {}
    for line in map(json.loads, lines_up_to(metrics, step)):
        scores = {name: value for name, value in line.items() if name == DEV or name.startswith(PREFIX)}
        if scores and line["step"] in (0, step):
            steps.setdefault(line["step"], {}).update(scores)
    return steps


def card(encoder: Any, name: str, recipe: str, origin: Origin) -> str:
    """Return the card's text; `recipe` is the run's YAML."""
    options = yaml.safe_load(recipe) or {}
    from clearspan.train.selection.dev_score import measure

    measured = measure(str(options.get("training", {}).get("eval_data", "")))
    front = {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity", "tags": TAGS}
    front |= _index(name, measured, origin)
    trained = (
        f"In training {UNCHANGED}, and this is that model"
        if origin.step == 0
        else "A static encoder made of another encoder with Clearspan, without training"
        if not options.get("objectives")
        else "A sentence encoder trained with Clearspan"
    )
    dim = encoder.inference.truncate_dim or encoder.dim
    shape = f"{encoder.pooling} pooling over {dim} dimensions, at most {encoder.max_tokens} tokens"
    if not encoder.attends:
        shape = f"the mean of static token vectors of {dim} dimensions, over texts of any length"
    use = USE.format(name=name, origin=trained, shape=shape)
    parts = [f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n", use]
    parts.append(TRANSFORMER if encoder.attends else STATIC)
    objectives = options.get("objectives", {}).values()
    dims = sorted({dim for objective in objectives for dim in objective.get("dims", []) if dim < encoder.dim})
    if dims and origin.step != 0:
        parts.append(PREFIXES.format(dims=", ".join(map(str, dims)), dim=encoder.dim, name=name, first=dims[0]))
    parts += [_scores(measured, origin), _data(origin), f"## Recipe\n\n```yaml\n{recipe}```\n"]
    return "\n".join(part for part in parts if part)


def _index(name: str, measured: "Measure", origin: Origin) -> dict[str, Any]:
    """Return the score as front matter for the Hub, or {}."""
    score = origin.scores.get(origin.step or 0, {}).get(DEV)
    if origin.step is None or score is None:
        return {}
    task, title, metric = measured.hub
    result = {
        "task": {"type": task, "name": title},
        "dataset": {"type": "unknown", "name": measured.data},
        "metrics": [{"type": metric, "value": round(score, 2), "name": f"{measured.metric}, in percent"}],
    }
    return {"model-index": [{"name": name, "results": [result]}]}


def _scores(measured: "Measure", origin: Origin) -> str:
    """Return the card's section with the scores in training, or ""."""
    if origin.step is None or not (scores := origin.scores.get(origin.step)):
        return ""
    first = origin.scores.get(0, {})
    lines = ["## Scores in training", "", f"| | before it | step {origin.step:,} |", "|---|---|---|"]
    for name, value in scores.items():
        label = f"{measured.data}, {measured.metric} in percent" if name == DEV else f"{name}, on examples held out"
        lines.append(f"| {label} | {_number(first.get(name))} | {_number(value)} |")
    return "\n".join([*lines, "", "These picked the checkpoint where one was picked: they are no test scores.", ""])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _data(origin: Origin) -> str:
    """Return the card's section with the datasets and their fingerprints, or ""."""
    lines = ["## Data", ""]
    for name, entry in origin.data.items():
        tokens = f", {entry['tokens']:,} tokens" if entry["tokens"] else ""
        lines.append(f"- `{name}`: {entry['examples']:,} {entry['kind']}{tokens}, `{entry['path']}`")
        lines.append(f"  - sha256 of its manifest.json: `{entry['manifest']}`")
        if "tokenizer" in entry:
            lines.append(f"  - of its tokenizer.json: `{entry['tokenizer']}`")
    return "\n".join([*lines, ""]) if origin.data else ""
