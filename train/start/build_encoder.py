"""Build the encoder of a recipe: a transformer or a static model, with its pooling.

The weights are those of the local folder `model.path`, or random. With `model.path` and `model.config` together, only
the token embeddings are taken from the folder. `model.init` chooses the initial vectors of a static model.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.pooling_names import TRAINED
from clearspan.common.model_folder import EncoderError, check_tokenizer, read_modules
from clearspan.common.pretrained import load_model, model_class, quiet_transformers
from clearspan.common.terminal import MAX_SAID, one_line
from clearspan.shards import Dataset, ShardError
from clearspan.train.config.keys import nearest_key
from clearspan.train.config.options import DISTILL, STATIC, ModelConfig, Recipe, RecipeError
from clearspan.train.draws import seeded
from clearspan.train.model.encoder import ATTENTION_DROPOUTS, TrainableEncoder
from clearspan.train.model.mlm_head import variant
from clearspan.train.model.source import Given, ModelSource, read_source
from clearspan.train.model.tokenizer import load_tokenizer, num_ids, special_tokens
from clearspan.train.run_folder import other_tokenizer
from clearspan.train.start.static_start import distilled, rank_weights, set_initial_vectors, split_dimensions
from clearspan.train.start.token_weights import inverse_frequencies, resized

OTHER_DROPOUTS = ("classif", "qa_", "summary_", "pooler_", "layerdrop")
"""Parts of the names of dropout rates that do not belong to the base model, or that drop whole layers."""


def extends(tokenizer: Any, base: Any) -> bool:
    """Return whether a tokenizer is `base` with any number of special tokens added at the end.

    It must give each token of `base` the same id, and its further tokens must be special and have higher ids.

    Args:
        tokenizer: the tokenizer that may have further tokens.
        base: the tokenizer to compare it with.
    """
    vocabulary, base_vocabulary = tokenizer.get_vocab(), base.get_vocab()
    added = {token: id_ for token, id_ in vocabulary.items() if token not in base_vocabulary}
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    same_ids = all(vocabulary.get(token) == id_ for token, id_ in base_vocabulary.items())
    return same_ids and added.keys() <= special and all(id_ > max(base_vocabulary.values()) for id_ in added.values())


def add_embeddings(model: PreTrainedModel, vocab_size: int, seed: int) -> None:
    """Resize a model's token embeddings and its masked-LM head in place.

    The rows of new tokens are initialized at random, in the same way as the model initializes its embeddings.

    Args:
        model: the model.
        vocab_size: the new number of token embeddings.
        seed: the seed of the random numbers.
    """
    with seeded(seed), quiet_transformers():
        model.resize_token_embeddings(vocab_size, mean_resizing=False)


def set_dropout(config: PretrainedConfig, rate: float) -> None:
    """Set every dropout rate of a base model in its configuration.

    Architectures name these rates differently. So all numbers with "drop" in their names are set, except the rates of
    heads and the rate at which whole layers are dropped.

    Args:
        config: the configuration, which is changed.
        rate: the dropout rate, from 0 to below 1.

    Raises:
        RecipeError: the rate is above 0, and the configuration has no dropout rate.
    """
    names = [name for name, value in vars(config).items() if "drop" in name and type(value) in (int, float)]
    inside = [name for name in names if not any(other in name for other in OTHER_DROPOUTS)]
    if rate and not inside:
        raise RecipeError(f"model.dropout: model type {config.model_type!r} has no dropout: leave it out")
    for name in inside:
        setattr(config, name, rate)


def set_attention_dropout(config: PretrainedConfig, rate: float) -> None:
    """Set the dropout rate of attention weights in a model's configuration.

    Args:
        config: the configuration, which is changed.
        rate: the dropout rate, from 0 to below 1.

    Raises:
        RecipeError: the configuration has no dropout rate of its own for attention weights.
    """
    names = [name for name in ATTENTION_DROPOUTS if hasattr(config, name)]
    if not names:
        kind = f"model type {config.model_type!r}"
        raise RecipeError(f"model.attention_dropout: {kind} has no separate attention dropout: leave it out")
    for name in names:
        setattr(config, name, rate)


def set_dropouts(config: PretrainedConfig, recipe: ModelConfig) -> None:
    """Change the dropout rates in a model's configuration to those that the recipe's section `model` sets.

    A rate that the recipe leaves at null is not changed.

    Raises:
        RecipeError: the recipe sets a rate that the configuration does not have.
    """
    if recipe.dropout is not None:
        set_dropout(config, recipe.dropout)
    if recipe.attention_dropout is not None:
        set_attention_dropout(config, recipe.attention_dropout)


def _tanh_head(dim: int, seed: int) -> nn.Module:
    """Return a linear layer from `dim` to `dim` dimensions followed by tanh, with torch's random initialization."""
    from sentence_transformers.sentence_transformer.modules import Dense

    with seeded(seed):
        dense: nn.Module = Dense(dim, dim)
        return dense


