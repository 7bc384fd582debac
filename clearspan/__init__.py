"""Clearspan learns sentence embeddings from raw data: corpus -> shards -> model -> scores.

    make_tokenizer   learn a tokenizer from a corpus          load_recipe    a training configuration, checked
    make_dataset     corpus to verified shards                train_model    recipe to a Run: model folder and metrics
    Dataset          the examples of a dataset, streamed      export_model   another checkpoint of a Run
    verify           full check of a dataset                  load_model     model folder to an Encoder: embed texts
    mine_negatives   hard negatives for a dataset of pairs    evaluate       score a model by the published protocols
    search           nearest vectors of a dataset             compare        which differences of scores exceed noise
    open_collection  vectors and BM25, for many searches      adapt          a model for texts of your own: Adapted
    webdataset_pipeline   a dataset as a `webdataset` pipeline, for a training loop of your own

`__init__.pyi` says where each name is defined. A name is imported on first use, so that `import clearspan` takes
milliseconds. Everything else is reached by its module: `clearspan.shards`, `clearspan.pipelines`, `clearspan.train`,
`clearspan.eval`, `clearspan.adapt`.
"""

import sys

MODULE = sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""
"""What `python -m MODULE` is looking for while it imports this package."""
if MODULE.split(".")[0] == __name__ and not sys.flags.safe_path:
    del sys.path[0]  # the working folder, where the user's data lies (`common.working_folder`)

import importlib  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_PLACES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.MULTILINE)}
"""Public name -> the module that defines it."""
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "torch" not in sys.modules:  # as in a command (`cli.run`): threads that wait must not spin on others' cores
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    return globals().setdefault(name, value)  # `adapt` is the package of that name, which can be called


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
