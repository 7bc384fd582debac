"""Inputs of `benchmarks.equality`: a few hundred records of real text in every format, pictures, tones, and recipes.

    docstrings of the standard library -> texts (title, text, group, year) -> one file or folder for each format
    draws of numpy                     -> pictures and tones of three classes
    RECIPES                            -> a recipe for each objective, of an encoder with one layer of 32 numbers

Among the texts are copies, edited copies, and texts of one group, so that each option has something to drop.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import tarfile
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml
import zstandard
from PIL import Image

from benchmarks.docstrings import Module, modules, summary_and_body

NUM_TEXTS, NUM_QUERIES, NUM_MEDIA = 260, 30, 24
MAX_LETTERS = 1500
LABELS = ("entailment", "neutral", "contradiction")
SEPARATOR = "\n\n\n\n"
"""Between the texts of a plain-text file, as `--document-separator` in `benchmarks.equality_cases` says."""

TINY = {
    "model_type": "modernbert",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "layer_types": ["full_attention"],
    "max_position_embeddings": 512,
}
"""The encoder of all recipes but those of static ones: `model.config`."""
SPANS = {"num_anchors": 2, "num_positives": 1, "min_span": 4, "max_span": 24, "placement": "uniform", "min_distance": 8}
VIEWED = {"path": "sentences", "batch_size": 16}
PICTURES = {"image_size": 32, "patch_size": 8}
CLIPS = {"frames": 120, "views": 2, "freq_mask": 48, "time_mask": 24}
RECIPES: dict[str, dict[str, Any]] = {
    "spans": {
        "data": {"text": {"path": "documents", "batch_size": 16, "short_documents": "skip"}},
        "objectives": {"spans": {"temperature": 0.05, "sampler": SPANS}},
    },
    "spans-mlm": {
        "data": {"text": {"path": "documents", "batch_size": 16, "short_documents": "skip"}},
        "objectives": {"spans": {"temperature": 0.05, "sampler": SPANS}, "mlm": {"input": "anchor"}},
    },
    "static-spans": {
        "model": {"config": {"model_type": "static", "hidden_size": 64}, "init": "idf"},
        "data": {"text": {"path": "documents", "batch_size": 16, "short_documents": "shrink"}},
        "objectives": {"spans": {"temperature": 0.05, "sampler": {**SPANS, "positives": "adjacent"}}},
    },
    "static-pairs": {
        "model": {"config": {"model_type": "static", "hidden_size": 64}, "init": "idf"},
        "data": {"text": {"path": "mined", "batch_size": 16}},
        "objectives": {"pairs": {"type": "simcse", "positives": "pairs", "negatives": 2, "mask_equal": True}},
    },
    "simcse": {
        "data": {"text": VIEWED},
        "objectives": {"simcse": {"temperature": 0.05, "max_tokens": 32, "head": "tanh"}},
    },
    "simcse-supervised": {
        "data": {"text": {"path": "nli", "batch_size": 16}},
        "objectives": {"simcse": {"temperature": 0.05, "hard_negative_weight": 0.5, "dims": [8, 16]}},
    },
    "clear-stored": {
        "data": {"text": VIEWED},
        "objectives": {
            "clear": {"augment": "del-span", "views": "stored", "head_dim": 16},
            "mlm": {"input": "sentence"},
        },
    },
    "clear-fly": {
        "data": {"text": VIEWED},
        "objectives": {"clear": {"augment": "del-word+reorder", "views": "fly", "head_dim": 16, "memory": 32}},
    },
    "images": {
        "data": {"text": VIEWED, "images": {"path": "images", "batch_size": 8, "modality": PICTURES}},
        "objectives": {"simcse": {"data": "text"}, "images": {"type": "patches", "data": "images", "loss": "simclr"}},
    },
    "audio": {
        "data": {"text": VIEWED, "audio": {"path": "audio", "batch_size": 8, "modality": CLIPS}},
        "objectives": {"simcse": {"data": "text"}, "audio": {"type": "patches", "data": "audio", "loss": "khosla"}},
    },
    "alternate": {
        "data": {
            "text": VIEWED,
            "images": {"path": "images", "batch_size": 8, "modality": PICTURES},
        },
        "objectives": {
            "simcse": {"data": "text", "max_tokens": 32},
            "images": {"type": "patches", "data": "images", "loss": "paper", "weight": 0.05},
        },
        "optimization": "alternate",
        "training": {"primary": "text"},
    },
}
"""Name of a recipe -> what it changes of `_recipe`. Relative paths are outputs of the cases of datasets."""


PROGRAMS = {
    "served.py": """import json, subprocess, sys, time, urllib.error, urllib.request

REQUESTS = ["/api/collection", "/api/search?q=open+a+file", "/api/search?q=parse+a+date&weight=0.3&top=30",
    "/api/search?q=a+file&weight=0", "/api/search?q=a+file&weight=1&where=year+%3E+2000", "/api/search?q=",
    "/api/search", "/api/search?q=a&weight=2", "/api/search?q=a&top=0", "/api/search?q=a&where=size+%3E+1",
    "/api/search?q=a&other=1", "/api/search?q=a&q=b", "/api/other", "/", "/style.css", "/page.js"]
