"""From a run to a model folder that transformers, sentence-transformers and `python -m eval` load.

    python -m train.export RUN_DIR OUT_DIR [--checkpoint best|last]

Weights are safetensors; what was for training only (masked-LM head, objectives) is left out.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoConfig, AutoModelForMaskedLM

from train.attention import PACKED_ATTENTION
from train.checkpoint import CheckpointError, Checkpoints
from train.encoder import Encoder, EncoderError, quiet_transformers
from train.learner import load_tokenizer

EXAMPLE = """example:
  python -m train.export runs/declutr-small exported/declutr-small
"""
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
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_transformers():
        encoder.base.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": "mean_sqrt_len"}
    pooling = {f"pooling_mode_{key}": mode == encoder.pooling for key, mode in modes.items()}
    files = {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": encoder.dim, **pooling, "include_prompt": True},
        "sentence_bert_config.json": {"max_seq_length": encoder.max_tokens, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    card = CARD.format(
        name=folder.resolve().name,
        pooling=encoder.pooling,
        dim=encoder.dim,
        max_tokens=encoder.max_tokens,
        recipe=recipe,
    )
    (folder / "README.md").write_text(card)


def save_skeleton(encoder: Encoder, tokenizer: Any, folder: Path) -> None:
    """Writes what an export needs besides the weights: configuration and tokenizer."""
    encoder.base.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def export(run: Path, out: Path, which: str | None = None) -> str:
    """Exports a run's checkpoint, the best where there is one, else the last; returns which.

    Raises:
        CheckpointError, EncoderError: the folder is not that of a run, or its checkpoint cannot be read.
    """
    if out.exists() and any(out.iterdir()) and not (out / "modules.json").is_file():
        raise CheckpointError(f"{out}: holds something other than an exported model; name another folder")
    checkpoints, skeleton = Checkpoints(run), run / "encoder"
    if not (run / "recipe.yaml").is_file() or not (skeleton / "config.json").is_file():
        raise CheckpointError(f"{run}: not the folder of a run (no recipe.yaml and encoder/)")
    which = which or ("best" if checkpoints.tag("best") else "last")
    states = checkpoints.model_states(which)
    recipe = (run / "recipe.yaml").read_text()
    config = AutoConfig.from_pretrained(skeleton, local_files_only=True, trust_remote_code=False)
    model = AutoModelForMaskedLM.from_config(config, attn_implementation=PACKED_ATTENTION)
    encoder = Encoder(model, yaml.safe_load(recipe)["model"]["pooling"])
    encoder.drop_token_head()
    wanted = set(encoder.base.state_dict())
    found = {}
    for key, tensor in states.items():
        name = key.removeprefix("encoder.model.")
        for candidate in (name, name.removeprefix(encoder.base.base_model_prefix + ".")):
            if candidate in wanted:
                found[candidate] = tensor
    if missing := sorted(wanted - set(found)):
        raise CheckpointError(f"{run}: the checkpoint lacks {missing[0]} and {len(missing) - 1} other weights")
    encoder.base.load_state_dict(found)
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
