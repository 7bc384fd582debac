"""Make a static encoder without training, from a local encoder or from random vectors: `clearspan distill`.

    each token of the tokenizer -> the encoder -> principal components, unit length ──┐
                                                  random dimensions beside them ──────┴─> x weight -> DIR

A static encoder embeds a text as the mean of its tokens' vectors. This is far faster than the encoder, and ignores the
order of the words. The weight of a token is its inverse document frequency in your datasets (--shards); without
--shards, the weights follow from the token ids by Zipf's law. Without an encoder (--tokenizer), all dimensions are
random. `clearspan train --recipe static-pairs` (model.init=distill) and `clearspan adapt --model static:DIR` start from
such an encoder and train it on your texts.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge

from clearspan.cli.command import Command, Printed, Result
from clearspan.common.encoder.prompts import Prompts
from clearspan.common.hub import model_folder, tokenizer_folder
from clearspan.common.model_forms import model_value_error
from clearspan.common.options import Flag
from clearspan.common.terminal import as_printed

EXAMPLE = """
clearspan distill --model all-MiniLM-L6-v2 --output static-minilm
clearspan distill --model all-MiniLM-L6-v2 --shards data/documents --random-dims 640 --output static-minilm
"""


@dataclass(frozen=True, kw_only=True)
class Distill(Command):
    """The command `distill`: makes a static encoder without training."""

    error_prefix: ClassVar[str] = "distill"
    example: ClassVar[str] = EXAMPLE
    remedy: ClassVar[str] = "run it again"

    model: Annotated[Path | None, Flag("DIR", resolve=model_folder)] = None
    """Folder of the encoder, or hf:ORG/NAME[@REVISION], which is fetched from the hub."""
    tokenizer: Annotated[Path | None, Flag("PATH", resolve=tokenizer_folder)] = None
    """Tokenizer.json, the folder that holds it or hf:ORG/NAME[@REVISION], instead of --model: all vectors are random.
    """
    output: Annotated[Path, Flag("DIR", output=True)]
    """Folder to write: a new one, or an export that has not been changed."""
    shards: Annotated[tuple[str, ...], Flag("DIR", many=True, path=True)] = ()
    """Datasets of text in which to count the tokens, for their weights."""
    dims: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Number of dimensions in total (default: the encoder's + --random-dims)."""
    random_dims: Annotated[int, Flag("N"), Ge(0)] = 0
    """Number of random dimensions to add; they keep apart words that the encoder embeds alike."""

    def validate(self) -> None:
        super().validate()
        if (self.model is None) == (self.tokenizer is None):
            raise ValueError("give either `model` or `tokenizer`")
        if self.random_dims and not self.model:
            raise ValueError("`random_dims` has no effect without `model`, since all dimensions are random: set `dims`")
        if self.model and (problem := model_value_error(str(self.model))):
            raise ValueError(f"`model` {str(self.model)!r}: {problem}")
        if not self.folder.is_dir():
            missing = "no such folder" + (" or tokenizer.json" if self.tokenizer else "")
            raise ValueError(f"{self.source} {self.model or self.tokenizer}: {missing}")
        if self.output.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(
                f"`output` {self.output}: is inside {self.source}, which is read: name a folder outside of it"
            )

    @property
    def source(self) -> str:
        """The option that the user gave: `model` or `tokenizer`, in backticks as in messages."""
        return "`model`" if self.model else "`tokenizer`"

    @property
    def folder(self) -> Path:
        """The folder of the encoder (`model`), or the folder that holds the tokenizer (`tokenizer`)."""
        path = self.model or self.tokenizer
        assert path is not None
        return path.parent if self.tokenizer and path.name == "tokenizer.json" and path.is_file() else path

    def run(self) -> Result:
        """Write the static encoder to `output`; return a line about it for the user."""
        from clearspan.train.engine.ranks import name_accelerator

        name_accelerator()
        from clearspan.shards import Dataset
        from clearspan.train.card import Origin, dataset_facts
        from clearspan.train.config.options import STATIC, ModelConfig, Recipe, check_model
        from clearspan.train.export import check_replaceable, write_folder
        from clearspan.train.model.tokenizer import load_tokenizer
        from clearspan.train.recipe import to_yaml
        from clearspan.train.run_folder import other_tokenizer
        from clearspan.train.start.build_encoder import build_encoder

        folder = self.folder
        check_replaceable(self.output)
        config = {"model_type": STATIC} | ({} if self.dims is None else {"hidden_size": self.dims})
        model = ModelConfig(config=config, init="idf", random_dims=self.random_dims)
        if self.model:
            model.init, model.distill = "distill", str(self.model)
        recipe = Recipe(output=str(self.output), model=model)
        check_model(model)
        tokenizer = load_tokenizer(folder)
        datasets = {path: Dataset(path) for path in self.shards}
        for path, dataset in datasets.items():
            made_with = load_tokenizer(dataset.local_tokenizer()) if dataset.manifest.tokenizer else None
            if made_with is None or made_with.get_vocab() != tokenizer.get_vocab():
                raise ValueError(f"`shards` {path}: {other_tokenizer(folder, self.source)}")
        encoder = build_encoder(recipe, tokenizer, datasets.values())
        write_folder(encoder, tokenizer, self.output, to_yaml(recipe), Origin(data=dataset_facts(datasets)))
        counted = f"weighted by their frequency in {', '.join(self.shards)}" if datasets else "weighted by Zipf's law"
        shape = f"{encoder.config.vocab_size:,} tokens x {encoder.dim:,} dimensions"
        prompted = self.model and any(Prompts.read(self.model).texts.values())
        left_out = "; the prompts of `model` are left out: single tokens have none" if prompted else ""
        return Printed(f"{self.output}: a static encoder of {shape}, {counted}{as_printed(left_out)}")


main = Distill.main


if __name__ == "__main__":
    sys.exit(main())