port = sys.argv[1]
command = [sys.executable, "-m", "clearspan", "serve", "vectors", "--model", "encoder/model", "--port", port]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL)

def answer(path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return [found.status, json.load(found) if path.startswith("/api") else found.headers["content-type"]]
    except urllib.error.HTTPError as error:
        return [error.code]

try:
    for _ in range(600):
        try:
            answer("/")
            break
        except OSError:
            time.sleep(0.1)
    answers = [[path, *answer(path)] for path in REQUESTS]
    answers.append(answer("/api/search?q=a", Host="example.org"))
    answers.append(answer("/api/search?q=a", Origin="http://example.org"))
    print(json.dumps(answers))
finally:
    server.terminate()
    server.wait(60)
""",
    "own.py": """def is_long(document):
    return len(document.text) >= 200 or (False, "short")
""",
    "recipe_keys.py": """import collections.abc, dataclasses, json, os, pathlib
import clearspan, yaml

folder = pathlib.Path(os.environ["PYTHONPATH"], "train/recipes")

def plain(value):
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, collections.abc.Mapping):
        return {str(name): plain(held) for name, held in sorted(value.items())}
    return [plain(held) for held in value] if isinstance(value, list | tuple) else value

def merged(below, above):
    both = isinstance(below, dict) and isinstance(above, dict)
    return {**below, **{name: merged(below.get(name), held) for name, held in above.items()}} if both else above

def written(name):
    keys = yaml.safe_load((folder / f"{name}.yaml").read_text())
    return merged(written(keys.pop("extends")), keys) if "extends" in keys else keys

def missing(keys, above=""):
    for name, held in keys.items():
        if isinstance(held, dict):
            yield from missing(held, f"{above}{name}.")
        elif held == "???" or f"{above}{name}" == "model.path":
            yield f"{above}{name}"

for path in sorted(folder.glob("*.yaml")):
    given = {key: key.replace(".", "-") for key in missing(written(path.stem))}
    print(json.dumps([path.stem, plain(clearspan.load_recipe(path.stem, given))], default=str, sort_keys=True))
""",
}
"""Modules and programs of the working folder."""


def write_inputs(folder: Path) -> None:
    """Write all inputs into a new folder."""
    documented = modules(("python",))
    rows = _rows(documented)
    _write_texts(folder, rows)
    _write_judged(folder, rows)
    _write_media(folder)
    for name, program in PROGRAMS.items():
        (folder / name).write_text(program)
    (folder / "recipes").mkdir()
    for name, changes in RECIPES.items():
        (folder / f"recipes/{name}.yaml").write_text(yaml.safe_dump(_recipe(changes), sort_keys=False))


def _rows(documented: Sequence[Module]) -> list[dict[str, Any]]:
    """Return texts with a title, a group and a year; every ninth comes again as it is, every tenth with an edit."""
    found: dict[str, dict[str, Any]] = {}
    for module in documented:
        for docstring in module.docstrings[:6]:
            pair = summary_and_body(docstring)
            if pair and pair[0] not in found and len(pair[1]) > 120:
                group, year = module.name.split(".")[1], 1990 + len(pair[1]) % 30
                found[pair[0]] = {"title": pair[0], "text": pair[1][:MAX_LETTERS], "group": group, "year": year}
    rows = [*found.values()][:: max(1, len(found) // NUM_TEXTS)][:NUM_TEXTS]
    copies = [dict(row) for row in rows[::9]]
    edited = [{**row, "text": f"{row['text']} See also this.", "title": f"{row['title']} (2)"} for row in rows[::10]]
    return [{"id": f"d{number}", **row} for number, row in enumerate([*rows, *copies, *edited])]


def _write_texts(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the same texts in each format of `benchmarks.equality_cases`, and rows of NLI and of triplets."""
    triplets = [
        {"anchor": row["title"], "positive": row["text"][:300], "negative": rows[number - 7]["text"][30:280]}
        for number, row in enumerate(rows)
    ]
    lists = [
        {"query": row["title"], "pos": [row["text"][:200]], "neg": [rows[number - 3]["text"][:90]]}
        for number, row in enumerate(rows)
    ]
    labeled = [
        {"premise": row["title"], "hypothesis": row["text"][40 * shift : 40 * shift + 120], "label": label}
        for row in rows
        for shift, label in enumerate(LABELS)
    ]
    for name, of_name in (("texts", rows), ("triplets", triplets), ("labeled", labeled)):
        place = folder / name
        place.mkdir()
        lines = "".join(json.dumps(row) + "\n" for row in of_name)
        _write_packed(place, "rows.jsonl", lines)
        (place / "rows.json").write_text(json.dumps(of_name))
        for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
            written = io.StringIO()
            writer = csv.DictWriter(written, [*of_name[0]], delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
            writer.writerows(of_name)
            _write_packed(place, f"rows.{suffix}", written.getvalue())
        kept = pa.Table.from_pylist(of_name)
        pyarrow.parquet.write_table(kept, place / "rows.parquet", row_group_size=100)
        _write_arrow(place / "arrow", kept)
    (folder / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    texts = [row["text"] for row in rows]
    (folder / "texts/lines.txt").write_text("\n".join(texts))
    (folder / "texts/separated.txt").write_text(SEPARATOR.join(texts))
    (folder / "texts/files").mkdir()
    sections = [f"# {row['title']}\n\n{row['text']}\n\n## {row['group']}\n\n{row['text'][-200:]}\n" for row in rows]
    with tarfile.open(folder / "texts/samples.tar", "w") as archive:
        for number, row in enumerate(rows):
            (folder / f"texts/files/{number:04d}.md").write_text(sections[number])
            _add(archive, f"{number:04d}.txt", row["text"].encode())
    new = [{**row, "id": f"n{number}", "text": f"New: {row['text']}"} for number, row in enumerate(rows[:40])]
    changed = [*rows[20:], *new]
    (folder / "changed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))


def _write_packed(place: Path, name: str, content: str) -> None:
    """Write a file, and the compressed forms of it that `benchmarks.equality_cases` reads."""
    data = content.encode()
    packed = {
        "rows.jsonl": {"gz": gzip.compress(data, mtime=0), "zst": zstandard.ZstdCompressor().compress(data)},
        "rows.csv": {"xz": lzma.compress(data)},
        "rows.tsv": {"bz2": bz2.compress(data)},
    }
    (place / name).write_bytes(data)
    for suffix, compressed in packed[name].items():
        (place / f"{name}.{suffix}").write_bytes(compressed)


def _write_arrow(folder: Path, table: pa.Table) -> None:
    """Write a folder as `datasets` does with `save_to_disk`."""
    folder.mkdir()
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}], "_split": None}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))


