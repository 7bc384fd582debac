"""Make what stages need besides datasets: the folder of evaluation sets, recipes, the untrained encoder."""

import shutil
from pathlib import Path

import yaml

from benchmarks.findings.plan import PRETRAINED, UNTRAINED, Plan
from benchmarks.findings.systems import System, encoder, pretraining, recipe
from clearspan.common.files import write_text
from clearspan.eval.data.senteval import find_downstream

GLUE_FOLDERS = ("RTE", "MRPC")


def link_data(plan: Plan) -> None:
    """Make the folder of evaluation sets: links to the user's, and to the documents, of which a part is held out."""
    folder, source = plan.work / "data", plan.inputs.data
    shutil.rmtree(folder, ignore_errors=True)
    downstream = find_downstream(source)
    for name in plan.scale.sets:
        _link(downstream / name, folder / "downstream" / name)
    for name in GLUE_FOLDERS:
        _link(source / "glue" / name, folder / "glue" / name)
    _link(plan.work / "shards" / "documents", folder / "heldout" / "documents")


def _link(source: Path, target: Path) -> None:
    if source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.resolve())


def tokens_of(plan: Plan, name: str) -> int:
    """Return the tokens that the training of a system or of the base encoder reads."""
    if name == PRETRAINED:
        return plan.scale.pretraining_tokens
    return plan.scale.tokens + (plan.scale.pretraining_tokens if plan.systems[name].scratch else 0)


def recipe_file(plan: Plan, name: str) -> Path:
    return plan.work / "recipes" / f"{name}.yaml"


def all_recipes(plan: Plan) -> dict[str, System]:
    return {PRETRAINED: pretraining(plan.scale), **plan.systems}


def recipes_done(plan: Plan) -> bool:
    return all(recipe_file(plan, name).is_file() for name in all_recipes(plan))


def write_recipes(plan: Plan) -> None:
    """Write the recipe of every system, with as many steps as its share of tokens takes.

    The trainer's own estimate of a step's tokens, from the shards' statistics, gives the number of steps. Patches of
    images and clips are not text: their rows are left out.
    """
    from clearspan.train.engine.ranks import name_accelerator

    name_accelerator()
    from clearspan.shards import Dataset
    from clearspan.train.build import build_learner
    from clearspan.train.config.recipe import load

    shards, base = plan.work / "shards", plan.model(PRETRAINED, 1)
    for name, system in all_recipes(plan).items():
        path = recipe_file(plan, name)
        rate = plan.scale.pretraining_rate if name == PRETRAINED else plan.scale.rate
        options = recipe(system, plan.scale, shards, base, 1, rate)
        trial = {**options, "model": {"config": encoder(plan.scale), "pooling": "mean", **system.model}}
        with_one_step = path.with_suffix(".trial.yaml")
        write_text(with_one_step, yaml.safe_dump(trial, sort_keys=False))
        loaded = load(str(with_one_step), ["output=unused"])
        with_one_step.unlink()
        datasets = {key: Dataset(data.path) for key, data in loaded.data.items()}
        _, _, sizes = build_learner(loaded, datasets, 1, False)
        steps = max(2, round(tokens_of(plan, name) / sum(size.mean_tokens for size in sizes.values())))
        options["training"]["max_steps"] = steps
        options["training"]["save_steps"] = max(1, min(100, steps // 2))
        patches = sum(size.patches for size in sizes.values())
        head = f"# {system.title}. Patches of images and clips in a step, besides tokens: {patches}\n"
        write_text(path, head + yaml.safe_dump(options, sort_keys=False))


def patches_of_a_step(plan: Plan, name: str) -> int:
    """Return the rows of patches in a step of a system, which its recipe's first line states."""
    first = recipe_file(plan, name).read_text(encoding="utf-8").splitlines()[0]
    return int(first.rpartition(" ")[2])


def export_untrained(plan: Plan) -> None:
    """Export the encoder as it is before pretraining."""
    from clearspan.train.engine.ranks import name_accelerator

    name_accelerator()
    from clearspan.shards import Dataset
    from clearspan.train.build_encoder import build_encoder
    from clearspan.train.config.recipe import load, to_yaml
    from clearspan.train.export import save_model
    from clearspan.train.model.tokenizer import load_shards_tokenizer

    shutil.rmtree(plan.run(UNTRAINED, 1), ignore_errors=True)
    loaded = load(str(recipe_file(plan, PRETRAINED)), ["training.seed=1", f"output={plan.run(UNTRAINED, 1)}"])
    tokenizer = load_shards_tokenizer(Dataset(loaded.data["documents"].path).local_tokenizer())
    built = build_encoder(loaded, tokenizer)
    built.drop_mlm_head()
    save_model(built, tokenizer, plan.model(UNTRAINED, 1), to_yaml(loaded))
