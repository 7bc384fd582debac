"""Fixtures: small corpora of real text, and the command run in this process."""

import dataclasses
import functools
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import zstandard
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from benchmarks.without_beam import process as without_beam
from clearspan.common.options import keywords
from clearspan.common.ragged import Ragged
from clearspan.pipelines.__main__ import COMMANDS, OTHERS, main
from clearspan.pipelines.augment.steps import DEL, Augmentation, Augmenter
from clearspan.pipelines.augment.synonyms import SynonymTable, read_synonyms
from clearspan.pipelines.augment.words import WordStarts
from clearspan.pipelines.builders import Builder, text_steps
from clearspan.pipelines.builders.text_steps import TextSteps
from clearspan.pipelines.registry import BUILDERS
from clearspan.pipelines.text.tokenization import Tokenization, TokenizerFiles, read_tokenizer, with_special_token
from clearspan.shards import Dataset
from tests.conftest import exit_code
from tests.processes import environment, run_commands

KILLING = "tests/pipelines/killing.py"


@dataclasses.dataclass
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@functools.lru_cache(8)
def tokenization(data: bytes, backend: str, prompts: tuple[str, ...]) -> Tokenization:
    """A tokenizer that is loaded once for all runs."""
    return Tokenization(data, backend=backend, prompts=prompts)


@pytest.fixture
def pipeline(
    capsys: pytest.CaptureFixture[str], roberta_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run `python -m pipelines` in this process; defaults: documents, RoBERTa's tokenizer, tmp_path/out."""

    def loaded(steps: TextSteps, resources: Mapping[str, bytes], prompts: tuple[str, ...] = ()) -> Tokenization:
        return tokenization(TokenizerFiles.main(resources), steps.tokenization, prompts)

    monkeypatch.setattr(TextSteps, "loaded", loaded)

    def run(*arguments: str | Path) -> Outcome:
        words = [str(argument) for argument in arguments]
        if words[0] not in COMMANDS and ":" not in words[0]:
            words.insert(0, "documents")
        for name, value in (("--tokenizer", roberta_tokenizer), ("--output", tmp_path / "out")):
            takes = (name == "--output" and words[0] not in OTHERS) or (
                "tokenizer" in keywords(BUILDERS.get(words[0], Builder))
            )
            if takes and name not in words:
                words += [name, str(value)]
        capsys.readouterr()
        code = exit_code(main, *words)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def killed(when: str, name: str, *words: str | Path) -> int:
    """Return the exit code of `python -m pipelines` with one worker that kills itself when it publishes `name`."""
    return run_commands([KILLING, "1", when, name, "-", *map(str, words)], [environment()]).returncode


def rows(folder: Path) -> list[dict]:
    """The examples of a dataset."""
    return [row for batch in Dataset(folder) for row in batch.to_pylist()]


def logged(folder: Path) -> list[dict]:
    """The lines that units left in a folder of a dataset, such as `_rejected`."""
    parts = [zstandard.ZstdDecompressor().decompressobj().decompress(p.read_bytes()) for p in sorted(folder.iterdir())]
    return [json.loads(line) for line in b"".join(parts).splitlines()]


def summary(outcome: Outcome) -> dict:
    """What `--json` printed, whose counts add up."""
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["read"] == found["kept"] + sum(found["filtered"].values()) + found["bad"]
    return found


@pytest.fixture(scope="session")
def roberta_files(roberta_tokenizer: Path) -> TokenizerFiles:
    return read_tokenizer(str(roberta_tokenizer))


@pytest.fixture(scope="session")
def roberta_tokenization(roberta_files: TokenizerFiles) -> Tokenization:
    return Tokenization(roberta_files.files["tokenizer.json"], roberta_files.vocab_size)


@pytest.fixture(scope="session")
def with_del(roberta_files: TokenizerFiles) -> TokenizerFiles:
    """RoBERTa's tokenizer with [DEL]."""
    return with_special_token(roberta_files, DEL)


@pytest.fixture(scope="session")
def del_tokenization(with_del: TokenizerFiles) -> Tokenization:
    """RoBERTa's tokenizer with [DEL]."""
    return Tokenization(with_del.files["tokenizer.json"], with_del.vocab_size)


@pytest.fixture(scope="session")
def del_tokenizer(roberta_tokenizer: Path) -> Tokenizer:
    """RoBERTa's tokenizer with [DEL]; tests must not change it."""
    tokenizer = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.add_special_tokens([DEL])
    return tokenizer


@pytest.fixture(scope="session")
def word_starts(del_tokenizer: Tokenizer) -> WordStarts:
    return WordStarts(del_tokenizer)


@pytest.fixture(scope="session")
def counterfitted(shared_data: Path) -> dict[str, list[str]]:
    """The list of synonyms that CLEAR used."""
    return read_synonyms(shared_data / "synonyms" / "counterfitted_neighbors.json")


@pytest.fixture(scope="session")
def counterfitted_table(counterfitted: dict[str, list[str]], del_tokenizer: Tokenizer) -> SynonymTable:
    return SynonymTable.build(counterfitted, del_tokenizer)


@pytest.fixture(scope="session")
def augmenter(
    del_tokenizer: Tokenizer, word_starts: WordStarts, counterfitted_table: SynonymTable
) -> Callable[..., Augmenter]:
    """Build augmenters for RoBERTa's tokenizer with CLEAR's synonyms; slow parts are built once."""

    def made(steps: str, **options: object) -> Augmenter:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("clearspan.pipelines.augment.steps.WordStarts", lambda tokenizer: word_starts)
            return Augmenter(Augmentation.parse(steps, **options), del_tokenizer, counterfitted_table)

    return made


@pytest.fixture(scope="session")
def wiki_tokens(shared_data: Path, del_tokenizer: Tokenizer) -> Ragged:
    """About 11,000 sentences from the head of wiki1m, in RoBERTa's token ids."""
    lines = (shared_data / "sentences" / "wiki1m_head_11914.txt").read_text(encoding="utf-8").splitlines()
    encodings = del_tokenizer.encode_batch_fast([line for line in lines if line.strip()], add_special_tokens=False)
    return Ragged.of([np.array(encoding.ids, np.uint16) for encoding in encodings], np.uint16)


@pytest.fixture
def direct(
    pipeline: Command, roberta_files: TokenizerFiles, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run the command without Beam, and with RoBERTa's tokenizer loaded once: many runs per second."""

    usual = TextSteps.loaded

    def loaded(steps: TextSteps, resources: Mapping[str, bytes], prompts: tuple[str, ...] = ()) -> Tokenization:
        if steps.prefix_space:
            return usual(steps, resources, prompts)
        has_del = DEL.encode() in TokenizerFiles.main(resources)
        made: Tokenization = request.getfixturevalue("del_tokenization" if has_del else "roberta_tokenization")
        return made

    monkeypatch.setattr("clearspan.pipelines.run._run_beam", without_beam)
    monkeypatch.setattr(text_steps, "read_tokenizer", lambda path: roberta_files)
    monkeypatch.setattr(TextSteps, "loaded", loaded)
    return pipeline


@pytest.fixture(scope="session")
def openwebtext(shared_data: Path) -> Path:
    """1,426 documents, 163 of them of at least 2,048 RoBERTa tokens."""
    return shared_data / "text" / "openwebtext_sample.jsonl"


@pytest.fixture(scope="session")
def texts(openwebtext: Path) -> list[str]:
    with openwebtext.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


@pytest.fixture
def head(openwebtext: Path, tmp_path: Path) -> Path:
    """The first forty documents, of which five are long."""
    path = tmp_path / "head.jsonl"
    with openwebtext.open("rb") as lines:
        path.write_bytes(b"".join(itertools.islice(lines, 40)))
    return path


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, str]]:
    """Return the sha256 of each file under a folder, except for what it read, which is no part of it."""

    def walk(folder: Path) -> dict[str, str]:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and ".clearspan" not in path.parts)
        return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    return walk