def _pretrained(recipe: ModelConfig, folder: Path, tokenizer: Any, seed: int) -> tuple[PreTrainedModel, list[str]]:
    """Return (the pretrained model in a folder, the names of the weights that the folder lacks).

    Missing weights, such as a masked-LM head's, are random. The model has an embedding for each id of `tokenizer`.

    Args:
        recipe: the recipe's section `model`.
        folder: the folder of the model.
        tokenizer: the tokenizer of the shards.
        seed: the seed of the random weights.
    """
    models_tokenizer = _checked_tokenizer(folder, tokenizer)
    options: dict[str, Any] = {"attn_implementation": PACKED_ATTENTION, "variant": variant(folder)}
    if (recipe.dropout, recipe.attention_dropout) != (None, None):
        options["config"] = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        set_dropouts(options["config"], recipe)
    with seeded(seed):  # a masked-LM head that the folder lacks is drawn
        model, new_weights = load_model(folder, **options)
    rows = model.get_input_embeddings().num_embeddings
    check_tokenizer(folder, models_tokenizer.get_vocab(), rows)
    _check_new_tokens(folder, num_ids(tokenizer) - rows, recipe.train)
    if model.config.vocab_size < num_ids(tokenizer):
        add_embeddings(model, num_ids(tokenizer), seed)
    return model, new_weights


def _checked_tokenizer(folder: Path, tokenizer: Any, key: str = "model.path") -> Any:
    """Return the tokenizer of a model's folder, after comparing it with the tokenizer of the shards.

    The shards' tokenizer may have further special tokens; all other tokens must be the same, with the same ids.

    Args:
        folder: the folder of the model.
        tokenizer: the tokenizer of the shards.
        key: the recipe key that names the folder, for error messages.

    Raises:
        RecipeError: the folder holds no model, or the two tokenizers do not fit together.
    """
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        raise RecipeError(f"{key} {folder}: no config.json here; give a local folder with a model")
    models_tokenizer = load_tokenizer(folder)
    if not extends(tokenizer, models_tokenizer):
        raise RecipeError(other_tokenizer(folder, key))
    return models_tokenizer


def _check_new_tokens(folder: Path, number: int, train: str) -> None:
    """Raise RecipeError if tokens without a pretrained embedding would get a random one that is frozen.

    Args:
        folder: the folder of the pretrained model.
        number: the number of tokens without a pretrained embedding; 0 or negative if there are none.
        train: the value of `model.train`, which says which weights are trained; the others are frozen.
    """
    if number > 0 and train not in ("all", "embeddings"):
        raise RecipeError(
            f"model.train {train} freezes the token embeddings, and the shards' tokenizer has tokens for which "
            f"model.path {folder} has none: train all or embeddings"
        )


