"""Prompts in datasets: tokenized with the text as the model does, and part of nothing else."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

import clearspan
from clearspan.common.encoder.prompts import Prompts
from clearspan.common.model_folder import INFERENCE
from clearspan.eval.data.heldout_data import read_dataset
from clearspan.pipelines.builders.pairs import Pairs
from clearspan.pipelines.builders.row_prompts import PromptOptions, RowPlan
from clearspan.pipelines.builders.rows import prompts_of
from clearspan.pipelines.text.prompts import of_columns
from clearspan.shards import Dataset, vectors
from clearspan.train.prompts import prompt_tokens
from tests.pipelines.conftest import Command, without_beam
from tests.pipelines.conftest import rows as contents

TITLES = ["How do owls hunt?", "Rain: why?", "of a party (1980)", "§ 12", "Snow"]
TEXTS = [
    "They hunt by ear, at night.",
    "It rains, and the streets are wet.",
    "(The party of the north) won.",
    "12 paragraphs follow.",
    "It falls in the north.",
]


@pytest.fixture
def direct(pipeline: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command without Beam, with the tokenizer that it names."""
    monkeypatch.setattr("clearspan.pipelines.run._run_beam", without_beam)
    return pipeline


@pytest.fixture
def model(encoder: Path, tmp_path: Path) -> Path:
    """A small sentence-transformers folder with prompts of queries, documents and other texts."""
    folder = shutil.copytree(encoder, tmp_path / "model")
    settings = folder / INFERENCE
    prompts = {"query": "query: ", "document": "passage: ", "same": "Compare: "}
    content = {**json.loads(settings.read_text()), "prompts": prompts, "default_prompt_name": "same"}
    settings.write_text(json.dumps(content))
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    records = [{"title": title, "text": text} for title, text in zip(TITLES, TEXTS, strict=True)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def ids(folder: Path) -> list[tuple[list[int], list[int]]]:
    return [(row["tokens"], row["positive"]) for row in contents(folder)]


@pytest.mark.slow
@pytest.mark.guarantee("prompts-of-a-side")
def test_vectors_and_queries_are_those_of_encode_document_and_encode_query(
    direct: Command, model: Path, rows: Path, tmp_path: Path
) -> None:
    ended = direct("embed", "--input", rows, "--model", model, "--keep-text")
    assert ended.code == 0 and "'passage: ' before each text\n" in ended.out
    made, library = Dataset(tmp_path / "out"), SentenceTransformer(str(model), device="cpu")
    stored = np.concatenate([vectors.decoded(batch) for batch in made])
    np.testing.assert_allclose(stored, library.encode_document(TEXTS), atol=1e-5)
    assert made.manifest.fingerprint["options"]["prompt"] == "passage: "
    hits = clearspan.search(made.folder, TITLES, model, top=5)
    expected = library.similarity(library.encode_query(TITLES), library.encode_document(TEXTS)).numpy()
    for query, scores in zip(hits, expected, strict=True):
        np.testing.assert_allclose([hit.score for hit in query], np.sort(scores)[::-1], atol=1e-5)
        assert [hit.text for hit in query] == [TEXTS[place] for place in np.argsort(-scores)]
    words = ["search", made.folder, "--model", model, "--query", TITLES[0]]
    assert "'query: ' before each query, 'passage: ' before each text\n" in direct(*words).out
    shown = json.loads(direct(*words, "--json", "--prompt-name", "none").out)
    assert (shown["prompt"], shown["vectors_prompt"]) == ("", "passage: ")
    plain = library.similarity(library.encode(TITLES[:1], prompt=""), library.encode_document(TEXTS)).numpy().max()
    assert shown["results"][0]["hits"][0]["score"] == pytest.approx(plain, abs=1e-5)


@pytest.fixture
def many(wiki: Path, tmp_path: Path) -> Path:
    """120 pairs of the beginnings of lines and their ends."""
    lines = [words for line in wiki.read_text(encoding="utf-8").split("\n") if len(words := line.split()) > 12][:120]
    path = tmp_path / "many.jsonl"
    records = [{"title": " ".join(words[:6]), "text": " ".join(words[6:])} for words in lines]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.guarantee("prompts-trained")
def test_the_ids_of_pairs_are_those_that_the_model_reads_later(
    direct: Command, model: Path, rows: Path, tmp_path: Path
) -> None:
    ended = direct("pairs", "--input", rows, "--tokenizer", model)
    assert ended.code == 0, ended.err
    assert "'query: ' before the first text of a row, 'passage: ' before the other\n" in ended.out
    library = SentenceTransformer(str(model), device="cpu")
    read = [
        library[0].preprocess(texts, prompt=prompt) for texts, prompt in ((TITLES, "query: "), (TEXTS, "passage: "))
    ]
    expected = [
        [row[mask.bool()].tolist()[1:-1] for row, mask in zip(side["input_ids"], side["attention_mask"], strict=True)]
        for side in read
    ]
    assert ids(tmp_path / "out") == list(zip(*expected, strict=True))
    made = Dataset(tmp_path / "out").manifest
    assert made.prompts == {"tokens": "query: ", "positive": "passage: "}


@pytest.mark.guarantee("prompts-trained")
@pytest.mark.parametrize("prompts", [("query: ", "passage: "), ("Find", "The text of "), ("query:\n", "")])
def test_a_prompt_and_its_text_are_tokenized_as_one(
    direct: Command, roberta_tokenizer: Path, rows: Path, tmp_path: Path, prompts: tuple[str, str]
) -> None:
    """A space at the end of a prompt belongs to the first word of the text."""
    words = ("pairs", "--input", rows, "--tokenizer", roberta_tokenizer)
    ended = direct(*words, "--prompt", prompts[0], "--prompt", prompts[1])
    assert ended.code == 0, ended.err
    made = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    both = [[prompt + text for text in side] for prompt, side in zip(prompts, (TITLES, TEXTS), strict=True)]
    expected = [[made.encode(text, add_special_tokens=False).ids for text in side] for side in both]
    assert ids(tmp_path / "out") == list(zip(*expected, strict=True))


@pytest.mark.guarantee("prompts-trained")
def test_a_prompt_that_spells_out_a_special_token_has_the_ids_that_the_model_reads_later(
    direct: Command, model: Path, rows: Path, tmp_path: Path
) -> None:
    settings, library = model / INFERENCE, SentenceTransformer(str(model), device="cpu")
    special = library.tokenizer.sep_token, library.tokenizer.mask_token
    prompts = [f"{token} {side}: " for token, side in zip(special, ("query", "passage"), strict=True)]
    for side, prompt in zip(("query", "passage"), prompts, strict=True):
        settings.write_text(settings.read_text().replace(f'"{side}: "', json.dumps(prompt)))
    assert direct("pairs", "--input", rows, "--tokenizer", model).code == 0

    def read(texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = library.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return found

    before, after = ([prompt + text for text in side] for prompt, side in zip(prompts, (TITLES, TEXTS), strict=True))
    expected = list(zip(read(before), read(after), strict=True))
    assert ids(tmp_path / "out") == expected
    assert prompt_tokens(Dataset(tmp_path / "out"))["tokens"] == len(read([prompts[0].rstrip()])[0])
    assert [side[0] for side in expected[0]] == library.tokenizer.convert_tokens_to_ids(list(special))


@pytest.mark.slow
@pytest.mark.guarantee("prompts-held-out", "prompts-trained")
@pytest.mark.parametrize("name", ["roberta-base", "bert-base-uncased"])
@pytest.mark.parametrize("prompts", [("query: ", "passage: "), ("Find:\nthe text of ", ""), ("找", "文：")])
def test_a_prompt_is_tokenized_with_its_text_and_changes_nothing_else(
    direct: Command, shared_data: Path, many: Path, tmp_path: Path, name: str, prompts: tuple[str, str]
) -> None:
    """Neither ids of examples nor what is held out; held-out texts are read without the prompt."""
    words = [
        "pairs",
        "--input",
        many,
        "--tokenizer",
        shared_data / "tokenizers" / name,
        "--dedup",
        "--holdout-fraction",
        "0.4",
    ]
    assert direct(*words, "--output", tmp_path / "plain").code == 0
    given = [word for prompt in prompts for word in ("--prompt", prompt)]
    ended = direct(*words, *given, "--output", tmp_path / "prompted")
    assert ended.code == 0, ended.err
    plain, prompted = (list(Dataset(tmp_path / made / "validation")) for made in ("plain", "prompted"))
    assert [batch["id"].to_pylist() for batch in plain] == [batch["id"].to_pylist() for batch in prompted]
    assert ids(tmp_path / "plain") != ids(tmp_path / "prompted")
    for dev in (False, True):
        sides = [read_dataset(tmp_path / made / "validation", dev=dev).collection for made in ("plain", "prompted")]
        assert sides[0].queries == sides[1].queries and sides[0].documents == sides[1].documents
        assert len(sides[0].queries) > 10


@pytest.mark.guarantee("prompts-trained")
def test_the_models_prompts_are_chosen_by_name(direct: Command, model: Path, rows: Path, tmp_path: Path) -> None:
    def prompts(command: str, *words: str) -> tuple[dict[str, str], str]:
        output = tmp_path / f"made{len(list(tmp_path.iterdir()))}"
        ended = direct(command, "--input", rows, "--tokenizer", model, "--output", output, *words)
        assert ended.code == 0, ended.err
        return Dataset(output).manifest.prompts, ended.out

    assert prompts("pairs", "--prompt-name", "none")[0] == {}
    assert prompts("pairs", "--prompt-name", "same")[0] == {"tokens": "Compare: ", "positive": "Compare: "}
    assert prompts("pairs", "--prompt-name", "query,same")[0] == {"tokens": "query: ", "positive": "Compare: "}
    assert prompts("pairs", "--prompt", "Find: ")[0] == {"tokens": "Find: ", "positive": "Find: "}
    assert prompts("pairs", "--prompt", "Find: ", "--prompt", "")[0] == {"tokens": "Find: ", "positive": ""}
    columns = ("tokens", "positive", "negative")
    assert prompts("triplets", "--columns", "title,text")[0] == dict.fromkeys(columns, "Compare: ")
    settings = model / INFERENCE
    settings.write_text(settings.read_text().replace('"document"', '"passage"').replace('"same"', "null", 1))
    unused = "documents get no prompt, as with sentence-transformers' encode_document, although the model has passage"
    assert unused in prompts("pairs")[1]


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--prompt-name", "title"], 1, "--prompt-name title: the model has"),
        (["--prompt-name", "query,document,same"], 2, "give one name, or two names: for queries and for documents"),
        (["--prompt-name", "query", "--prompt", "query: "], 2, "--prompt and --prompt-name: leave one of them out"),
        (["--prompt", "a", "--prompt", "b", "--prompt", "c"], 2, "--prompt 'c': a row has at most 2 texts"),
    ],
)
def test_bad_usage_is_one_line(
    direct: Command, model: Path, rows: Path, words: list[str], code: int, complaint: str
) -> None:
    ended = direct("pairs", "--input", rows, "--tokenizer", model, *words)
    assert ended.code == code and complaint in ended.err and ended.err.count("\n") == 1


