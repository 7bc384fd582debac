"""Clearspan learns sentence embeddings from raw data: corpus -> shards -> model -> scores.

    make_tokenizer   learn a tokenizer from a corpus          load_recipe    a training configuration, checked
    make_dataset     corpus to verified shards                train_model    recipe to a Run: model folder and metrics
    Dataset          the examples of a dataset, streamed      export_model   another checkpoint of a Run
    verify           full check of a dataset                  load_model     model folder to an Encoder: embed texts
    mine_negatives   hard negatives for a dataset of pairs    evaluate       score a model by the published protocols
    search           nearest vectors of a dataset             compare        which differences of scores exceed noise
    open_collection  vectors and BM25, for many searches      adapt          a model for texts of your own: Adapted
    webdataset_pipeline   a dataset as a `webdataset` pipeline, for a training loop of your own

Each name is imported on first use, so that `import clearspan` takes milliseconds. Everything else is reached by its
module: `clearspan.shards`, `clearspan.pipelines`, `clearspan.train`, `clearspan.eval`, `clearspan.adapt`.
"""

import sys

MODULE = sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""
"""What `python -m MODULE` is looking for while it imports this package."""
if MODULE.split(".")[0] == __name__ and not sys.flags.safe_path:
    del sys.path[0]  # the working folder, where the user's data lies (`common.working_folder`)

import importlib  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from clearspan.adapt.api import Adapted, adapt
    from clearspan.common.encoder.sentence_encoder import Encoder
    from clearspan.eval.api import compare, evaluate, load_model
    from clearspan.pipelines.api import make_dataset, make_tokenizer, mine_negatives, open_collection, search
    from clearspan.shards import Dataset, verify
    from clearspan.shards.as_webdataset import webdataset_pipeline
    from clearspan.train.api import Run, export_model, load_recipe, train_model

__all__ = [
    "Adapted",
    "Dataset",
    "Encoder",
    "Run",
    "adapt",
    "compare",
    "evaluate",
    "export_model",
    "load_model",
    "load_recipe",
    "make_dataset",
    "make_tokenizer",
    "mine_negatives",
    "open_collection",
    "search",
    "train_model",
    "verify",
    "webdataset_pipeline",
]

_NAMES = {
    "adapt.api": ["Adapted", "adapt"],
    "common.encoder.sentence_encoder": ["Encoder"],
    "eval.api": ["compare", "evaluate", "load_model"],
    "pipelines.api": ["make_dataset", "make_tokenizer", "mine_negatives", "open_collection", "search"],
    "shards": ["Dataset", "verify"],
    "shards.as_webdataset": ["webdataset_pipeline"],
    "train.api": ["Run", "export_model", "load_recipe", "train_model"],
}
_PLACES = {name: f"clearspan.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    return globals().setdefault(name, value)  # `adapt` is the package of that name, which can be called


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