def _from_table(source: ModelSource, recipe: ModelConfig, tokenizer: Any, seed: int) -> PreTrainedModel:
    """Return a model whose token embeddings are taken from a folder, and whose other weights are random.

    Tokens for which the folder has no embedding keep a random one. If the new model is a transformer, the folder's
    embeddings are scaled to the standard deviation of its random embeddings, because usual learning rates assume this
    scale.

    Args:
        source: the content of the folder `model.path`, a static model or a transformer.
        recipe: the recipe's section `model`.
        tokenizer: the tokenizer of the shards.
        seed: the seed of the random weights.
    """
    models_tokenizer, table = _checked_tokenizer(source.weights, tokenizer), source.table
    if table is None:
        table = load_model(source.weights)[0].get_input_embeddings().weight.detach()
    rows, dim = table.shape
    check_tokenizer(source.weights, models_tokenizer.get_vocab(), rows)
    _check_new_tokens(source.weights, num_ids(tokenizer) - rows, recipe.train)
    options = {"model_type": STATIC, **recipe.config}
    width = AutoConfig.for_model(options["model_type"]).attribute_map.get("hidden_size", "hidden_size")
    options.setdefault("vocab_size", max(rows, num_ids(tokenizer)))
    if "hidden_size" not in options:
        options.setdefault(width, dim)
    model = _random_model(options, tokenizer, seed, recipe)
    fresh = model.get_input_embeddings().weight.data
    if fresh.shape[1] != dim:
        key = "embedding_size" if hasattr(model.config, "embedding_size") else width
        raise RecipeError(
            f"model.config: has token embeddings of {fresh.shape[1]} dimensions, those of model.path have {dim}: set "
            f"model.config.{key}={dim}, or model.config=null to train the model of model.path itself"
        )
    if len(fresh) < rows:
        raise RecipeError(
            f"model.config.vocab_size {len(fresh)}: model.path has {rows:,} token embeddings: leave vocab_size out"
        )
    fresh[:rows] = table if model.config.model_type == STATIC else table * (fresh.std() / table.std())
    return model


def _random_model(stated: Mapping[str, Any], tokenizer: Any, seed: int, recipe: ModelConfig) -> PreTrainedModel:
    """Return a model with random weights.

    Args:
        stated: the options of `model.config`; other options have their defaults, or are taken from the tokenizer.
        tokenizer: the tokenizer of the shards.
        seed: the seed of the random weights.
        recipe: the recipe's section `model`, for its dropout rates.
    """
    defaults = AutoConfig.for_model(stated["model_type"])
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep")}
    options = {key: value for key, value in ids.items() if hasattr(defaults, key)}
    options |= {"vocab_size": num_ids(tokenizer), "pad_token_id": tokenizer.pad_token_id or 0}
    if unknown := [key for key in stated if not hasattr(defaults, key)]:
        near = nearest_key(unknown[0], list(vars(defaults)))
        raise RecipeError(
            f"model.config: {stated['model_type']} has no option {unknown[0]!r}" + (f"; {near}" if near else "")
        )
    config = AutoConfig.for_model(**{**options, **stated})
    set_dropouts(config, recipe)
    with seeded(seed):
        model: PreTrainedModel = model_class(config).from_config(config, attn_implementation=PACKED_ATTENTION)
    return model


def _static_model(recipe: Recipe, tokenizer: Any, datasets: Iterable[Dataset]) -> PreTrainedModel:
    """Return a static model with the initial vectors that `model.init` describes: `idf` or `distill`.

    Args:
        recipe: the recipe of the run.
        tokenizer: the tokenizer of the shards.
        datasets: the text datasets in which tokens are counted. If there are none, the frequencies of tokens are
            estimated from their ids.
    """
    options, known = dict(recipe.model.config), None
    if recipe.model.init == DISTILL:
        teacher, rows = _teacher(Path(recipe.model.distill), tokenizer)
        size, dims = split_dimensions(
            options.get("hidden_size"), recipe.model.random_dims, int(teacher.get_embedding_dimension())
        )
        options["hidden_size"] = size
        known = distilled(teacher, special_tokens(tokenizer), min(rows, num_ids(tokenizer)), dims)
    model, special = _random_model(options, tokenizer, recipe.training.seed, recipe.model), tokenizer.all_special_ids
    if counted := list(datasets):
        weights = inverse_frequencies(counted, model.config.vocab_size, special, ("tokens", "positive"))
    else:
        weights = rank_weights(tokenizer.get_vocab(), num_ids(tokenizer))
    set_initial_vectors(model, weights, known)
    return model


def _teacher(folder: Path, tokenizer: Any) -> tuple[Any, int]:
    """Load the model of `model.distill` with sentence-transformers; return it and the number of its token embeddings.

    Args:
        folder: the folder of the model.
        tokenizer: the tokenizer of the shards.

    Raises:
        RecipeError: the model cannot be loaded or has no token embeddings, or its tokenizer has other ids than the
            shards' tokenizer.
    """
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer

    from clearspan.common.encoder.library import load_with_library

    try:
        listed = read_modules(folder)
        _checked_tokenizer(listed[0].folder if listed else folder, tokenizer, "model.distill")
        model = load_with_library(folder).modules
    except EncoderError as error:
        raise RecipeError(str(error)) from None
    model.truncate_dim, first = None, model[0]
    if not isinstance(first, StaticEmbedding | Transformer):
        raise RecipeError(
            f"model.distill {folder}: a {type(first).__name__} has no vectors of tokens: take another model"
        )
    table = first if isinstance(first, StaticEmbedding) else first.model.get_input_embeddings()
    return model, int(table.num_embeddings)


