"""Datasets that a run on this machine makes: what runs across hosts must give byte for byte."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.pipelines.__main__ import main
from clearspan.shards import Manifest
from tests.hosts.store import digests

CURATED = ["--quiet", "--dedup", "--holdout-fraction", "0.3"]
NEAR = ["--near-dedup", "0.8", "--exclude", "{corpora}/excluded.jsonl"]
TOKENS = ["--tokenizer", "{tokenizer}"]
TEXTS = ["--input", "{corpora}/texts/*.jsonl", "--unit-bytes", "100000"]
VIEWS = ["--augment", "subs+del-span", "--synonyms", "{local}/synonyms.json", "--views", "2"]
COMMANDS = {
    "documents": [*TEXTS, *TOKENS, "--min-tokens", "256", *CURATED, *NEAR],
    "sentences": [*TEXTS, *TOKENS, *VIEWS, *CURATED, *NEAR],
    "pairs": [*TEXTS, *TOKENS, "--structure", "sentences", *CURATED, *NEAR[2:]],
    "images": ["--input", "{corpora}/zoo/", "--unit-bytes", "30000", *CURATED],
    "embed": [
        "--input",
        "{corpora}/few/*.jsonl",
        "--unit-bytes",
        "20000",
        "--model",
        "{model}",
        "--quiet",
        "--dedup",
        "--keep-text",
    ],
}
"""Builder -> options, with places in braces. Inputs hold duplicates."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A dataset that was made on this machine.

    Attributes:
        words: the words of its command, but for --output and the runner; `corpora` stands in them as {corpora}.
        digests: name of each file -> SHA-256.
    """

    words: list[str]
    digests: dict[str, str]

    def command(self, corpora: str | Path, output: str | Path) -> list[str]:
        """Return the words of the command for a place of the corpora and of the dataset."""
        return [word.replace("{corpora}", str(corpora)) for word in self.words] + ["--output", str(output)]


@pytest.fixture(scope="session")
def corpora(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of texts, one of few texts, one of pictures in class folders, and texts to exclude; some occur twice."""
    folder = tmp_path_factory.mktemp("corpora")
    with (shared_data / "text" / "openwebtext_sample.jsonl").open() as lines:
        texts = [*itertools.islice(lines, 50)]
    for name, parts in {"texts": [texts[:30], texts[25:]], "few": [texts[:4], texts[3:6]]}.items():
        (folder / name).mkdir()
        for number, part in enumerate(parts):
            (folder / name / f"{number}.jsonl").write_text("".join(part))
    synonyms = json.loads((shared_data / "synonyms" / "counterfitted_neighbors.json").read_text())
    (folder / "synonyms.json").write_text(json.dumps(dict(itertools.islice(synonyms.items(), 2000))))
    (folder / "excluded.jsonl").write_text(json.dumps({"text": json.loads(texts[3])["text"]}) + "\n")
    for name in ("ant", "barrel", "bass"):
        (folder / "zoo" / name).mkdir(parents=True)
        pictures = sorted((shared_data / "images" / "caltech60" / name).iterdir())[:5]
        for path in pictures:
            shutil.copy(path, folder / "zoo" / name)
        shutil.copy(pictures[0], folder / "zoo" / name / f"z{pictures[0].suffix}")
    return folder


@pytest.fixture(scope="session")
def case(
    corpora: Path, roberta_tokenizer: Path, minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Case]:
    """Return a function that makes a builder's dataset on this machine, the first time that it is asked for."""
    places = {
        "tokenizer": str(roberta_tokenizer),
        "model": str(minilm),
        "local": str(corpora),
        "corpora": "{corpora}",
    }
    made: dict[str, Case] = {}

    def make(name: str) -> Case:
        if name not in made:
            words = [name, *(word.format(**places) for word in COMMANDS[name])]
            output = tmp_path_factory.mktemp("local") / "out"
            made[name] = Case(words, {})
            assert main([*made[name].command(corpora, output), "--workers", "1"]) == 0
            counts = Manifest.load(str(output)).counts
            assert counts["filtered"]["duplicate"], counts
            assert counts["filtered"].get("excluded", 1), counts
            made[name] = Case(words, digests(str(output)))
        return made[name]

    return make


@pytest.fixture(scope="session")
def long_case(shared_data: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A dataset of some fifty units, whose run takes a few seconds: time enough to disturb it."""
    folder = tmp_path_factory.mktemp("long")
    with (shared_data / "text" / "openwebtext_sample.jsonl").open("rb") as lines:
        (folder / "texts.jsonl").write_bytes(b"".join(itertools.islice(lines, 450)))
    words = ["documents", "--input", str(folder / "texts.jsonl"), "--tokenizer", str(roberta_tokenizer), "--quiet"]
    words += ["--unit-bytes", "50000", "--min-tokens", "512", *CURATED[1:]]
    output = folder / "out"
    assert main([*words, "--output", str(output), "--workers", "1"]) == 0
    return Case(words, digests(str(output)))
