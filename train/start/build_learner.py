"""Build the module that DeepSpeed trains (encoder, objectives, patch embeddings), and size its forward passes.

The steps: tokenizer, encoder, objectives, checks that these fit together, sizes of the forward passes, learner.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from clearspan.common.model_folder import EncoderError, read_modules
from clearspan.common.terminal import MAX_SAID, one_line
from clearspan.shards import Dataset, ShardError
from clearspan.train.config.keys import naming
from clearspan.train.config.options import LORA, Recipe, RecipeError
from clearspan.train.draws import Purpose, integer_seed, name_key, seeded
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.model.tokenizer import load_shards_tokenizer
from clearspan.train.objectives import build as build_objective
from clearspan.train.prompts import prompt_tokens, trained_prompts
from clearspan.train.recipe import modality
from clearspan.train.run_folder import with_tokenizer
from clearspan.train.start.build_encoder import build_encoder
from clearspan.train.start.forward_size import ForwardSize, forward_size
from clearspan.train.start.refusals import check_heads, check_objectives, check_parts
from clearspan.train.step.contract import Objective, Setting, TokenObjective
from clearspan.train.step.learner import Learner


def build_objectives(
    recipe: Recipe, datasets: Mapping[str, Dataset], encoder: TrainableEncoder, tokenizer: Any, special: SpecialTokens
) -> tuple[list[Objective], dict[str, nn.Module]]:
    """Build the objectives of a recipe, and the patch embeddings of its image and audio datasets.

    Args:
        recipe: the recipe of the run.
        datasets: name of a dataset in the recipe -> dataset.
        encoder: the encoder that the objectives train.
        tokenizer: the tokenizer of the shards.
        special: the special tokens that are put around each sequence of tokens.

    Returns:
        The objectives, in the recipe's order; and name of a dataset -> its patch embedding, for each dataset that is
        not text.

    Raises:
        RecipeError: an objective or a modality lacks what it needs, or the objectives cannot work together.
        ShardError: a shard is damaged.
    """
    modalities = {name: modality(name, recipe.data[name], dataset) for name, dataset in datasets.items()}
    capacity = encoder.max_tokens - special.count
    embeddings: dict[str, nn.Module] = {}
    built: list[Objective] = []
    try:
        for name, maker in modalities.items():
            if maker is None:
                continue
            try:
                encoder.check_patches(maker.patches)
                with seeded(integer_seed(recipe.training.seed, name_key(name), Purpose.EMBEDDING)):
                    embeddings[name] = maker.embedding(encoder.dim)
            except (ValueError, EncoderError, RuntimeError, MemoryError) as error:  # torch out of memory: RuntimeError
                raise RecipeError(f"data.{name}.modality: {one_line(error, MAX_SAID)}") from None
        for name, config in recipe.objectives.items():
            setting = Setting(
                name=name,
                data=config.data,
                seed=recipe.training.seed,
                capacity=capacity,
                vocab_size=len(tokenizer),
                dim=encoder.dim,
                special=special,
                dataset=datasets[config.data],
                modality=modalities[config.data],
                has_dropout=encoder.has_dropout,
                attends=encoder.attends,
                pooling=encoder.pooling,
                shrinks=recipe.data[config.data].short_documents == "shrink",
                prompt_tokens=prompt_tokens(datasets[config.data]),
            )
            built.append(build_objective(config, setting, built))
    except ShardError:
        raise
    except (ValueError, EncoderError) as error:
        raise RecipeError(str(error)) from None
    check_objectives(recipe, built)
    return built, embeddings


def build_learner(
    recipe: Recipe, datasets: Mapping[str, Dataset], ranks: int, static: bool
) -> tuple[Learner, Any, dict[str, ForwardSize]]:
    """Build the module that DeepSpeed trains.

    Args:
        recipe: the recipe of the run.
        datasets: name of a dataset in the recipe -> dataset.
        ranks: the number of ranks.
        static: whether to give every forward pass of a turn the same number of tokens, if the encoder runs packed.

    Returns:
        The learner; the tokenizer of the shards; and name of a turn -> the size of its forward pass on one rank. A turn
        is one of the weight updates of a step; without alternating optimization there is one turn, `all`.

    Raises:
        RecipeError: recipe, shards and model do not fit together.
        ShardError: a shard is damaged.
    """
    tokenizer = load_shards_tokenizer(with_tokenizer(datasets).local_tokenizer())
    texts = {name: dataset for name, dataset in datasets.items() if dataset.manifest.tokenizer is not None}
    encoder = build_encoder(recipe, tokenizer, texts.values())
    encoder.inference, notes = trained_prompts(encoder.inference, texts)
    encoder.notes += notes
    special = encoder.special_tokens(tokenizer)
    with naming(f"model.train {recipe.model.train}"):
        if recipe.model.train == LORA:
            with seeded(integer_seed(recipe.training.seed, Purpose.ADAPTER)):
                modules = read_modules(Path(recipe.model.path))
                weights = modules[0].folder if modules else Path(recipe.model.path)
                encoder.add_adapter(dataclasses.asdict(recipe.model.lora), weights)
        else:
            encoder.freeze(recipe.model.train)
    objectives, embeddings = build_objectives(recipe, datasets, encoder, tokenizer, special)
    if not any(isinstance(objective, TokenObjective) for objective in objectives):
        encoder.drop_mlm_head()
    check_heads(recipe, encoder, objectives)
    micro_batches = ranks * recipe.training.gradient_accumulation_steps
    examples = {name: math.ceil(data.batch_size / micro_batches) for name, data in recipe.data.items()}
    shrinks = any(data.short_documents == "shrink" for data in recipe.data.values())
    turns = {
        turn: [objective for objective in objectives if recipe.turn_of(objective.name) == turn]
        for turn in recipe.optimizers()
    }
    sizes = {
        turn: forward_size(members, examples, special, encoder.max_tokens - special.count, shrinks)
        for turn, members in turns.items()
    }
    names = {turn: [objective.name for objective in members] for turn, members in turns.items()}
    static = static and not encoder.padded_because
    budgets = {turn: size.budget if static else None for turn, size in sizes.items()}
    learner = Learner(encoder, objectives, special, embeddings, names, budgets)
    check_parts(recipe, learner)
    return learner, tokenizer, sizes
