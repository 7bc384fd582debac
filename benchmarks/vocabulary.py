"""A byte-level BPE tokenizer learned from one's own text, in RoBERTa's shape: for a domain or language without one.

python -m benchmarks.vocabulary corpus/*.jsonl --size 32000 --output my-tokenizer
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def learn_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> None:
    """Writes tokenizer.json and its configuration; a text becomes `<s> text </s>`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    named = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", **named)
    whole.save_pretrained(folder)


def texts(paths: list[Path], field: str) -> Iterator[str]:
    """The texts of jsonl files, in order."""
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line)[field] for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.vocabulary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FILE", help="jsonl, uncompressed")
    parser.add_argument("--text-field", default="text", metavar="NAME")
    parser.add_argument("--size", type=int, default=32000, help="ids in all (default 32000)")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    try:
        learn_tokenizer(texts(options.inputs, options.text_field), options.size, options.output)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"vocabulary: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
