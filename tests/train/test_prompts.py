"""Prompts from the folder that training begins with to the export: what the texts were trained with, and no other."""

import json
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, RobertaConfig

from clearspan.adapt import __main__ as adapt
from clearspan.common.encoder.folder import load_folder
from clearspan.common.encoder.prompts import Sides
from clearspan.eval.data import heldout_data
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.models.prompted import Prompted
from clearspan.eval.tasks.heldout import mean_mrr
from clearspan.shards import Dataset
from clearspan.train.config.options import RecipeError
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.data.span_sampler import SpanConfig
from clearspan.train.distill import main as distill
from clearspan.train.model.source import Inference
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.objectives.spans import draw
from clearspan.train.prompts import prompt_tokens, trained_prompts
from clearspan.train.selection.dev_score import dev_set
from tests.train.conftest import TINY_MODEL, VOCABULARY

PROMPTS = {"query": "query: ", "document": "passage: ", "same": "compare "}


@pytest.fixture(scope="module")
def source(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with prompts, of which its default is neither that of queries nor that of documents."""
    folder = tmp_path_factory.mktemp("source")
    values = [option.removeprefix("model.config.").split("=") for option in TINY_MODEL[2:]]
    config = RobertaConfig(vocab_size=VOCABULARY, pad_token_id=1, **{key: json.loads(value) for key, value in values})
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    load_tokenizer(tokenizer_folder).save_pretrained(folder / "plain")
    modules = [Transformer(str(folder / "plain"), processor_kwargs={"model_max_length": 64}), Pooling(32, "mean")]
    model = SentenceTransformer(modules=modules, device="cpu", prompts=PROMPTS, default_prompt_name="same")
    model.save_pretrained(str(folder / "whole"))
    return folder / "whole"


@pytest.fixture(scope="module")
def titled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts of the chapters of Python's language reference, under the beginning of each."""
    parts = [part.split() for _, text in sorted(topics.items()) for part in text.split("\n\n")]
    rows = [{"title": " ".join(part[:6]), "text": " ".join(part[6:])} for part in parts if len(part) > 26][:400]
    path = tmp_path_factory.mktemp("texts") / "topics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def adapted(source: Path, titled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four steps, and the evaluations before and after."""
    output = tmp_path_factory.mktemp("adapted") / "out"
    words = ["--input", str(titled), "--model", str(source), "--output", str(output), "--holdout-fraction", "0.3"]
    keys = ["training.epochs=0", "training.max_steps=4", "data.text.batch_size=16", "training.bf16=false"]
    assert adapt.main([*words, "--quiet", "--precision", "fp32", *keys]) == 0
    return output


@pytest.mark.exhaustive
@pytest.mark.guarantee("prompts-trained")
def test_the_export_reads_a_query_and_a_document_as_training_did(adapted: Path) -> None:
    exported = SentenceTransformer(str(adapted / "run/model"), device="cpu")
    assert exported.prompts == PROMPTS and exported.default_prompt_name is None
    rows = [row for batch in Dataset(adapted / "texts") for row in batch.to_pylist()]
    for column, prompt in (("tokens", "query: "), ("positive", "passage: ")):
        texts = [exported.tokenizer.decode(row[column]) for row in rows]
        assert all(text.startswith(prompt) for text in texts)
        read = exported[0].preprocess([text.removeprefix(prompt) for text in texts], prompt=prompt)
        for row, ids, mask in zip(rows, read["input_ids"], read["attention_mask"], strict=True):
            assert ids[mask.bool()].tolist()[1:-1] == row[column][:62]
    ours, texts = load_folder(adapted / "run" / "model"), ["How?", "A longer text, of several words."]
    np.testing.assert_allclose(ours.encode_query(texts), exported.encode_query(texts), atol=1e-5)
    np.testing.assert_allclose(ours.encode_document(texts), exported.encode_document(texts), atol=1e-5)
    assert np.abs(exported.encode_query(texts) - exported.encode(texts)).max() > 1e-4
    card = (adapted / "run/model/README.md").read_text()
    assert '`"query: "` before a query, `"passage: "` before a document.' in card and "model.encode_query(" in card
    assert '- prompts: `"query: "` before `tokens`, `"passage: "` before `positive`\n' in card


@pytest.mark.exhaustive
@pytest.mark.guarantee("prompts-held-out")
def test_the_verdict_and_the_choice_of_a_checkpoint_compare_texts_with_the_models_prompts(
    adapted: Path, source: Path
) -> None:
    mrr = json.loads((adapted / "adapt.json").read_text())["mrr"]
    judged = heldout_data.read(adapted / "texts/validation").collection
    recipe = yaml.safe_load((adapted / "run/recipe.yaml").read_text())
    queries = dev_set(str(adapted / "mined"), str(adapted / "texts/validation"), recipe["training"]["eval_texts"])

    def with_prompts(path: Path) -> Prompted:
        model = load_folder(path)  # whose vectors are the library's, by the test above
        encode = {"query": model.encode_query, "document": model.encode_document}
        return Prompted(Sides("query", "document", "query"), lambda side: EmbeddingSimilarity(encode[side]))

    for name, path in ((source.name, source), ("trained", adapted / "interpolated/model")):
        assert mrr[name] == pytest.approx(mean_mrr(with_prompts(path), [judged]), abs=1e-3)
    picked = mean_mrr(with_prompts(adapted / "run/model"), [queries])
    lines = map(json.loads, (adapted / "run/metrics.jsonl").read_text().splitlines())
    scores = [line["dev_score"] for line in lines if "dev_score" in line]
    assert max(scores) == pytest.approx(picked, abs=1e-2)


def of_dataset(prompts: dict[str, str], column: str = "positive") -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(prompts=prompts, lengths={"tokens": {}, column: {}}))