def test_prompts_of_a_model_that_are_no_texts_are_named(direct: Command, model: Path, rows: Path) -> None:
    settings = model / INFERENCE
    settings.write_text(settings.read_text().replace('"query: "', "7"))
    ended = direct("pairs", "--input", rows, "--tokenizer", model)
    assert ended.code == 1 and f"{settings}: the prompt 'query' must be a text" in ended.err


@pytest.mark.guarantee("prompts-trained")
def test_each_text_of_a_row_has_the_prompt_of_its_side(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Prompts({"query": "query: ", "document": "passage: ", "same": "Compare: "}, "same")
    without = Prompts({"query": "query: ", "passage": "passage: ", "same": "Compare: "}, "same")
    for prompts, expected in ((known, ("query: ", "passage: ")), (without, ("query: ", ""))):
        monkeypatch.setattr(PromptOptions, "known", lambda *_, prompts=prompts: prompts)
        assert Pairs().resolved({}).plan.prompt == expected
    assert prompts_of(("q", "d", "n"), 5, 2) == ("q", "d", "d", "n", "n")
    assert prompts_of(RowPlan(prompt=("q", "d")).prompts(False), 4, 2) == ("q", "d", "d", "d")
    assert RowPlan(prompt=("Q", "D")).prompts(lowercase=True) == ("q", "d", "d")


@pytest.mark.guarantee("prompts-trained")
def test_the_last_prompt_is_for_the_other_columns() -> None:
    columns = ("tokens", "positive", "negative")
    for given, expected in (
        ((), ("", "", "")),
        (("q",), ("q",) * 3),
        (("q", "d"), ("q", "d", "d")),
        (columns, columns),
    ):
        assert of_columns(given) == dict(zip(columns, expected, strict=True))
