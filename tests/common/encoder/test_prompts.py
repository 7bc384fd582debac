"""Prompts: those that sentence-transformers itself puts before queries, documents and other texts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from clearspan.common.encoder.folder import load_folder
from clearspan.common.encoder.prompts import DOCUMENT, OTHER, QUERY, Prompts, Side, Sides
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.model_folder import INFERENCE, EncoderError
from clearspan.eval.models.load import load_encoder

TEXTS = ["How do owls hunt?", "Owls hunt at night, by ear more than by eye.", ""]
MODELS = {
    "query and document": {"prompts": {"query": "query: ", "document": "passage: "}},
    "query and passage": {"prompts": {"query": "query: ", "passage": "passage: "}},
    "queries alone": {"prompts": {"query": "Represent this sentence for searching relevant passages: "}},
    "a default": {"prompts": {"query": "query: ", "sts": "Compare: "}, "default_prompt_name": "sts"},
    "a default alone": {"prompts": {"passage": "passage: "}, "default_prompt_name": "passage"},
    "none": {"prompts": {"document": None}},
}


@pytest.fixture(params=["prompt pooled", "prompt left out"])
def folder(minilm: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Return all-MiniLM-L6-v2 with prompts, whose pooling takes the tokens of the prompt in or leaves them out."""

    def make(name: str) -> Path:
        made = shutil.copytree(minilm, tmp_path / "model")
        for file, more in {
            made / INFERENCE: MODELS[name],
            made / "1_Pooling" / "config.json": {"include_prompt": request.param == "prompt pooled"},
        }.items():
            file.chmod(0o644)
            file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
        return made

    return make


@pytest.mark.exhaustive
@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize("name", MODELS)
def test_each_side_has_the_vectors_of_the_library(folder: Callable[[str], Path], name: str) -> None:
    path = folder(name)
    ours, theirs = load_folder(path), SentenceTransformer(str(path), device="cpu")
    near = {"atol": 1e-5, "rtol": 0}
    np.testing.assert_allclose(ours.encode_query(TEXTS), theirs.encode_query(TEXTS), **near)
    np.testing.assert_allclose(ours.encode_document(TEXTS), theirs.encode_document(TEXTS), **near)
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), **near)
    assert ours.encode_query(TEXTS[0]).shape == (ours.dim,)
    for prompt in MODELS[name]["prompts"]:
        np.testing.assert_allclose(
            ours.encode_document(TEXTS, prompt_name=prompt), theirs.encode(TEXTS, prompt_name=prompt), **near
        )
    np.testing.assert_allclose(ours.encode_query(TEXTS, prompt_name="none"), theirs.encode(TEXTS, prompt=""), **near)


@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), Sides("query: ", "", "")),
        (("passage",), Sides("passage: ", "passage: ", "passage: ")),
        (("query", "passage"), Sides("query: ", "passage: ", "")),
        (("none", "passage"), Sides("", "passage: ", "")),
    ],
)
def test_names_choose_the_prompt_of_all_texts_or_of_queries_and_documents(
    names: tuple[str, ...], expected: Sides
) -> None:
    assert Prompts.from_settings(MODELS["query and passage"]).sides(names) == expected


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("query and document", ""),
        ("queries alone", ""),
        ("none", ""),
        ("query and passage", "documents get no prompt, as with sentence-transformers' encode_document, although"),
        ("a default", "documents get no prompt, as with sentence-transformers' encode_document, although"),
        ("a default alone", "queries get no prompt, as with sentence-transformers' encode_query, although"),
    ],
)
def test_a_prompt_that_seems_to_be_meant_and_is_not_used_is_told(model: str, line: str) -> None:
    assert Prompts.from_settings(MODELS[model]).unused(QUERY, DOCUMENT).startswith(line)
    assert bool(Prompts.from_settings(MODELS[model]).unused(QUERY, DOCUMENT)) == bool(line)


@pytest.mark.guarantee("prompts-of-a-side")
def test_an_unknown_name_and_a_prompt_that_is_no_text_are_refused() -> None:
    with pytest.raises(EncoderError, match="`prompt_name` title: the model has query, passage"):
        Prompts.from_settings(MODELS["query and passage"]).of_side(QUERY, "title")
    with pytest.raises(EncoderError, match="the model has query, passage"):
        Prompts.from_settings(MODELS["query and passage"]).of_side(QUERY, ["title"])  # type: ignore[arg-type]
    with pytest.raises(EncoderError, match=r"`prompt_name` query: .*no prompts"):
        Prompts().of_side(QUERY, "query")
    with pytest.raises(EncoderError, match="'query' must be"):
        Prompts.from_settings({"prompts": {"query": 7}})


