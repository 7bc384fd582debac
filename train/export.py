"""From a run to a model folder that transformers, sentence-transformers and `python -m eval` load.

    python -m train.export RUN_DIR OUT_DIR [--checkpoint best|last]

Weights are safetensors; what was for training only (masked-LM head, objectives) is left out.
"""

import argparse
import copy
import dataclasses
import inspect
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoConfig, AutoModelForMaskedLM

from eval.folder import EncoderError, quiet_transformers, read_json
from train.attention import PACKED_ATTENTION
from train.checkpoint import CheckpointError, Checkpoints
from train.encoder import Encoder
from train.folder import Inference
from train.learner import load_tokenizer

EXAMPLE = """example:
  python -m train.export runs/declutr-small exported/declutr-small
"""
INFERENCE = "inference.json"
CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
- sentence-similarity
---

# {name}

A sentence encoder trained with Clearspan: {pooling} pooling over {dim} dimensions, at most {max_tokens} tokens.

```python
from sentence_transformers import SentenceTransformer

embeddings = SentenceTransformer("{name}").encode(["A sentence.", "Another one."])
```

The recipe of the run:

```yaml
{recipe}```
"""


def save_model(encoder: Encoder, tokenizer: Any, folder: Path, recipe: str) -> None:
    """Writes an encoder as a model folder. `recipe` is the run's YAML, for the model card."""
    # Only now: it takes seconds to import, and every run imports this file as it starts.
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    what = encoder.inference
    with quiet_transformers(), tempfile.TemporaryDirectory() as stage:
        encoder.base.save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        transformer = _transformer(encoder, stage)
        after = [Pooling(encoder.dim, encoder.pooling), *copy.deepcopy(list(encoder.head))]
        model = SentenceTransformer(
            modules=[transformer, *after, *([Normalize()] if what.normalize else [])],
            device="cpu",
            prompts=what.prompts,
            default_prompt_name=what.default_prompt_name,
            similarity_fn_name=what.similarity_fn_name,
            truncate_dim=what.truncate_dim,
        )
        model.save_pretrained(str(folder), create_model_card=False)
    card = CARD.format(
        name=folder.resolve().name,
        pooling=encoder.pooling,
        dim=encoder.dim,
        max_tokens=encoder.max_tokens,
        recipe=recipe,
    )
    (folder / "README.md").write_text(card)


def _transformer(encoder: Encoder, stage: str) -> Any:
    """What was saved there, as sentence-transformers' first module; a pooler that is not there is not asked for."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    options = {"add_pooling_layer": False}
    if "add_pooling_layer" not in inspect.signature(type(encoder.base)).parameters:
        options = {}
    transformer = Transformer(
        stage,
        model_kwargs=dict(options),
        processor_kwargs={"model_max_length": encoder.max_tokens},
        do_lower_case=encoder.inference.lower_case,
    )
    if options:  # the library reads them from its settings, but does not write them there
        transformer.config_keys = [*transformer.config_keys, "model_args"]
        transformer.model_args = options
    return transformer


def save_skeleton(encoder: Encoder, tokenizer: Any, folder: Path) -> None:
    """Writes what an export needs besides the weights: configuration, tokenizer, head, and what else inference does."""
    encoder.base.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / INFERENCE).write_text(
        json.dumps({"pooling": encoder.pooling, **dataclasses.asdict(encoder.inference)}, indent=2) + "\n"
    )
    head: list[Any] = list(encoder.head)
    for number, dense in enumerate(head):
        (folder / f"head-{number}").mkdir(exist_ok=True)
        dense.save(str(folder / f"head-{number}"))


def load_skeleton(folder: Path) -> Encoder:
    """The encoder that `save_skeleton` described, its weights not yet those of a checkpoint."""
    from sentence_transformers.sentence_transformer.modules import Dense

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
    what = read_json(folder / INFERENCE)
    head = [Dense.load(str(path), local_files_only=True) for path in sorted(folder.glob("head-*"))]
    return Encoder(model, what.pop("pooling"), head=head, inference=Inference(**what))


def export(run: Path, out: Path, which: str | None = None) -> str:
    """Exports a run's checkpoint, the best where there is one, else the last; returns which.

    Raises:
        CheckpointError, EncoderError: the folder is not that of a run, or its checkpoint cannot be read.
    """
    if out.exists() and any(out.iterdir()) and not (out / "modules.json").is_file():
        raise CheckpointError(f"{out}: holds something other than an exported model; name another folder")
    checkpoints, skeleton = Checkpoints(run), run / "encoder"
    if not (run / "recipe.yaml").is_file() or not (skeleton / INFERENCE).is_file():
        raise CheckpointError(f"{run}: not the folder of a run (no recipe.yaml and encoder/)")
    which = which or ("best" if checkpoints.tag("best") else "last")
    states = checkpoints.model_states(which)
    recipe = (run / "recipe.yaml").read_text()
    encoder = load_skeleton(skeleton)
    encoder.drop_token_head()
    wanted = set(encoder.state_dict())
    found = {}
    for key, tensor in states.items():
        name = key.removeprefix("encoder.")
        for candidate in (name, name.replace(f"model.{encoder.base.base_model_prefix}.", "model.", 1)):
            if candidate in wanted:
                found[candidate] = tensor
    if missing := sorted(wanted - set(found)):
        raise CheckpointError(f"{run}: the checkpoint lacks {missing[0]} and {len(missing) - 1} other weights")
    encoder.load_state_dict(found)
    save_model(encoder, load_tokenizer(skeleton), out, recipe)
    return which


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m train.export",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN_DIR", type=Path, help="the run's folder")
    parser.add_argument("out", metavar="OUT_DIR", type=Path, help="the folder to write")
    parser.add_argument("--checkpoint", choices=("best", "last"), help="default: best where there is one, else last")
    options = parser.parse_args(argv)
    try:
        which = export(options.run, options.out, options.checkpoint)
    except (CheckpointError, EncoderError, OSError, yaml.YAMLError) as error:
        print(f"train.export: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    print(f"{options.out}: the {which} checkpoint of {options.run}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