@pytest.mark.guarantee("prompts-trained")
@pytest.mark.parametrize(
    ("texts", "default", "sides"),
    [
        ({"tokens": "query: ", "positive": "passage: "}, "same", Sides("query: ", "passage: ", "")),
        ({}, "same", Sides()),
        ({"tokens": "compare ", "positive": "compare "}, "same", Sides(*["compare "] * 3)),
        ({"tokens": "query: ", "positive": "query: "}, "same", Sides(*["query: "] * 3)),
        ({"tokens": "query: ", "positive": ""}, None, Sides("query: ", "", "")),
        ({"tokens": "compare ", "positive": "passage: "}, "same", Sides("compare ", "passage: ", "")),
        ({"tokens": "Query:\n", "positive": " passage  "}, "same", Sides("Query:\n", " passage  ", "")),
    ],
)
def test_the_prompts_of_the_export_are_those_of_the_texts(
    texts: dict[str, str], default: str | None, sides: Sides
) -> None:
    before = Inference(prompts=PROMPTS, default_prompt_name=default)
    after, notes = trained_prompts(before, {"text": of_dataset(texts)})
    assert after.sides == sides and after.prompts["same"] == "compare "
    assert after.prompts.keys() == PROMPTS.keys() and after.default_prompt_name in (None, "query", "same")
    assert (after.default_prompt_name is None) == (not sides.other)
    assert notes[0].startswith("model.path has other prompts than the training texts, and the export has theirs: query")


@pytest.mark.guarantee("prompts-trained")
def test_a_model_without_prompts_gets_those_of_the_texts_and_one_with_the_same_keeps_them_in_silence() -> None:
    texts = {"tokens": "query: ", "positive": "passage: "}
    after, notes = trained_prompts(Inference(), {"text": of_dataset(texts), "more": of_dataset({}, "view_0")})
    assert after.prompts == {"query": "query: ", "document": "passage: "} and after.default_prompt_name is None
    assert notes == [
        "the export has the prompts of the training texts: query 'query: ', document 'passage: ', other none"
    ]
    assert trained_prompts(Inference(prompts=PROMPTS), {"text": of_dataset(texts)})[1] == []
    for untitled in ({"text": of_dataset({})}, {"more": of_dataset({}, "view_0")}, {}):
        assert trained_prompts(Inference(), untitled) == (Inference(), [])
    with pytest.raises(RecipeError, match=r"data\.a has the prompts 'query: ' and 'passage: ', data\.b '' and ''"):
        trained_prompts(Inference(), {"a": of_dataset(texts), "b": of_dataset({})})


