"""Refuse a recipe whose objectives, encoder and datasets cannot work together.

    train.config.options.check   checks the values of the recipe, before anything is loaded
    this module                  checks what depends on the built objectives, the encoder and the datasets' manifests

Each function raises RecipeError with one line for the user.
"""

from collections.abc import Sequence

from clearspan.common.model_folder import abbreviated
from clearspan.train.config.optimizer import PARTS
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.step.contract import Objective, TokenObjective
from clearspan.train.step.contrast import ContrastiveObjective
from clearspan.train.step.learner import Learner


def check_objectives(recipe: Recipe, objectives: Sequence[Objective]) -> None:
    """Raise RecipeError if the objectives cannot work together as the recipe says.

    They cannot if a contrastive objective gets too few examples to contrast with each other, if an objective masks a
    block of an objective in another turn, or if gradients are cached although no objective is contrastive.
    """
    for objective in objectives:
        together = recipe.contrasted(objective.data)
        if together < objective.min_examples:
            raise RecipeError(
                f"objectives.{objective.name} contrasts the examples of one micro-batch with each other and needs "
                f"{objective.min_examples} or more: data.{objective.data}.batch_size "
                f"{recipe.data[objective.data].batch_size} over training.gradient_accumulation_steps "
                f"{recipe.training.gradient_accumulation_steps} is {together}"
            )
        for other in objective.uses if isinstance(objective, TokenObjective) else ():
            if recipe.turn_of(other) != recipe.turn_of(objective.name):
                raise RecipeError(
                    f"objectives.{objective.name} masks a block of objectives.{other}: set one turn for both, or "
                    "another input"
                )
    if recipe.training.gradient_caching and not any(
        isinstance(objective, ContrastiveObjective) for objective in objectives
    ):
        raise RecipeError(
            "training.gradient_caching: no objective contrasts examples with each other, so that a step needs no more "
            "memory than a micro-batch: leave it out"
        )


def check_heads(recipe: Recipe, encoder: TrainableEncoder, objectives: Sequence[Objective]) -> None:
    """Raise RecipeError if an objective needs a masked-LM head, and the model has none, or lacks some of its weights.

    A head of which all weights are missing is no error: it is trained from random weights.

    Raise RecipeError also if the recipe adds layers after the pooling (`model.head`), and no objective uses them.
    """
    predicting = next((objective.name for objective in objectives if isinstance(objective, TokenObjective)), "")
    if predicting and encoder.mlm_head is None:
        raise RecipeError(
            f"model: {encoder.config.model_type} has no masked-LM head that this version supports, which "
            f"objectives.{predicting} needs: leave it out with objectives.{predicting}=null, or take another model"
        )
    if predicting and encoder.new_weights and not encoder.mlm_head_parameters() <= set(encoder.new_weights):
        raise RecipeError(
            f"model.path {recipe.model.path}: lacks {len(encoder.new_weights):,} weights of its masked-LM head: "
            f"{abbreviated(encoder.new_weights)}: get the whole folder from its source again"
        )
    if recipe.model.head and not any(objective.pools for objective in objectives):
        raise RecipeError("model.head: no objective uses pooled vectors, which the head puts out: leave it out")


def check_parts(recipe: Recipe, learner: Learner) -> None:
    """Raise RecipeError if an objective trains nothing of the exported model, or if optimizer options have no effect.

    A model has three parts: token embeddings, layers and heads. Options for a part have no effect if the part is not
    trained. The optimizer's general options have no effect if every part that is trained has options of its own.
    """
    train, encoder, parts = recipe.model.train, learner.encoder, learner.parts()
    exported = {*encoder.base.parameters(), *encoder.head.parameters()}
    turns = {turn: {parts[parameter] for parameter in learner.parameters_of(turn)} for turn in learner.turns}
    for objective in (each for turn in turns for each in learner.of_turn(turn)):
        if exported.isdisjoint(learner.trained_by([objective])):
            raise RecipeError(
                f"objectives.{objective.name}: model.train {train} freezes every part of the exported model that this "
                "objective could train: train more layers, or leave the objective out"
            )
    for turn, options in recipe.optimizers().items():
        own = [part for part in PARTS if part in options.parts()]
        for part in own:
            shared = getattr(options, part) == getattr(recipe.optimizer, part)
            if part not in (set[str]().union(*turns.values()) if shared else turns[turn]):
                frozen = part == "embeddings" and train not in ("all", "embeddings")
                reason = f"model.train {train} freezes them" if frozen else "no such part trains"
                section = "optimizer" if shared else f"turns.{turn}"
                raise RecipeError(f"{section}.{part} has no effect: {reason}: leave it out")
        if turns[turn] <= set(own):
            section = f"turns.{turn}" if turn in recipe.turns else "optimizer"
            raise RecipeError(
                f"{section}.{next(part for part in own if part in turns[turn])}: nothing else trains, so that "
                f"{section}.learning_rate and {section}.weight_decay have no effect: leave the key out, and set "
                "those two instead"
            )
