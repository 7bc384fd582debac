"""Make a static encoder without training, of a local encoder or of random vectors: `clearspan distill`.

    each token of the tokenizer -> the encoder -> principal components, unit length ──┐
                                                  random dimensions beside them ──────┴─> x weight -> DIR

A text is then embedded as the mean of its tokens' vectors: far faster than by the encoder, and without regard to word
order. Weights are the inverse document frequencies of the tokens in your shards (--shards), without them
those that Zipf's law gives to the ids. Without an encoder (--tokenizer) all dimensions are random. The same start,
followed by training on your texts, is `model.init=distill` (`clearspan train --recipe static-pairs`), and
`clearspan adapt --model static:DIR`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from clearspan.common import terminal
from clearspan.train.engine.signals import ending_at_once

EXAMPLE = """examples:
  clearspan distill --model all-MiniLM-L6-v2 --output static-minilm
  clearspan distill --model all-MiniLM-L6-v2 --shards data/documents --random-dims 640 --output static-minilm
"""


def parser(prog: str = "python -m train.distill") -> terminal.Parser:
    root = terminal.Parser(prog=prog, description=__doc__, epilog=EXAMPLE)
    add = root.add_argument
    source = root.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, metavar="DIR", help="local folder of an encoder")
    source.add_argument(
        "--tokenizer", metavar="PATH", help="instead, a tokenizer.json, or the folder with it: random vectors"
    )
    add("--output", required=True, type=Path, metavar="DIR", help="the folder to write: new, or an unchanged export")
    add("--shards", nargs="+", default=[], metavar="DIR", help="datasets of text to count tokens in, by this tokenizer")
    add("--dims", type=int, metavar="N", help="dimensions in all (default: the encoder's, and --random-dims more)")
    random = "of them random, which keep apart words that the encoder embeds alike (default %(default)s)"
    add("--random-dims", type=int, default=0, metavar="N", help=random)
    add("--version", action="version", version=terminal.version())
    return root


def main(argv: Sequence[str] | None = None, prog: str = "python -m train.distill") -> int:
    with ending_at_once("distill", "run it again"):
        options = parser(prog).parse_args(argv)
        from clearspan.train.engine.ranks import name_accelerator

        name_accelerator()
        from clearspan.common.model_folder import EncoderError
        from clearspan.shards import ShardError
        from clearspan.train.engine.checkpoint import CheckpointError
        from clearspan.train.options import RecipeError

        expected = (CheckpointError, EncoderError, RecipeError, ShardError, ValueError, OSError)
        return terminal.run("distill", lambda: work(options), expected)


def checked(options: argparse.Namespace) -> Path:
    """Return the folder of the encoder or of the tokenizer. Raise ValueError for options that cannot work."""
    option, path = ("--model", options.model) if options.model else ("--tokenizer", Path(options.tokenizer))
    folder = path.parent if option == "--tokenizer" and path.name == "tokenizer.json" and path.is_file() else path
    if not folder.is_dir():
        raise ValueError(f"{option} {path}: no such folder" + (" or tokenizer.json" if option == "--tokenizer" else ""))
    if options.output.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"--output {options.output}: is in {option}, which is read: name a folder outside of it")
    if (options.dims is not None and options.dims < 1) or options.random_dims < 0:
        raise ValueError("--dims must be at least 1, and --random-dims at least 0")
    if options.random_dims and not options.model:
        raise ValueError("--random-dims has no effect without --model: all dimensions are random: set --dims")
    return folder


def work(options: argparse.Namespace) -> int:
    from clearspan.shards import Dataset
    from clearspan.train.build_encoder import build_encoder
    from clearspan.train.card import Origin, facts
    from clearspan.train.config.recipe import to_yaml
    from clearspan.train.export import check_replaceable, write_folder
    from clearspan.train.model.tokenizer import load_tokenizer
    from clearspan.train.options import STATIC, ModelConfig, Recipe, check_start
    from clearspan.train.run_folder import other_tokenizer

    folder = checked(options)
    check_replaceable(options.output)
    config = {"model_type": STATIC} | ({} if options.dims is None else {"hidden_size": options.dims})
    model = ModelConfig(config=config, init="idf", random_dims=options.random_dims)
    if options.model:
        model.init, model.distill = "distill", str(options.model)
    recipe = Recipe(output=str(options.output), model=model)
    check_start(model)
    tokenizer = load_tokenizer(folder)
    datasets = {path: Dataset(path) for path in options.shards}
    for path, dataset in datasets.items():
        made_with = load_tokenizer(dataset.local_tokenizer()) if dataset.manifest.tokenizer else None
        if made_with is None or made_with.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"--shards {path}: {other_tokenizer(folder, '--model' if options.model else '--tokenizer')}"
            )
    encoder = build_encoder(recipe, tokenizer, datasets.values())
    write_folder(encoder, tokenizer, options.output, to_yaml(recipe), Origin(data=facts(datasets)))
    counted = f"weighted by their frequency in {', '.join(options.shards)}" if datasets else "weighted by Zipf's law"
    shape = f"{encoder.config.vocab_size:,} tokens x {encoder.dim:,} dimensions"
    terminal.say(f"{options.output}: a static encoder of {shape}, {counted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