OTHERS = "model.path has other prompts than the training texts, and the export has theirs: "
ADDED = "the export has the prompts of the training texts: "


@pytest.mark.guarantee("prompts-trained")
@pytest.mark.parametrize(
    ("prompts", "default", "trained", "expected_default", "note"),
    [
        (PROMPTS, None, ("query: ", "passage: "), None, ""),
        (PROMPTS, "query", ("query: ", "passage: "), None, OTHERS),
        (PROMPTS, "document", ("query: ", "passage: "), None, OTHERS),
        (PROMPTS, "query", ("query: ", "query: "), "query", OTHERS),
        (PROMPTS, "document", ("query: ", "query: "), "query", OTHERS),
        (PROMPTS, "same", ("compare ", "compare "), "same", OTHERS),
        (PROMPTS, None, ("compare ", "compare "), "query", OTHERS),
        (PROMPTS, "same", ("", ""), None, OTHERS),
        (PROMPTS, None, ("", ""), None, OTHERS),
        (PROMPTS, "same", ("", "passage: "), None, OTHERS),
        (dict.fromkeys(("query", "document", "same"), "compare "), "same", ("compare ", "compare "), "same", ""),
        ({"same": "compare "}, "same", ("compare ", "compare "), "same", OTHERS),
        ({"same": "compare "}, "same", ("", ""), None, OTHERS),
        ({"same": "compare "}, None, ("", ""), None, ""),
        ({"same": "compare "}, None, ("query: ", ""), None, OTHERS),
        ({"same": ""}, "same", ("query: ", ""), None, ADDED),
        ({"same": ""}, "same", ("query: ", "query: "), "query", ADDED),
        ({"same": ""}, None, ("", "passage: "), None, ADDED),
        ({}, None, ("query: ", "query: "), "query", ADDED),
    ],
)
def test_the_default_of_the_export_is_a_prompt_of_all_texts_or_none(
    prompts: dict[str, str],
    default: str | None,
    trained: tuple[str, str],
    expected_default: str | None,
    note: str,
) -> None:
    texts = dict(zip(("tokens", "positive"), trained, strict=True))
    before = Inference(max_tokens=64, normalize=True, prompts=prompts, default_prompt_name=default)
    after, notes = trained_prompts(before, {"text": of_dataset(texts)})
    own = {"query": trained[0], "document": trained[1]}
    assert after == replace(before, prompts={**prompts, **own}, default_prompt_name=expected_default)
    assert [line[: len(note)] for line in notes] == ([note] if note else [])


@pytest.mark.guarantee("prompts-trained")
@pytest.mark.parametrize("settings", [Inference(), Inference(prompts={"same": ""}, default_prompt_name="same")])
def test_settings_without_prompts_stay_as_they_are_for_texts_without(settings: Inference) -> None:
    for texts in ({}, {"tokens": "", "positive": ""}):
        after, notes = trained_prompts(settings, {"text": of_dataset(texts)})
        assert after is settings and notes == []


@pytest.mark.guarantee("prompts-trained")
def test_all_datasets_of_pairs_need_the_same_prompts() -> None:
    pairs, others = {"tokens": "query: ", "positive": "passage: "}, {"tokens": "query: ", "positive": ""}
    mined = of_dataset({**pairs, "negative": "passage: "})
    mined.manifest.lengths["negative"] = {}
    spans = of_dataset({"tokens": "compare "}, "view_0")
    same = {"spans": spans, "text": of_dataset(pairs), "mined": mined}
    assert trained_prompts(Inference(), same)[0].prompts == {"query": "query: ", "document": "passage: "}
    assert trained_prompts(Inference(), {"mined": mined})[0].prompts == {"query": "query: ", "document": "passage: "}
    assert trained_prompts(Inference(), {"spans": spans}) == (Inference(), [])
    for last in (others, {"tokens": "query: "}):
        with pytest.raises(RecipeError, match=r"data\.text has .* 'passage: ', data\.last 'query: ' and ''"):
            trained_prompts(Inference(), {**same, "last": of_dataset(last)})


