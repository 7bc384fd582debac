"""Make the streams of a run: the examples that it trains on, and its held-out examples."""

from collections.abc import Mapping

from clearspan.shards import Dataset
from clearspan.shards.held_out import FOLDER
from clearspan.train.config.options import HELD_OUT, Recipe, RecipeError
from clearspan.train.data.feed import Feed
from clearspan.train.data.stream import ExampleStream
from clearspan.train.selection.validation import HeldOutExamples
from clearspan.train.step.learner import Learner


def build_feed(recipe: Recipe, datasets: Mapping[str, Dataset], learner: Learner, rank: int, ranks: int) -> Feed:
    """Return the training examples of a run, with a stream for each dataset.

    The objectives set the minimum length of an example, in tokens. The recipe key `short_documents` decides what
    happens to shorter examples.

    Args:
        recipe: the recipe of the run.
        datasets: name of a dataset in the recipe -> dataset.
        learner: the module that is trained, for the objectives in it.
        rank, ranks: the rank of this process, and the number of ranks.

    Raises:
        StreamError: a dataset has too few examples, an example is too short, or a batch size is not a multiple of the
            number of ranks.
        RecipeError: two objectives measure the length of an example by different columns.
        ShardError: a shard is damaged.
    """
    streams = {name: _stream(recipe, name, datasets[name], learner, rank, ranks) for name in recipe.data}
    return Feed(streams, recipe.training.primary)


def build_held_out(
    recipe: Recipe, datasets: Mapping[str, Dataset], learner: Learner, rank: int, ranks: int
) -> HeldOutExamples | None:
    """Return the held-out examples on which losses are computed; None if there are none.

    A dataset must have at least as many held-out examples as a contrastive loss compares with each other: those of a
    micro-batch on all ranks or, with gradient caching, of a step. With `training.eval_data: heldout`, a dataset with
    fewer is left out; otherwise it is an error.

    Args:
        recipe: the recipe of the run, whose keys `data.NAME.validation` name the held-out parts.
        datasets: name of a dataset in the recipe -> dataset.
        learner: the module that is trained, for the objectives in it.
        rank, ranks: the rank of this process, and the number of ranks.

    Raises:
        RecipeError: a dataset has too few held-out examples, or they have another kind or other resources than the
            dataset.
        ManifestError, StreamError, ShardError: the held-out examples cannot be read.
    """
    streams, training = {}, recipe.training
    unit, mend = "micro-batch", ", or raise training.gradient_accumulation_steps"
    if training.gradient_caching:
        unit, mend = "step", ""
    for name, data in recipe.data.items():
        if not data.validation:
            continue
        key, held_out = f"data.{name}.validation {data.validation}", Dataset(data.validation)
        manifest = datasets[name].manifest
        for field in ("kind", "resources"):
            if getattr(held_out.manifest, field) != getattr(manifest, field):
                difference = "made with other files"
                if field == "kind":
                    difference = f"{held_out.manifest.kind}, not {manifest.kind}"
                raise RecipeError(
                    f"{key}: its examples are {difference}: name the folder `{FOLDER}` that "
                    f"`--holdout-fraction` wrote for data.{name}.path"
                )
        size = recipe.contrasted(name)
        if held_out.num_examples < size:
            if recipe.training.eval_data == HELD_OUT:
                continue
            raise RecipeError(
                f"{key}: {held_out.num_examples} {held_out.manifest.kind} are fewer than the {size} of a {unit}, which "
                f"are contrasted with each other: hold out more, lower data.{name}.batch_size{mend}"
            )
        streams[name] = _stream(recipe, name, held_out, learner, rank, ranks, held_out=True)
    return HeldOutExamples(streams, learner) if streams else None


def _stream(
    recipe: Recipe, name: str, dataset: Dataset, learner: Learner, rank: int, ranks: int, held_out: bool = False
) -> ExampleStream:
    """Return the stream of a dataset, or of its held-out part.

    Args:
        recipe: the recipe of the run.
        name: the name of the dataset in the recipe.
        dataset: the shards to read.
        learner: the module that is trained, whose objectives set the minimum length of an example.
        rank, ranks: the rank of this process, and the number of ranks.
        held_out: true for a held-out part. All of its examples are then read, even if training reads only a fraction of
            the dataset (`data.NAME.share`). A step of the stream has as many examples as a contrastive loss compares
            with each other in training: those of a micro-batch on all ranks or, with gradient caching, of a step.
    """
    data, training = recipe.data[name], recipe.training
    shrinks = data.short_documents == "shrink"
    objectives = [objective for turn in learner.turns for objective in learner.of_turn(turn)]
    needs: dict[str, list[int]] = {}
    for objective in objectives:
        if objective.data == name and (shortest := objective.min_tokens(shrinks)):
            needs.setdefault(objective.measured, []).append(shortest)
    if len(needs) > 1:
        raise RecipeError(
            f"data.{name}: objectives draw spans in its columns {' and '.join(needs)}, and an example is long enough "
            "by one of them only: leave one of these objectives out, or give it a dataset of its own"
        )
    measured, shortest = next(((column, max(lengths)) for column, lengths in needs.items()), ("tokens", 0))
    return ExampleStream(
        name,
        dataset,
        recipe.contrasted(name) if held_out else data.batch_size,
        training.seed,
        data.shuffle_shards,
        min_tokens=shortest,
        measured=measured,
        skip_short=shortest > 0 and data.short_documents != "error",
        micro_batches=1 if held_out and not training.gradient_caching else training.gradient_accumulation_steps,
        rank=rank,
        ranks=ranks,
        share=1.0 if held_out else data.share,
        whole=training.gradient_caching,
    )
