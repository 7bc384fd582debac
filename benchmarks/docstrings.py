"""English text that every machine has: the docstrings of the installed Python packages.

    module file -> ast -> docstrings in source order -> one document        (nothing is imported or executed)

Modules are split by the hash of their name: held-out modules make up the retrieval task (the query is the summary line
of a docstring, the document to find is the rest of it, among those of all modules), all others the training corpus, and
its pairs of the same form.
"""

import ast
import dataclasses
import hashlib
import importlib.util
import json
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from pydoc_data.topics import topics

PYTHON = "python"
PACKAGES = (
    "apache_beam",
    "deepspeed",
    "matplotlib",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "sklearn",
    "sympy",
    "tokenizers",
    "torch",
    "transformers",
    "webdataset",
    "networkx",
    "tqdm",
    "pydantic",
    "huggingface_hub",
    "fsspec",
    "PIL",
    "pip",
    "setuptools",
)
SKIPPED_FOLDERS = {"site-packages", "tests", "test", "testing", "_vendor", "idlelib"}
HELD_OUT_PERCENT = 12
MIN_SUMMARY_WORDS, MIN_BODY_WORDS = 4, 20


@dataclasses.dataclass(frozen=True)
class Module:
    """The documentation of a module: its dotted name and its docstrings in source order."""

    name: str
    docstrings: list[str]

    @property
    def text(self) -> str:
        return "\n\n".join(self.docstrings)

    @property
    def held_out(self) -> bool:
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def package_folders(packages: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name, folder) of each installed package of these; `PYTHON` is the standard library."""
    for name in packages:
        if name == PYTHON:
            yield name, Path(sysconfig.get_paths()["stdlib"])
            continue
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            yield name, Path(next(iter(spec.submodule_search_locations)))


def modules(packages: Sequence[str] = (PYTHON, *PACKAGES)) -> list[Module]:
    """Return all modules with docstrings, in a fixed order; all cores read them."""
    named = []
    for package, folder in package_folders(packages):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if not SKIPPED_FOLDERS & set(parts):
                named.append((".".join((package, *parts)), path))
    with ProcessPoolExecutor() as pool:
        documented = [module for module in pool.map(_module, named, chunksize=64) if module]
    chapters = sorted(topics.items()) if PYTHON in packages else []
    return documented + [Module(f"pydoc.{name}", [text.strip()]) for name, text in chapters]


def _module(named: tuple[str, Path]) -> Module | None:
    name, path = named
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    docstrings = list(_docstrings(tree))
    return Module(name, docstrings) if docstrings else None


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a node and of the definitions in it, in source order."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text and text.strip():
            yield text.strip()
    if isinstance(node, ast.Module | ast.ClassDef | ast.If | ast.Try):
        for child in node.body:
            yield from _docstrings(child)


def summary_and_body(docstring: str) -> tuple[str, str] | None:
    """Return (first paragraph, rest) of a docstring, or None if one of them is too short to be meaningful."""
    summary, _, body = docstring.partition("\n\n")
    summary, body = " ".join(summary.split()), " ".join(body.split())
    if len(summary.split()) < MIN_SUMMARY_WORDS or len(body.split()) < MIN_BODY_WORDS:
        return None
    return summary, body


def write_corpus(modules: list[Module], path: Path) -> int:
    """Write the training modules as jsonl {text, module}, without duplicate texts; return their number."""
    seen, count = set(), 0
    with path.open("w") as out:
        for module in modules:
            if not module.held_out and module.text not in seen:
                seen.add(module.text)
                out.write(json.dumps({"text": module.text, "module": module.name}) + "\n")
                count += 1
    return count


def write_pairs(modules: list[Module], path: Path) -> int:
    """Write the docstrings of the training modules as jsonl {title, text}: summary and rest; return their number."""
    pairs = dict.fromkeys(
        pair for module in modules if not module.held_out for pair in map(summary_and_body, module.docstrings) if pair
    )
    with path.open("w") as out:
        out.writelines(json.dumps({"title": title, "text": text}) + "\n" for title, text in pairs)
    return len(pairs)


def write_retrieval(modules: list[Module], folder: Path, size: int) -> tuple[int, int]:
    """Write a retrieval task in BEIR's layout: the summaries of held-out modules find their bodies among all bodies.

    A query's summary and body are unique, and neither occurs in a training module. The `size` pairs with the lowest
    hashes are the queries. The documents are the bodies of all modules, training ones included, each once: a search
    ranks a whole collection.

    Returns:
        (number of queries, number of documents)
    """
    known = {text for module in modules if not module.held_out for text in _paragraphs(module)}
    pairs: dict[str, str] = {}
    bodies: dict[str, int] = {}
    for module in modules:
        for docstring in module.docstrings:
            pair = summary_and_body(docstring)
            if pair is None:
                continue
            is_new = known.isdisjoint(pair) and pair[0] not in pairs and pair[1] not in bodies
            if module.held_out and is_new:
                pairs[pair[0]] = pair[1]
            bodies.setdefault(pair[1], len(bodies))
    chosen = sorted(pairs.items(), key=lambda pair: hashlib.sha256("\n".join(pair).encode()).digest())[:size]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w") as corpus:
        corpus.writelines(json.dumps({"_id": f"d{i}", "title": "", "text": body}) + "\n" for body, i in bodies.items())
    with (folder / "queries.jsonl").open("w") as queries, (folder / "qrels" / "test.tsv").open("w") as qrels:
        qrels.write("query-id\tcorpus-id\tscore\n")
        for i, (summary, body) in enumerate(chosen):
            queries.write(json.dumps({"_id": f"q{i}", "text": summary}) + "\n")
            qrels.write(f"q{i}\td{bodies[body]}\t1\n")
    return len(chosen), len(bodies)


def _paragraphs(module: Module) -> Iterator[str]:
    for docstring in module.docstrings:
        pair = summary_and_body(docstring)
        if pair:
            yield from pair