@pytest.mark.guarantee("prompts-trained")
@pytest.mark.parametrize("texts", [{"tokens": "query: "}, {"positive": "passage: "}])
def test_a_prompt_of_one_side_is_exported_alone(texts: dict[str, str]) -> None:
    one_sided = of_dataset({}, "view_0")
    one_sided.manifest.lengths = {"positive": {}}
    after, notes = trained_prompts(Inference(), {"views": one_sided, "text": of_dataset(texts)})
    query, document = (texts.get(column, "") for column in ("tokens", "positive"))
    assert after.prompts == {"query": query, "document": document} and after.sides == Sides(query, document, "")
    shown = ", ".join(
        f"{side} {prompt!r}" if prompt else f"{side} none" for side, prompt in after.sides._asdict().items()
    )
    assert notes == [f"the export has the prompts of the training texts: {shown}"]
    noted = trained_prompts(Inference(prompts=PROMPTS), {"text": of_dataset(texts)})[1][0]
    before = "query 'query: ', document 'passage: ', other none"
    assert f"{before} became {shown} (`clearspan pairs --tokenizer MODEL` puts a model's own" in noted


@pytest.mark.guarantee("prompts-trained")
def test_a_span_leaves_the_prompt_of_its_text_behind(tokenizer_folder: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    dataset = of_dataset({"tokens": "", "positive": "passage: "})
    dataset.local_tokenizer = lambda: tokenizer_folder
    known = prompt_tokens(dataset)
    written = ["passage: " + " ".join(["owls"] * number) for number in (4, 9, 40)]
    texts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in written]
    leading = tokenizer("passage:", add_special_tokens=False)["input_ids"]
    assert known == {"positive": len(leading)} and all(text[: len(leading)] == leading for text in texts)
    lengths = torch.tensor([len(text) for text in texts])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    column = TokenLists(torch.tensor([token for text in texts for token in text]), offsets)
    sampler = SpanConfig(num_anchors=1, num_positives=1, min_span=1, max_span=9, placement="uniform", min_distance=0)
    for seed in range(50):
        batch = Batch({"positive": column}, torch.arange(3), torch.full((3,), seed))
        setting = SimpleNamespace(
            prompt_tokens=known, capacity=64, keys=lambda epochs, ids, purpose: epochs * 7919 + ids
        )
        spans, begin, _ = draw(batch, sampler, setting, "positive")  # type: ignore[arg-type]
        for start, length in ((spans.anchor_start, spans.anchor_length), (spans.positive_start, spans.positive_length)):
            first = begin + start.flatten()
            assert (first >= offsets[:-1] + len(leading)).all()
            assert (first + length.flatten() <= offsets[1:]).all()


def test_a_static_encoder_is_made_without_prompts_and_says_so(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert distill(["--model", str(source), "--output", str(tmp_path / "static")]) == 0
    assert "; the prompts of --model are left out" in capsys.readouterr().out
    assert not any(load_folder(tmp_path / "static").prompts.texts.values())


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--model", "{model}"], "held out; 'query: ' before titles, 'passage: ' before texts\n"),
        (
            ["--model", "{model}", "--prompt-name", "same"],
            "held out; 'compare ' before titles, 'compare ' before texts",
        ),
        (["--model", "static:{model}"], "held out; no prompts, since a static encoder has none\n"),
        (["--model", "{model}", "--text-field", "text"], "held out; no prompts, since crops have none: the trained"),
    ],
)
def test_adapt_says_which_prompts_it_trains_with(
    source: Path, titled: Path, tmp_path: Path, words: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(model=source) for word in words]
    assert adapt.main(["--input", str(titled), *given, "--output", str(tmp_path / "out"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert shown in printed
    assert ("--prompt-name=none" in printed) == ("static:" in words[1])
    assert printed.count("--prompt-name=same") == 5 * ("same" in words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--prompt-name", "title"], "--prompt-name title: the model has "),
        (
            ["--prompt-name", "query", "--text-field", "text"],
            "--prompt-name has no effect, since crops of texts without",
        ),
    ],
)
def test_a_prompt_without_effect_is_one_line(
    source: Path, titled: Path, tmp_path: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--input", str(titled), "--model", str(source), "--output", str(tmp_path / "out")]
    assert adapt.main([*given, *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"adapt: {complaint}") and error.count("\n") == 1