def build_encoder(recipe: Recipe, tokenizer: Any, datasets: Iterable[Dataset] = ()) -> TrainableEncoder:
    """Return the recipe's encoder: pretrained weights from a local folder, or random ones seeded by `training.seed`.

    If the shards' tokenizer has more special tokens than the pretrained model, such as [DEL], these get random
    embeddings.

    Args:
        recipe: the recipe of the run.
        tokenizer: the tokenizer of the shards.
        datasets: the text datasets in which tokens are counted, for two options. The pooling `weighted` needs the
            counts if the model's folder has no token weights. `model.init` uses the counts for the lengths of initial
            vectors; if there are no datasets, it estimates the tokens' frequencies from the order of their ids.

    Raises:
        RecipeError: the folder or configuration gives no encoder, or its tokenizer does not fit the shards.
        ShardError: a shard in which tokens are counted is damaged.
    """
    try:
        return _encoder(recipe, tokenizer, datasets)
    except (RecipeError, ShardError):
        raise
    except Exception as error:  # transformers and torch raise any type for a user's values
        kind = "" if isinstance(error, EncoderError) else f"{type(error).__name__}: "
        raise RecipeError(f"model: {kind}{one_line(error, MAX_SAID)}") from None


def _encoder(recipe: Recipe, tokenizer: Any, datasets: Iterable[Dataset]) -> TrainableEncoder:
    path, stated = recipe.model.path, recipe.model.config
    source = read_source(Path(path)) if path else ModelSource()
    if stated:
        source = ModelSource(source.weights, source.table)  # only its token embeddings
    model, new_weights = _model(recipe, source, tokenizer, datasets)
    if model.config.vocab_size < num_ids(tokenizer):
        sizes = f"{model.config.vocab_size:,} embeddings for a tokenizer of {num_ids(tokenizer):,} ids"
        raise RecipeError(f"model: {sizes}: there must be at least as many embeddings as ids")
    layers = len(source.head)
    if recipe.model.head and not source.head:
        source.head = [_tanh_head(int(model.config.hidden_size), recipe.training.seed)]
    pooling, weights = recipe.model.pooling or source.pooling or "mean", None
    if source.token_weights is not None:
        weights = resized(source.token_weights, model.config.vocab_size)
    elif pooling == "weighted":
        weights = inverse_frequencies(datasets, model.config.vocab_size, tokenizer.all_special_ids)
    encoder = TrainableEncoder(model, pooling, new_weights, source.head, source.inference, weights)
    if recipe.training.activation_checkpointing:
        encoder.checkpoint_activations()
    if path and stated:
        encoder.notes.append(f"model.path {path}: gives its token embeddings; model.config draws all else at random")
    if path and not stated and (source.pooling or pooling) in TRAINED:
        encoder.given = Given(source.pooling or pooling, layers, not new_weights)
    if source.pooling and source.pooling != pooling:
        encoder.notes.append(f"model.path {path}: has {source.pooling} pooling, this run uses {pooling}")
    return encoder


def _model(
    recipe: Recipe, source: ModelSource, tokenizer: Any, datasets: Iterable[Dataset]
) -> tuple[PreTrainedModel, list[str]]:
    """Return (the recipe's model without pooling, the names of the weights that a pretrained model's folder lacks).

    Args:
        recipe: the recipe of the run.
        source: the content of the folder `model.path`; empty if the recipe names no folder.
        tokenizer: the tokenizer of the shards.
        datasets: the text datasets in which `model.init` counts tokens.
    """
    stated, seed = recipe.model.config, recipe.training.seed
    if recipe.model.init != "random":
        return _static_model(recipe, tokenizer, datasets), []
    if not recipe.model.path:
        return _random_model(stated, tokenizer, seed, recipe.model), []
    if stated or source.table is not None:
        return _from_table(source, recipe.model, tokenizer, seed), []
    return _pretrained(recipe.model, source.weights, tokenizer, seed)