def _write_judged(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write queries, texts to exclude, scored pairs, and a retrieval task in BEIR's layout."""
    asked = rows[:: len(rows) // NUM_QUERIES][:NUM_QUERIES]
    (folder / "queries.txt").write_text("\n".join(row["title"] for row in asked))
    with (folder / "questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "text"), *((row["title"], row["text"]) for row in asked)])
    with (folder / "questions-by-id.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "id"), *((row["title"], row["id"]) for row in asked)])
    (folder / "excluded.txt").write_text("\n".join(row["text"][:200] for row in rows[::13]))
    (folder / "classes.txt").write_text("0\n2\n")
    scored = [(row["title"], rows[n - n % 4]["text"][:100], n % 4) for n, row in enumerate(rows)]
    with (folder / "scored.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *scored])
    task = folder / "retrieval/library"
    (task / "qrels").mkdir(parents=True)
    documents = [{"_id": row["id"], "title": "", "text": row["text"]} for row in rows]
    queries = [{"_id": f"q{number}", "text": row["title"]} for number, row in enumerate(asked)]
    judged = [f"q{number}\t{row['id']}\t1" for number, row in enumerate(asked)]
    for name, lines in (("corpus", documents), ("queries", queries)):
        (task / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (task / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged, ""]))


def _write_media(folder: Path) -> None:
    """Write pictures and tones of three classes: in folders, in lists, and in webdatasets."""
    draws = np.random.default_rng(1)
    for kind, suffix, make in (("pictures", "png", _picture), ("tones", "wav", _tone)):
        files = {f"{n % 3}/{n:02d}.{suffix}": make(n, draws) for n in range(NUM_MEDIA)}
        files[f"0/{NUM_MEDIA:02d}.{suffix}"] = files[f"0/00.{suffix}"]  # a duplicate
        with tarfile.open(folder / f"{kind}.tar", "w") as archive:
            for path, data in files.items():
                place = folder / kind / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
                label, _, stem = path.removesuffix(f".{suffix}").partition("/")
                _add(archive, f"{stem}.{suffix}", data)
                _add(archive, f"{stem}.cls", label.encode())
        listed = [f"{kind}/{path}\tclass {path[0]}" for path in sorted(files)]
        (folder / f"{kind}.tsv").write_text("\n".join(listed))
        with tarfile.open(folder / f"{kind}-folders.tar", "w") as archive:
            for path in sorted(files):
                _add(archive, path, files[path])


def _picture(number: int, draws: np.random.Generator) -> bytes:
    written = io.BytesIO()
    Image.fromarray(draws.integers(0, 256, (48, 40 + number % 5, 3), np.uint8)).save(written, "png")
    return written.getvalue()


def _tone(number: int, draws: np.random.Generator) -> bytes:
    samples = 9000 * np.sin(np.arange(24_000) * (number + 5) / 60) + draws.normal(0, 900, 24_000)
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, 16_000, len(samples), "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return written.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _recipe(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole recipe: 20 steps, figures of each fifth, a checkpoint each tenth."""
    training = {"max_steps": 20, "save_steps": 10, "logging_steps": 5, "bf16": False, **changes.get("training", {})}
    model = changes.get("model", {"config": TINY, "pooling": "mean"})
    optimizer = {"learning_rate": 1e-3, "cut_fraction": 0.1}
    return {"model": model, "optimizer": optimizer, "output": "???", **changes, "training": training}