@pytest.mark.guarantee("prompts-of-a-side")
def test_a_function_has_no_prompts_and_the_same_vectors_on_each_side(own_module: Callable[[str], str]) -> None:
    name = own_module("def encode(texts):\n    return [[float(len(text)), 1.0] for text in texts]\n")
    model = load_encoder(f"{name}:encode")
    assert model.encode_query(TEXTS).tolist() == model.encode_document(TEXTS).tolist() == model.encode(TEXTS).tolist()
    with pytest.raises(EncoderError, match="the model has no prompts"):
        model.encode(TEXTS, prompt_name="query")


ALL = {"query": "query: ", "document": "passage: ", "sts": "Compare: ", "other": "Other: ", "": "Empty: "}


@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize(
    ("texts", "default", "expected"),
    [
        (ALL, "sts", ("query: ", "passage: ", "Compare: ")),
        (ALL, None, ("query: ", "passage: ", "")),
        (ALL, "", ("query: ", "passage: ", "Empty: ")),
        (ALL, "query", ("query: ", "passage: ", "query: ")),
        ({"query": "query: "}, "query", ("query: ", "", "query: ")),
        ({"document": "passage: ", "other": "Other: "}, None, ("", "passage: ", "")),
        ({"passage": "passage: ", "queries": "query: "}, "passage", ("", "", "passage: ")),
        ({"Query": "query: ", "DOCUMENT": "passage: "}, "Query", ("", "", "query: ")),
        (
            {"query": "Instruct: Find owls.\nQuery:  ", "document": " \tpassage", "x": "\n"},
            "x",
            ("Instruct: Find owls.\nQuery:  ", " \tpassage", "\n"),
        ),
        ({"query": "Frage e\u0301: "}, None, ("Frage e\u0301: ", "", "")),
        ({}, None, ("", "", "")),
    ],
)
def test_each_side_has_its_own_prompt_and_the_default_is_for_other_texts_alone(
    texts: dict[str, str], default: str | None, expected: tuple[str, str, str]
) -> None:
    prompts = Prompts(texts, default)
    assert tuple(prompts.of_side(side) for side in (QUERY, DOCUMENT, OTHER)) == prompts.sides() == expected
    for side in (QUERY, DOCUMENT, OTHER):
        assert prompts.of_side(side, "none") == "" and [prompts.of_side(side, name) for name in texts] == [
            *texts.values()
        ]


@pytest.mark.guarantee("prompts-of-a-side")
def test_a_prompt_of_the_name_none_is_that_prompt() -> None:
    assert Prompts({"none": "Nothing: "}).sides(["none"]) == Sides("Nothing: ", "Nothing: ", "Nothing: ")


@pytest.mark.guarantee("prompts-of-a-side")
def test_two_names_are_of_queries_and_documents_in_this_order_and_other_texts_keep_the_default() -> None:
    prompts = Prompts(ALL, "sts")
    assert prompts.sides(["document", "query"]) == Sides("passage: ", "query: ", "Compare: ")
    assert prompts.sides(["none", "none"]) == Sides("", "", "Compare: ")
    assert prompts.sides(["query"]) == Sides("query: ", "query: ", "query: ")
    for names in (["title"], ["title", "query"], ["query", "title"]):
        with pytest.raises(EncoderError, match="title: the model has query, document, sts"):
            prompts.sides(names)


class Told(Encoder):
    """An encoder that notes what it is asked for; a text's vector is its length and that of the prompt."""

    dim, fingerprint, prompts = 2, None, Prompts(ALL, "sts")

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> np.ndarray:
        raise AssertionError

    def encode_after(self, prompt: str, texts: object, *options: object) -> np.ndarray:
        self.calls.append((prompt, texts, *options))
        return np.array([[len(prompt), len(text)] for text in texts], np.float32)  # type: ignore[attr-defined]


@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize(
    ("side", "method"), [(QUERY, "encode_query"), (DOCUMENT, "encode_document"), (OTHER, "encode")]
)
def test_each_method_puts_the_prompt_of_its_side_or_the_named_one_before_every_text(side: Side, method: str) -> None:
    model = Told()
    own, encode = model.prompts.of_side(side), getattr(model, method)
    assert encode(TEXTS).tolist() == [[len(own), len(text)] for text in TEXTS]
    assert encode(TEXTS[0], 64, True).tolist() == [len(own), len(TEXTS[0])]
    assert encode(TEXTS, 8, prompt_name="document").shape == (3, 2)
    assert encode("", prompt_name="none").tolist() == [0, 0]
    behind = [own + TEXTS[0], f" {TEXTS[1]}\n", own, own + own, TEXTS[0], TEXTS[0], "passage: "]
    assert encode(behind).tolist() == [[len(own), len(text)] for text in behind], "texts are passed on as they are"
    calls = [(own, TEXTS, None, False), (own, TEXTS[:1], 64, True), ("passage: ", TEXTS, 8, False)]
    assert model.calls == [*calls, ("", [""], None, False), (own, behind, None, False)]
