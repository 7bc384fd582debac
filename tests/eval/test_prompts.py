"""Prompts in evaluations: each side's own, chosen by name, recorded, and never those of another evaluation's cache."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from clearspan.common.encoder.embedder import cache_of
from clearspan.common.encoder.folder import load_folder
from clearspan.common.encoder.prompts import Prompts, Sides
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.model_folder import INFERENCE
from clearspan.eval.__main__ import main
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.report.summary import ScoreSummary
from clearspan.retrieval.products import Vectors
from tests.conftest import exit_code

WORDS = ["owl", "rain", "party", "snow", "dark", "north", "street", "night"]
QUERIES = [f"the {word} of number {row}" for row, word in enumerate(WORDS)]
DOCUMENTS = [f"{text[::-1]} and {text} in the passage" for text in QUERIES]
PAIRS = [(QUERIES[row], DOCUMENTS[(3 * row) % 8], row % 5) for row in range(8)]


@pytest.fixture
def model(shared_data: Path, tmp_path: Path) -> Path:
    """Random vectors of BERT's tokens, with prompts that shift every ranking."""
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/bert-base-uncased/tokenizer.json"))
    torch.manual_seed(1)
    library = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_dim=8)],
        prompts={"query": "query about: ", "document": "some passage: ", "passage": "another: ", "same": "compare "},
        default_prompt_name="same",
        device="cpu",
    )
    library.save(str(tmp_path / "prompted"))
    return tmp_path / "prompted"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A collection in which each query finds one document, and scored pairs."""
    folder = tmp_path / "data" / "retrieval" / "owls"
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        lines = [json.dumps({"_id": f"{name}{row}", "text": text}) + "\n" for row, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    found = "".join(f"queries{row}\tcorpus{row}\t1\n" for row in range(8))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{found}")
    (tmp_path / "pairs.csv").write_text("".join(f"{one},{other},{score}\n" for one, other, score in PAIRS))
    return tmp_path / "data"


def evaluated(model: str | Path, data: Path, *words: str, name: str = "out") -> dict:
    given = [
        "--model",
        str(model),
        "--tasks",
        "retrieval",
        "--data",
        str(data),
        "--pairs",
        str(data.parent / "pairs.csv"),
    ]
    output = data.parent / name
    assert main([*given, "--output", str(output), "--cache", str(data.parent / "cache"), "--quiet", *words]) == 0
    return json.loads((output / "results.json").read_text())


def mrr(queries: np.ndarray, documents: np.ndarray) -> float:
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, documents)]
    scores = unit[0] @ unit[1].T
    return float(100 * np.mean([1 / (1 + (row > row[number]).sum()) for number, row in enumerate(scores)]))


@pytest.mark.guarantee("prompts-of-a-side")
def test_the_scores_are_those_of_encode_query_and_encode_document_and_elsewhere_of_encode(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, library = evaluated(model, data), SentenceTransformer(str(model), device="cpu")
    plain = mrr(library.encode(QUERIES, prompt=""), library.encode(DOCUMENTS, prompt=""))
    expected = mrr(library.encode_query(QUERIES), library.encode_document(DOCUMENTS))
    assert results["scores"]["retrieval/owls"]["mrr"] == pytest.approx(expected) and abs(plain - expected) > 1
    left, right = (library.encode([pair[side] for pair in PAIRS]) for side in (0, 1))
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    spearman = 100 * spearmanr(cosines, [score for *_, score in PAIRS]).statistic
    (task,) = results["scores"].keys() - {"retrieval/owls"}
    assert results["scores"][task]["spearman"] == pytest.approx(spearman)


@pytest.mark.guarantee("prompts-recorded")
def test_prompts_are_chosen_recorded_and_told_and_no_cached_vector_of_another_prompt_is_taken(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = SentenceTransformer(str(model), device="cpu")
    for words, sides in [
        ((), Sides("query about: ", "some passage: ", "compare ")),
        (("--prompt-name", "query"), Sides(*["query about: "] * 3)),
        (("--prompt-name", "query,passage"), Sides("query about: ", "another: ", "compare ")),
        (("--prompt-name", "none"), Sides()),
        ((), Sides("query about: ", "some passage: ", "compare ")),
    ]:
        results = evaluated(model, data, *words)
        queries, documents = (
            library.encode(texts, prompt=prompt)
            for texts, prompt in ((QUERIES, sides.query), (DOCUMENTS, sides.document))
        )
        assert results["scores"]["retrieval/owls"]["mrr"] == pytest.approx(mrr(queries, documents))
        assert results["environment"]["prompts"] == sides._asdict()
        assert f"prompts: {sides}\n" in capsys.readouterr().out
        assert sides.query in (data.parent / "out" / "report.html").read_text()
    assert results["environment"]["texts_embedded"] == 0 and results["environment"]["texts_cached"] > 0


def test_a_prompt_that_is_meant_but_not_used_is_a_warning(model: Path, data: Path) -> None:
    settings = json.loads((model / INFERENCE).read_text())
    settings["prompts"] = {"query": "query about: ", "passage": "some passage: "}
    (model / INFERENCE).write_text(json.dumps({**settings, "default_prompt_name": None}))
    line = "documents get no prompt, as with sentence-transformers' encode_document, although the model has passage"
    assert any(warning.startswith(line) for warning in evaluated(model, data)["warnings"])
    chosen = evaluated(model, data, "--prompt-name", "query,passage")
    assert not any("get no prompt" in warning for warning in chosen["warnings"])
    assert chosen["environment"]["prompts"] == {"query": "query about: ", "document": "some passage: ", "other": ""}


@pytest.mark.guarantee("prompts-held-out")
def test_bm25_ranks_the_texts_without_prompts(model: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    usual = Lexical.ranking

    def recorded(self: Lexical, queries: list[str], documents: list[str]) -> tuple[Vectors, Vectors]:
        seen.extend([*queries, *documents])
        return usual(self, queries, documents)

    monkeypatch.setattr(Lexical, "ranking", recorded)
    results = evaluated(f"hybrid:{model}", data)
    assert set(seen) == {*QUERIES, *DOCUMENTS}
    assert results["environment"]["prompts"]["document"] == "some passage: "


@pytest.mark.guarantee("prompts-recorded")
@pytest.mark.guarantee("prompts-of-a-side")
def test_sides_of_one_prompt_share_their_embeddings(model: Path) -> None:
    encoder, made = load_folder(model), []

    def embedder(prompt: str) -> EmbeddingSimilarity:
        made.append(prompt)
        return EmbeddingSimilarity(lambda texts: encoder.encode_after(prompt, texts))

    prompted = Prompted(Sides("find: ", "find: ", ""), embedder)
    queries, documents = prompted.ranking(QUERIES, QUERIES)
    assert made == ["find: ", ""] and prompted.embedders[0].num_texts == 8
    np.testing.assert_array_equal(np.asarray(queries), np.asarray(documents))


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--prompt-name", "title"], 1, "--prompt-name title: the model has"),
        (
            ["--prompt-name", "a,b,c"],
            2,
            "--prompt-name a,b,c: give one name, or two names: for queries and for documents",
        ),
    ],
)
def test_bad_usage_is_one_line(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, complaint: str
) -> None:
    given = ["--model", str(model), "--tasks", "retrieval", "--data", str(data), "--output", str(data.parent / "out")]
    assert exit_code(main, *given, "--quiet", *words) == code
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


class Named(Encoder):
    """A model that is known by its fingerprint alone."""

    dim = 8
    fingerprint = None

    def __init__(self, fingerprint: str | None, **prompts: str) -> None:
        self.fingerprint, self.prompts = fingerprint, Prompts(prompts)

    def encode_list(self, *_: Any) -> Any:
        raise NotImplementedError


@pytest.mark.guarantee("prompts-recorded")
def test_each_model_and_each_of_its_prompts_has_a_cache_of_its_own(tmp_path: Path) -> None:
    prompts = {"query": "query: ", "document": "passage: ", "empty": ""}
    models = [Named("owls", **prompts), Named("herons", **prompts)]
    keys = [model.cache_key(prompt) for model in models for prompt in ("", "query: ", "passage: ", "query:")]
    assert len({*keys, "owls", "herons", None}) == len(keys) + 3
    assert keys == [model.cache_key(prompt) for model in models for prompt in ("", "query: ", "passage: ", "query:")]
    long = "Instruct: Given a question of a user, retrieve the passages that answer it, also in other languages"
    near = [
        "Query: ",
        "query:  ",
        " query: ",
        "query\u00a0: ",
        "qu\u00e9ry: ",
        "que\u0301ry: ",
        long,
        long + ".",
        long.upper(),
    ]
    assert len({*keys, *(models[0].cache_key(prompt) for prompt in near)}) == len(keys) + len(near)
    others = [Named("owls", query=text).cache_key(text) for text in ("find: ", "ask: ", "query: ")]
    assert others[2] == keys[1] and len({*keys, *others}) == len(keys) + 2, "a prompt counts as a text, not as a place"
    for without in (Named("owls"), Named("owls", query="", document="")):
        assert without.cache_key("") == "owls", "a cache from before there were prompts is that of no prompt"
    assert Named(None, **prompts).cache_key("query: ") is None and Named(None).cache_key("") is None


@pytest.mark.guarantee("prompts-recorded")
def test_embeddings_are_cached_in_the_folder_of_their_key(tmp_path: Path) -> None:
    model = Named("owls", query="query: ")
    vectors = np.arange(16, dtype=np.float32).reshape(2, 8)
    written = cache_of(model, "query: ", tmp_path)
    assert written is not None
    written.add(["owl", "rain"], vectors)
    key = model.cache_key("query: ")
    assert key is not None and {path.name for path in tmp_path.iterdir()} == {key}
    same, other = (cache_of(model, prompt, tmp_path) for prompt in ("query: ", ""))
    assert same is not None and other is not None
    assert cache_of(model, "query: ", None) is None and cache_of(Named(None), "", tmp_path) is None
    assert cache_of(Named(None), "", None) is None


@pytest.mark.guarantee("prompts-recorded")
@pytest.mark.parametrize(
    "sides",
    [
        Sides("find: ", "passage: ", ""),
        Sides("", "passage: ", "compare: "),
        Sides("find: ", "", "find: "),
        Sides(*["find: "] * 3),
        Sides(),
    ],
)
def test_each_side_is_embedded_with_its_own_prompt(sides: Sides) -> None:
    made: list[str] = []

    def embedder(prompt: str) -> EmbeddingSimilarity:
        made.append(prompt)
        return EmbeddingSimilarity(lambda texts: np.array([[len(prompt) + 1, len(text)] for text in texts], float))

    def angle(vectors: Any) -> list[float]:
        return [float(round(row[1] / row[0], 4)) for row in np.asarray(vectors)]

    model = Prompted(sides, embedder)
    queries, documents = model.ranking(["an owl"], ["the owls"])
    found = [angle(queries), angle(documents), angle(model.embed(["owl"]))]
    expected = [
        len(text) / (len(prompt) + 1) for text, prompt in zip(("an owl", "the owls", "owl"), sides, strict=True)
    ]
    assert found == [[pytest.approx(each, abs=1e-3)] for each in expected]
    assert made == list(dict.fromkeys(sides)) and len(model.embedders) == len(made) and model.prompts == sides


@pytest.mark.guarantee("prompts-recorded")
@pytest.mark.parametrize(
    ("models", "lines"),
    [
        ({"owls": Sides("query: ", "passage: ")}, ["{}"]),
        ({"owls": None}, []),
        ({"owls": Sides("query: ", "passage: "), "bm25": None}, ["owls: {}"]),
        ({"bm25": None, "owls": Sides("query: ", "passage: ")}, ["owls: {}"]),
        (
            {"owls": Sides("query: ", "passage: "), "herons": Sides()},
            ["owls: {}", "herons: no prompt before every text"],
        ),
    ],
)
def test_a_report_names_the_prompts_of_each_model_that_has_some(
    models: dict[str, Sides | None], lines: list[str]
) -> None:
    environments = {name: {"prompts": sides._asdict()} if sides else {} for name, sides in models.items()}
    scored: Any = [
        SimpleNamespace(results=SimpleNamespace(model=name, environment=each)) for name, each in environments.items()
    ]
    told = "'query: ' before queries, 'passage: ' before documents, no prompt before other texts"
    assert ScoreSummary(scored).prompts == [line.format(told) for line in lines]


@pytest.mark.guarantee("prompts-recorded")
def test_models_with_the_same_prompts_are_both_named() -> None:
    scored: Any = [
        SimpleNamespace(results=SimpleNamespace(model=name, environment={"prompts": Sides("q: ", "d: ")._asdict()}))
        for name in ("owls", "herons")
    ]
    told = "'q: ' before queries, 'd: ' before documents, no prompt before other texts"
    assert ScoreSummary(scored).prompts == [f"owls: {told}", f"herons: {told}"]


@pytest.mark.guarantee("prompts-recorded")
def test_a_long_prompt_is_named_whole_with_its_line_ends_and_spaces() -> None:
    sides = Sides("Instruct: Find what answers the question.\nQuery:  " * 20, "Passage  ", "Compare\t" * 100)
    scored: Any = [SimpleNamespace(results=SimpleNamespace(model="owls", environment={"prompts": sides._asdict()}))]
    (line,) = ScoreSummary(scored).prompts
    assert all(repr(prompt) in line for prompt in sides)
    assert all(repr(prompt) in str(Sides("q: ", "q: ", "o: ")) for prompt in ("q: ", "o: "))