@pytest.fixture(scope="session")
def wiki(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 3,000 lines of SimCSE's wiki1m, one sentence each."""
    path = tmp_path_factory.mktemp("wiki") / "wiki.txt"
    with (shared_data / "sentences" / "wiki1m_head_11914.txt").open("rb") as lines:
        path.write_bytes(b"".join(itertools.islice(lines, 3000)))
    return path


@pytest.fixture(scope="session")
def synonyms(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hundred words of the counter-fitted neighbors that CLEAR used."""
    table = json.loads((shared_data / "synonyms" / "counterfitted_neighbors.json").read_text())
    some = {word: found for word, found in itertools.islice(table.items(), 600) if found}
    path = tmp_path_factory.mktemp("synonyms") / "synonyms.json"
    path.write_text(json.dumps(some))
    return path


@pytest.fixture(scope="session")
def caltech(shared_data: Path) -> Path:
    """Sixty class folders of twenty photographs."""
    return shared_data / "images" / "caltech60"


@pytest.fixture
def zoo(caltech: Path, tmp_path: Path) -> Path:
    """Three class folders of four photographs."""
    for name in ("ant", "barrel", "bass"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        for path in sorted((caltech / name).iterdir())[:4]:
            shutil.copy(path, tmp_path / "zoo" / name)
    return tmp_path / "zoo"


@pytest.fixture(scope="session")
def encoder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained sentence-transformers folder: 48 tokens, two prompts, none of them its default.

    Its transformer alone is beside it, in a plain Hugging Face folder `bert`.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("models")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    torch.manual_seed(0)
    BertModel(BertConfig(**size, max_position_embeddings=64)).save_pretrained(folder / "bert")
    tokenizer = BertTokenizerFast.from_pretrained(str(shared_data / "tokenizers" / "bert-base-uncased"))
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=48), Pooling(32, "mean"), Normalize()]
    prompts = {"query": "query: ", "passage": "passage: "}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save_pretrained(str(folder / "encoder"))
    return folder / "encoder"


@pytest.fixture(scope="session")
def still(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small static model with random vectors, which embeds thousands of texts a second without torch."""
    folder = tmp_path_factory.mktemp("still")
    shutil.copy(shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json", folder)
    num_tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    table = np.random.default_rng(0).standard_normal((num_tokens, 16), np.float32)
    save_file({"embedding.weight": table}, folder / "model.safetensors")
    kind = "sentence_transformers.models.StaticEmbedding"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    return folder


@pytest.fixture
def decoded(roberta_tokenizer: Path) -> Callable[[Path], list[tuple[str, ...]]]:
    """Return the texts of the examples of a dataset of triplets."""
    tokenizer = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))

    def texts(folder: Path) -> list[tuple[str, ...]]:
        names = ("tokens", "positive", "negative")
        return [tuple(tokenizer.decode(row[name]) for name in names if name in row) for row in rows(folder)]

    return texts
