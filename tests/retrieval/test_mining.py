"""`clearspan mine`: negatives are those that scoring every text gives, and never a right or a held-out one."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unicodedata import normalize

import bm25s
import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import clearspan
from clearspan.common import same_text
from clearspan.common.encoder.folder import load_folder
from clearspan.common.errors import PipelineError
from clearspan.common.ragged import Ragged
from clearspan.pipelines.builders import rows as row_steps
from clearspan.pipelines.builders import text as text_kind
from clearspan.pipelines.units import unit as units
from clearspan.retrieval.mining import miner, nearest
from clearspan.retrieval.mining.choice import Allowed, ChoiceOptions, allowed_texts, negatives_of_rows
from clearspan.retrieval.mining.nearest import BestTexts, LexicalSearch, Nearest
from clearspan.retrieval.mining.source import MiningSource, read_source
from clearspan.retrieval.scoring import K1, B
from clearspan.retrieval.stemming import PLAIN
from clearspan.retrieval.topk import NONE
from clearspan.shards import Dataset, verify
from tests.conftest import ROOT
from tests.pipelines.conftest import Command, killed, rows

DIM = 12
OF_KINDS = "apache_beam cykooz_resizer deepspeed PIL simplejpeg soundfile soxr starlette uvicorn webdataset"
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({OF_KINDS!r}.split()))"
"""Without the libraries of Beam, sound and pictures: a module that is None in `sys.modules` cannot be imported."""
SETTINGS = {"prompts": {"query": "find: ", "document": "read: "}, "similarity_fn_name": "cosine"}


@pytest.fixture(scope="module")
def model(roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static encoder of random vectors, with prompts."""
    folder = tmp_path_factory.mktemp("models") / "static"
    (folder / "0_Static").mkdir(parents=True)
    shutil.copy(roberta_tokenizer / "tokenizer.json", folder / "0_Static")
    size = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json")).get_vocab_size()
    table = np.random.default_rng(0).normal(size=(size, DIM)).astype(np.float32)
    save_file({"embedding.weight": table}, folder / "0_Static" / "model.safetensors")
    module = {"idx": 0, "name": "0", "path": "0_Static", "type": "sentence_transformers.models.StaticEmbedding"}
    (folder / "modules.json").write_text(json.dumps([module]))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(SETTINGS))
    return folder


@pytest.fixture(scope="module")
def records(wiki: Path) -> list[dict[str, str]]:
    """The halves of 300 sentences, the first one of four the title of others too; some texts come twice."""
    lines = [line.split() for line in wiki.read_text(encoding="utf-8").split("\n") if len(line.split()) > 12][:300]
    found = [{"title": " ".join(line[:6]), "text": " ".join(line[6:])} for line in lines]
    for row in (7, 90, 150):
        found[row]["title"] = found[3]["title"].upper()
    for row in (40, 41):
        found[row]["text"] = f"  {found[20]['text']}"
    found[60]["text"] = found[61]["title"]
    return found


@pytest.fixture
def pairs(direct: Command, records: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of pairs in several work units, each of several batches, with a held-out part."""
    monkeypatch.setattr(row_steps, "TOKENIZE_ROWS", 8)
    monkeypatch.setattr(text_kind, "BATCH_BYTES", 500)
    monkeypatch.setattr(units, "BATCH_BYTES", 1000)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ["--holdout-fraction", "0.1", "--unit-bytes", "9000", "--prompt", "find: ", "--prompt", "read: "]
    ended = direct("pairs", "--input", tmp_path / "rows.jsonl", "--output", tmp_path / "pairs", *words)
    assert ended.code == 0, ended.err
    dataset = Dataset(tmp_path / "pairs")
    assert len(dataset.shards) > 3 and all(len(list(dataset.batches(shard))) > 2 for shard in dataset.shards[:3])
    return tmp_path / "pairs"


@pytest.fixture
def mine(pipeline: Command, model: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run `mine` into tmp_path/mined; return what --json prints."""

    def command(pairs: Path, *words: str | Path, output: str = "mined") -> dict[str, Any]:
        by = () if "--model" in words else ("--model", model)
        ended = pipeline("mine", pairs, *by, "--output", tmp_path / output, "--json", *words)
        assert ended.code == 0, ended.err
        found: dict[str, Any] = json.loads(ended.out)
        return found

    return command


@pytest.fixture
def texts(roberta_tokenizer: Path) -> Callable[[Path], list[dict[str, Any]]]:
    """Return the rows of a dataset with texts for token ids, without their prompts: a title, texts by sort."""
    tokenizer = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))

    def read(folder: Path) -> list[dict[str, Any]]:
        found = []
        for row in rows(folder):
            by_name = {name: tokenizer.decode(ids) for name, ids in row.items() if name != "id" and ids}
            assert all(text.startswith("find: " if name == "tokens" else "read: ") for name, text in by_name.items())
            plain = {name: text[6:].strip() for name, text in by_name.items()}
            negatives = [text for name, text in plain.items() if name.startswith("negative")]
            found.append({"id": row["id"], "title": plain["tokens"], "text": plain["positive"], "negatives": negatives})
        return found

    return read


def expected(held: list[dict[str, Any]], model: Path, number: int, margin: float = 0.05, depth: int = 40) -> list[Any]:
    """The negatives of each row by its title, from the cosines of all titles with all texts."""
    encoder = load_folder(model)
    spelled, known = ({same_text.key(row[name]): row[name] for row in reversed(held)} for name in ("title", "text"))
    titles = [spelled[same_text.key(row["title"])] for row in held]  # as the first row spells it
    distinct = list(dict.fromkeys(known[same_text.key(row["text"])] for row in held))
    left, right = encoder.encode_query(titles), encoder.encode_document(distinct)
    left, right = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (left, right))
    cosines = (left.astype(np.float64) @ right.astype(np.float64).T).round(6)
    keys = [same_text.key(text) for text in distinct]
    found = []
    for row, scores in zip(held, cosines, strict=True):
        same = {same_text.key(row["title"])}
        positives = {same_text.key(other["text"]) for other in held if same_text.key(other["title"]) in same}
        own = scores[keys.index(same_text.key(row["text"]))]
        order = [i for i in np.argsort(-scores, kind="stable") if keys[i] not in positives | same][:depth]
        found.append([distinct[i] for i in order if scores[i] <= own - abs(own) * margin][:number])
    return found


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.slow
def test_the_negatives_are_those_that_scoring_every_text_gives(
    pairs: Path, mine: Callable[..., Any], texts: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    before = texts(pairs)
    said = mine(pairs, "--negatives", "3")
    after = texts(tmp_path / "mined")
    assert verify(tmp_path / "mined") == []
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert [(row["title"], row["text"]) for row in after] == [(row["title"], row["text"]) for row in before]
    wanted = expected(before, model, 3)
    assert [row["negatives"] for row in after] == wanted
    counts = {str(number): sum(len(each) == number for each in wanted) for number in range(4)}
    assert said["rows_by_negatives"] == {number: count for number, count in counts.items() if count}
    assert said["rows"] == len(before) and said["negatives"] == sum(map(len, wanted)) > 100
    assert said["left_out"]["relative_margin"] > 0 and said["rows_with_shared_title"] >= 3


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--bm25", "2"), ("--bm25", "4", "--model", "none")])
def test_no_negative_is_held_out_or_right(
    pairs: Path, mine: Callable[..., Any], texts: Callable[..., Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    if "--model" in words:  # BM25 alone takes none
        assert clearspan.mine_negatives(pairs, tmp_path / "mined", bm25=4, max_score=1e9, quiet=True).num_examples
    else:
        mine(pairs, *words, "--relative-margin", "0")
    held = {same_text.key(row["text"]) for row in texts(pairs / "validation")}
    mined = texts(tmp_path / "mined")
    of_title: dict[str, set[str]] = {}
    for row in mined:
        of_title.setdefault(same_text.key(row["title"]), set()).add(same_text.key(row["text"]))
    assert held and sum(len(each) > 1 for each in of_title.values()) >= 1
    for row in mined:
        keys = [same_text.key(text) for text in row["negatives"]]
        right = of_title[same_text.key(row["title"])] | {same_text.key(row["title"])}
        assert len(set(keys)) == len(keys) and right.isdisjoint(keys) and held.isdisjoint(keys)
    assert sum(len(row["negatives"]) for row in mined) > 100


@pytest.mark.guarantee("any-workers")
@pytest.mark.slow
def test_the_bytes_do_not_depend_on_blocks_and_the_held_out_part_is_that_of_the_source(
    pairs: Path, mine: Callable[..., Any], tree: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--bm25", "1", "--sampling-strategy", "random", "--seed", "3")
    mine(pairs, *words)
    monkeypatch.setattr(miner, "ROWS", 7)
    monkeypatch.setattr(nearest, "TILE", 32)
    monkeypatch.setattr(nearest, "TOGETHER", 3)
    mine(pairs, *words, "--cache", "none", output="again")
    assert tree(tmp_path / "again") == tree(tmp_path / "mined")
    held = tree(pairs / "validation")
    assert {name: held[name] for name in tree(tmp_path / "mined" / "validation")} == tree(tmp_path / "mined/validation")
    assert verify(tmp_path / "mined" / "validation") == []
    mine(pairs, *words[:-1], "4", output="other")
    assert tree(tmp_path / "other") != tree(tmp_path / "mined")


@pytest.mark.guarantee("killed-run")
@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_and_run_again_it_ends_with_the_same_bytes(
    pairs: Path, mine: Callable[..., Any], tree: Callable[..., Any], model: Path, when: str, tmp_path: Path
) -> None:
    mine(pairs)
    whole = tree(tmp_path / "mined")
    words = ("mine", pairs, "--model", model, "--output", tmp_path / "again")
    for name in ("triplets-00001-000.tar", "00002.json", "manifest.json"):
        assert killed(when, name, *words) == -9
        assert not (tmp_path / "again" / "manifest.json").exists()  # killed at that of validation/
    mine(pairs, output="again")
    assert tree(tmp_path / "again") == whole


@pytest.mark.guarantee("killed-run")
@pytest.mark.slow
def test_killed_before_the_held_out_part_is_copied_it_has_one_in_the_end(
    pairs: Path, pipeline: Command, tree: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_here(*_: object) -> None:
        raise OSError("the disk is gone")

    words = ("mine", pairs, "--bm25", "4", "--output")
    assert pipeline(*words, tmp_path / "whole").code == 0
    with monkeypatch.context() as patch:
        patch.setattr(miner, "_copy_held_out", killed_here)
        assert pipeline(*words, tmp_path / "mined").code == 1
    assert not (tmp_path / "mined" / "manifest.json").exists()
    assert pipeline(*words, tmp_path / "mined").code == 0
    assert tree(tmp_path / "mined") == tree(tmp_path / "whole")
    assert "validation/manifest.json" in tree(tmp_path / "whole")
    next((tmp_path / "mined").glob("*.tar")).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(miner, "_mine_units", killed_here)
        assert pipeline(*words, tmp_path / "mined").code == 1
    assert not (tmp_path / "mined" / "manifest.json").exists(), "it lacks a shard"


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.slow
def test_a_finished_run_does_nothing_and_a_damaged_shard_is_mined_again(
    pairs: Path, mine: Callable[..., Any], tree: Callable[..., Any], tmp_path: Path
) -> None:
    first = mine(pairs)
    whole = tree(tmp_path / "mined")
    assert (again := mine(pairs))["texts"] is None and again["negatives"] == first["negatives"]
    shard = sorted((tmp_path / "mined").glob("*.tar"))[1]
    data = bytearray(shard.read_bytes())
    data[700] ^= 1
    shard.write_bytes(data)
    assert mine(pairs)["texts"] is not None
    assert tree(tmp_path / "mined") == whole


@pytest.mark.guarantee("changed-input")
@pytest.mark.slow
def test_a_changed_source_or_model_is_refused_and_a_damaged_one_is_named(
    pairs: Path, pipeline: Command, mine: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    mine(pairs, "--negatives", "2")
    words = ("mine", pairs, "--model", model, "--output")
    ended = pipeline(*words, tmp_path / "mined", "--negatives", "3")
    assert ended.code == 1 and "options.mining.negatives: 2 there, 3 now" in ended.err
    manifest = json.loads((pairs / "manifest.json").read_text())
    shard = pairs / manifest["shards"][1]["name"]
    data = bytearray(shard.read_bytes())
    data[-600] ^= 1
    shard.write_bytes(data)
    ended = pipeline(*words, tmp_path / "another")
    assert ended.code == 1 and shard.name in ended.err and "damaged" in ended.err and ended.err.count("\n") == 1
    assert not (tmp_path / "another" / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--bm25", "5"], 2, "--bm25 5 is more than --negatives 4"),
        (["--range-min", "38"], 2, "--range-max 40 and --range-min 38 leave fewer texts than --negatives 4"),
        (["--prompt-name", "passage"], 2, "--prompt-name passage: the model has query, document"),
        (["--output", "{pairs}/mined"], 1, "choose another folder"),
        (["{pairs}/validation"], 1, "is the held-out part of a dataset, which training never reads"),
        (["{pairs}/../mined"], 1, "already has mined negatives: name the dataset from which it was made"),
        (["--model", "{pairs}/missing"], 2, "no such folder: name a local folder with a model"),
    ],
)
def test_what_cannot_work_is_one_line(
    pairs: Path, pipeline: Command, model: Path, mine: Callable[..., Any], words: list[str], code: int, complaint: str
) -> None:
    if words[0].endswith("mined"):
        mine(pairs)
    given = [word.format(pairs=pairs) for word in words]
    source = [] if given[0].startswith("/") else [pairs]
    by = [] if "--model" in given else ["--model", model]
    into = [] if "--output" in given else ["--output", pairs.parent / "other"]
    ended = pipeline("mine", *source, *given, *by, *into)
    assert (ended.code, complaint in ended.err) == (code, True), ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_without_a_model_it_is_named_what_is_missing(pairs: Path, pipeline: Command, tmp_path: Path) -> None:
    ended = pipeline("mine", pairs, "--output", tmp_path / "mined")
    assert ended.code == 2 and "name a model, or let BM25 find all negatives with --bm25 4" in ended.err


@pytest.mark.exhaustive
def test_it_runs_where_the_libraries_of_other_kinds_are_not(
    pairs: Path, model: Path, mine: Callable[..., Any], tree: Callable[..., Any], tmp_path: Path
) -> None:
    """As on a machine with a GPU and no Beam."""

    def run_there(*words: str | Path) -> str:
        code = f"{WITHOUT}; from clearspan.cli.main import main; sys.exit(main(sys.argv[1:]))"
        given = [sys.executable, "-c", code, *map(str, words)]
        ended = subprocess.run(given, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    for command in ("mine", "search", "serve"):
        assert f"  clearspan {command} " in run_there(command, "--help")
    run_there("mine", pairs, "--model", model, "--output", tmp_path / "there", "--bm25", "1", "--quiet")
    mine(pairs, "--bm25", "1")
    assert tree(tmp_path / "there") == tree(tmp_path / "mined")


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.normal(size=shape).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize("tile", [5, 64, 1000])
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_the_search_is_exact_in_any_tiles(tile: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "TILE", tile)
    rng = np.random.default_rng(1)
    texts, queries = unit(rng, 300, DIM), unit(rng, 20, DIM)
    texts[50:60] = texts[40]  # ties, in several tiles
    pool = np.sort(rng.choice(300, 200, replace=False))
    without = [rng.choice(300, size, replace=False) for size in [0, 1, 150, *[3] * 17]]
    search = Nearest(texts, pool)
    if device == "torch":
        monkeypatch.setattr(search, "device", "cpu:0")
    found = search.search(queries, without, 30)
    cosines = (queries.astype(np.float64) @ texts.T.astype(np.float64)).round(6)
    for row, barred in enumerate(without):
        allowed = [number for number in pool.tolist() if number not in barred]
        best = sorted(allowed, key=lambda number: (-cosines[row, number], number))[:30]
        assert found.indices[row].tolist() == best
        np.testing.assert_array_equal(found.scores[row], cosines[row, best])


@pytest.mark.guarantee("mined-negatives")
def test_bm25_finds_what_its_library_scores_highest(
    records: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "TOGETHER", 7)
    texts, queries = [row["text"] for row in records], [row["title"] for row in records[:40]]
    index = bm25s.BM25(k1=K1, b=B, dtype="float64")
    index.index([PLAIN(text) for text in texts], show_progress=False)
    found = LexicalSearch(texts).search(queries, [np.array([3, row]) for row in range(40)], 12)
    for row, query in enumerate(queries):
        scores = index.get_scores([word for word in PLAIN(query) if word in index.vocab_dict]).round(6)
        allowed = [number for number in range(len(texts)) if scores[number] > 0 and number not in (3, row)]
        best = sorted(allowed, key=lambda number: (-scores[number], number))[:12]
        assert [number for number in found.indices[row].tolist() if number != NONE] == best


def test_bm25_finds_texts_in_every_form_of_unicode() -> None:
    texts = [normalize("NFD", "Die Häuser am See"), "STRASSENBAHN", "An owl."]
    found = LexicalSearch(texts).search(["häuser", "straßenbahn"], [np.array([], np.int64)] * 2, 1)
    assert found.indices.tolist() == [[0], [1]]


@pytest.mark.guarantee("mined-negatives")
def test_margins_leave_out_what_may_be_right_and_count_it() -> None:
    scores = np.array([[0.9, 0.77, 0.75, 0.5, 0.2, -np.inf], [0.1, -0.19, -0.4, -np.inf, -np.inf, -np.inf]])
    numbers = np.where(np.isneginf(scores), NONE, np.arange(6) + np.array([[0], [10]]))
    ranked, positives, ids = BestTexts(numbers, scores), np.array([0.8, -0.2]), np.array([5, 6])

    def left(**options: Any) -> tuple[list[list[int]], dict[str, int]]:
        given = ChoiceOptions(**{"negatives": 1, "relative_margin": None, **options})
        found = allowed_texts(ranked, scores, positives, ids, given)
        is_none = found.indices == NONE
        assert is_none.tolist() == np.sort(is_none, axis=1).tolist() == np.isneginf(found.scores).tolist()
        return [[n for n in row if n != NONE] for row in found.indices.tolist()], dict(found.left_out)

    assert left() == ([[0, 1, 2, 3, 4], [10, 11, 12]], {})
    assert left(relative_margin=0.05) == ([[2, 3, 4], [12]], {"relative_margin": 4})  # .76, and -.21
    assert left(absolute_margin=0.1) == ([[3, 4], [12]], {"absolute_margin": 5})
    assert left(max_score=0.76, min_score=0.0) == ([[2, 3, 4], [10]], {"max_score": 2, "min_score": 2})
    assert left(range_min=1, range_max=3) == ([[1, 2], [11, 12]], {})


@pytest.mark.guarantee("any-workers", "mined-negatives")
def test_random_choices_depend_on_the_row_alone() -> None:
    numbers = np.tile(np.arange(20), (6, 1))
    scores, ids = np.zeros((6, 20)), np.array([4, 9, 4, 1, 2, 3])
    options = ChoiceOptions(negatives=3, sampling_strategy="random", relative_margin=None, seed=2)
    found = allowed_texts(BestTexts(numbers, scores), scores, np.ones(6), ids, options).indices
    alone = allowed_texts(BestTexts(numbers[:1], scores[:1]), scores[:1], np.ones(1), ids[1:2], options).indices
    assert found[0].tolist() == found[2].tolist() != found[1].tolist() == alone[0].tolist()
    assert sorted(found[0].tolist()) == list(range(20)) != found[0].tolist()


@pytest.mark.guarantee("mined-negatives")
def test_one_of_model_and_bm25_fills_in_for_the_other() -> None:
    def of(*lists: list[int]) -> Any:
        numbers = np.array([each + [NONE] * (6 - len(each)) for each in lists])
        ranked = BestTexts(numbers, np.where(numbers == NONE, -np.inf, 0.5))
        return allowed_texts(ranked, ranked.scores, np.ones(len(lists)), np.arange(len(lists)), ChoiceOptions())

    taken = negatives_of_rows(
        of([1, 2, 3, 4, 5], [1], [1, 2, 3, 4], []), of([2, 1, 8, 9], [7, 8, 9, 6], [], [5]), ChoiceOptions(bm25=2)
    )
    assert [list(each) for each in taken] == [[1, 2, 8, 9], [1, 7, 8, 9], [1, 2, 3, 4], [5]]


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize(
    ("negatives", "bm25", "by_model", "by_words", "taken"),
    [
        (4, 2, [1, 2, 3, 4, 5], [2, 1, 8, 9, 7], [1, 2, 8, 9]),
        (4, 0, [1, 2], [3, 4, 5], [1, 2, 3, 4]),
        (4, 4, [2, 1], [3], [3, 2, 1]),
        (4, 4, [2, 1], [3, 4, 5, 6], [3, 4, 5, 6]),
        (5, 1, [1], [1, 2, 4, 3], [1, 2, 4, 3]),
        (3, 1, [5, 4, 3, 2], [], [5, 4, 3]),
        (3, 1, [], [5, 4, 3, 2], [5, 4, 3]),
        (2, 1, [1], [1], [1]),
        (2, 1, [], [], []),
        (2, 0, [3, 4, 5], None, [3, 4]),
        (2, 2, None, [3, 4, 5], [3, 4]),
        (2, 1, None, [3, 4, 5], [3, 4]),
        (2, 1, [3, 4, 5], None, [3, 4]),
    ],
)
def test_a_row_has_as_many_negatives_of_each_search_as_it_can(
    negatives: int, bm25: int, by_model: list[int] | None, by_words: list[int] | None, taken: list[int]
) -> None:
    def allowed(numbers: list[int] | None) -> Allowed | None:
        if numbers is None:
            return None
        indices = np.array([[*numbers, *[NONE] * (6 - len(numbers))], [11, *[NONE] * 5]])
        return Allowed(indices, np.where(indices == NONE, -np.inf, indices / 100), Counter())

    rows = list(negatives_of_rows(allowed(by_model), allowed(by_words), ChoiceOptions(negatives=negatives, bm25=bm25)))
    assert [list(row.items()) for row in rows] == [[(number, number / 100) for number in taken], [(11, 0.11)]]
    with pytest.raises(ValueError, match="zip"):
        alone = Allowed(np.array([[1]]), np.array([[0.5]]), Counter())
        list(negatives_of_rows(allowed([1]), alone, ChoiceOptions(negatives=2, bm25=1)))


@pytest.mark.guarantee("mined-negatives")
def test_each_option_counts_the_texts_that_the_ones_before_it_left() -> None:
    scores = np.array([[0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [0.3, 0.2, 0.1, 0.0, -0.1, -0.2]])
    options = ChoiceOptions(
        negatives=1, range_max=5, relative_margin=0.05, absolute_margin=0.25, max_score=0.6, min_score=0.0
    )
    ranked = BestTexts(np.arange(12).reshape(2, 6), scores)
    found = allowed_texts(ranked, scores, np.array([0.9, 0.25]), np.array([1, 2]), options)
    assert found.indices.tolist() == [[3, 4, *[NONE] * 4], [9, *[NONE] * 5]]
    assert found.left_out == {"relative_margin": 2, "absolute_margin": 4, "max_score": 0, "min_score": 1}
    assert found.scores[0, :2].tolist() == [0.6, 0.5] and np.isneginf(found.scores[1, 1:]).all()


@pytest.mark.guarantee("mined-negatives")
def test_a_random_choice_is_drawn_by_the_seed_and_the_row_and_stays_from_version_to_version() -> None:
    scores = np.tile(np.linspace(0.9, 0.0, 10), (3, 1))
    ranked = BestTexts(np.tile(np.arange(10), (3, 1)), scores)

    def drawn(seed: int) -> list[list[int]]:
        options = ChoiceOptions(negatives=2, sampling_strategy="random", range_min=1, max_score=0.75, seed=seed)
        return allowed_texts(ranked, scores, np.ones(3), np.array([4, 5, 4]), options).indices.tolist()

    assert (
        drawn(0)
        == [[5, 2, 7, 4, 8, 3, 6, 9, -1, -1], [6, 2, 4, 7, 8, 5, 9, 3, -1, -1], [5, 2, 7, 4, 8, 3, 6, 9, -1, -1]]
        != drawn(1)
    )
    assert all(sorted(row) == [NONE, NONE, *range(2, 10)] and row[-2:] == [NONE, NONE] for row in drawn(0))


class Given(list[pa.RecordBatch]):
    """A dataset of triplets of a few rows, in batches, with the tokenizer of a folder."""

    folder = "owls"

    def __init__(self, tokenizer: Path, prompts: dict[str, str], *batches: list[tuple[str, ...]]) -> None:
        self.tokenizer, self.manifest = tokenizer, SimpleNamespace(prompts=prompts)
        self.num_examples = sum(map(len, batches))
        made = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
        for batch in batches:
            columns = {}
            names = ("tokens", "positive", "positive_1", "negative")
            for name, texts in zip(names, zip(*batch, strict=True), strict=False):
                prompt = prompts.get(name.partition("_")[0], "")
                ids = [made.encode(prompt + text, add_special_tokens=False).ids if text else [] for text in texts]
                columns[name] = pa.array(
                    ids, pa.list_(pa.uint16() if made.get_vocab_size() <= 1 << 16 else pa.uint32())
                )
            self.append(pa.record_batch(columns))

    def local_tokenizer(self) -> Path:
        return self.tokenizer


OWLS = (
    [
        ("How do owls hunt?", "They hunt by ear.", "", "It rains."),
        ("Why are the streets wet?", "It rains.", "It snows.", ""),
        ("HOW do  owls hunt?", "They hunt at night.", "", "Snow falls."),
    ],
    [("It rains.", "The streets are wet.", "", ""), ("It SNOWS.", "they hunt by EAR.", "", "It snows.")],
)


@pytest.mark.guarantee("mined-negatives")
def test_what_is_right_for_a_title_is_right_for_all_of_its_rows_and_a_title_is_not_its_own_negative(
    roberta_tokenizer: Path,
) -> None:
    source = read_source(Given(roberta_tokenizer, SIDES, *OWLS), quiet=True)
    assert len(source.texts) == len({*source.texts}) == 6
    barred = [{source.texts[number] for number in source.not_negatives(row)} for row in range(5)]
    assert barred == [
        {"They hunt by ear.", "They hunt at night.", "It rains."},
        {"It rains.", "It snows."},
        {"They hunt by ear.", "They hunt at night.", "Snow falls."},
        {"It rains.", "The streets are wet."},
        {"It snows.", "They hunt by ear."},
    ]
    assert source.titles == ["How do owls hunt?", "Why are the streets wet?", "It rains.", "It SNOWS."]
    assert source.title_of.tolist() == [0, 1, 0, 2, 3]
    positives, negatives = (
        [[source.texts[number] for number in each] for each in side] for side in (source.positives, source.negatives)
    )
    ear, night, wet = (["They hunt by ear."], ["They hunt at night."], ["The streets are wet."])
    assert positives == [ear, ["It rains.", "It snows."], night, wet, ear]
    assert negatives == [["It rains."], [], ["Snow falls."], [], ["It snows."]]
    made = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    assert [made.decode(ids.tolist()) for ids in source.tokens] == [f"read: {text}" for text in source.texts]
    assert source.tokens.values.dtype == np.uint16


SIDES = {"tokens": "find: ", "positive": "read: ", "negative": "read: "}


@pytest.mark.guarantee("mined-negatives")
def test_positives_and_negatives_with_different_prompts_are_refused(roberta_tokenizer: Path) -> None:
    with pytest.raises(
        PipelineError, match="owls: its positives have the prompt 'read: ' and its negatives the prompt ''"
    ):
        read_source(Given(roberta_tokenizer, {**SIDES, "negative": ""}, *OWLS), quiet=True)
    assert len(read_source(Given(roberta_tokenizer, SIDES), quiet=True).texts) == 0


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize("prompts", [{}, {"tokens": "find: "}, {"positive": "read: "}, SIDES])
def test_pairs_are_read_without_their_prompts_and_one_text_is_enough(
    prompts: dict[str, str], roberta_tokenizer: Path
) -> None:
    source = read_source(Given(roberta_tokenizer, prompts, [("How do owls hunt?", "By ear.")]), quiet=True)
    assert (source.titles, source.texts) == (["How do owls hunt?"], ["By ear."])
    assert [each.tolist() for each in (source.title_of, *source.positives, *source.negatives)] == [[0], [0], []]
    assert source.not_negatives(0).tolist() == [0] and source.not_negatives(0).dtype == np.int64
    two = read_source(Given(roberta_tokenizer, prompts, [("Owls", "Rivers")], [("RIVERS", "owls")]), quiet=True)
    assert [sorted(two.not_negatives(row).tolist()) for row in (0, 1)] == [[0, 1], [0, 1]]
    empty = read_source(Given(roberta_tokenizer, prompts), quiet=True)
    assert empty.title_of.dtype == np.int64 and len(empty.title_of) == 0


@pytest.mark.guarantee("mined-negatives")
def test_ids_above_16_bits_and_prompts_with_special_tokens_are_read_as_they_are(tmp_path: Path) -> None:
    words = [f"owl{number}" for number in range(70_000)]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["[Q]", "find:", *words])}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[Q]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    prompts = {"tokens": "[Q] find: ", "positive": "[Q] "}
    source = read_source(Given(tmp_path, prompts, [("owl7 owl69999", "owl69998 owl2")]), quiet=True)
    assert (source.titles, source.texts) == (["owl7 owl69999"], ["owl69998 owl2"])
    assert [ids.tolist() for ids in source.tokens] == [[0, 70_000, 4]] and source.tokens.values.dtype == np.uint32


@pytest.mark.guarantee("mined-negatives")
def test_long_texts_of_one_beginning_are_several_and_whole(roberta_tokenizer: Path) -> None:
    beginning = "Owls hunt by ear, at night. " * 100
    rows = [(f"{beginning}How? {end}", f"{beginning}So it is. {end}") for end in ("Rain.", "Snow.")]
    source = read_source(Given(roberta_tokenizer, {}, rows), quiet=True)
    assert (source.titles, source.texts) == ([title for title, _ in rows], [text for _, text in rows])


@pytest.mark.guarantee("mined-negatives")
def test_texts_whose_cosines_differ_in_the_sixth_digit_are_told_apart() -> None:
    cosine = np.random.default_rng(0).permutation(0.9 + np.arange(400) / 500_000)
    vectors = np.stack([cosine, np.sqrt(1 - cosine**2)], axis=1).astype(np.float32)
    found = Nearest(vectors).search(np.array([[1, 0]], np.float32), [np.array([], np.int64)], 3)
    assert found.indices[0].tolist() == np.argsort(-cosine)[:3].tolist()
    many = np.concatenate([np.tile(vectors[:1] * [[0.5, -1]], (70_000, 1)), vectors]).astype(np.float32)
    found = Nearest(many).search(np.array([[1, 0]], np.float32), [np.array([70_000 + np.argmax(cosine)])], 2)
    assert found.indices[0].tolist() == (70_000 + np.argsort(-cosine)[1:3]).tolist()


def at(*cosines: float) -> np.ndarray:
    """Return unit vectors of these cosines with (1, 0)."""
    return np.stack([cosines, np.sqrt(1 - np.square(cosines))], axis=1).astype(np.float32)


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize("bm25", [0, 1])
def test_no_text_scores_above_any_positive_of_its_row(bm25: int) -> None:
    """Rows of one title have limits of their own, by the model's score whoever finds the text."""
    cosines = {
        "Owls hunt by ear.": 0.9,
        "They sleep by day.": 0.5,
        "How do owls hunt? By night.": 0.8,
        "How do owls hunt? Rain.": 0.7,
        "How do owls hunt? Snow.": 0.49,
        "How do fish swim?": 0.2,
        "It rains.": 0.95,
    }
    positives = Ragged.of([np.array([0, 1]), np.array([2]), np.array([1])], np.int64)
    own = Ragged.of([np.array([5]), *[np.empty(0, np.int64)] * 2], np.int64)  # the first row has a negative
    barred = Ragged.of([np.array([0, 1, 2]), np.array([1])], np.int64)
    tokens = Ragged.of([np.array([number]) for number in range(7)], np.uint16)
    of_rows = (["How do owls hunt?", "How?"], np.array([0, 0, 1]), [*cosines], tokens, positives, own, barred)
    options = ChoiceOptions(negatives=4, bm25=bm25, relative_margin=0.0)
    lexical = LexicalSearch([*cosines]) if bm25 else None
    made = miner.Miner(MiningSource(*of_rows), options, at(1, 1), Nearest(at(*cosines.values())), lexical)
    taken, figures = made.mine_rows(0, np.array([7, 8, 9]))
    assert [sorted(row) for row in taken] == [[4], [3, 4, 5], [4, 5]]
    assert (figures.rows, figures.negatives, figures.positives) == (3, 6, 4)
    assert figures.left_out["relative_margin"] > 0


@pytest.mark.guarantee("mined-negatives")
def test_texts_behind_a_tile_without_a_better_one_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "TILE", 20)
    cosine = np.repeat([0.5, 0.1, 0.9], 20) + np.arange(60) / 1000
    vectors = np.stack([cosine, np.sqrt(1 - cosine**2)], axis=1).astype(np.float32)
    found = Nearest(vectors).search(np.array([[1, 0]], np.float32), [np.array([58])], 2)
    assert found.indices.tolist() == [[59, 57]]


@pytest.mark.guarantee("mined-negatives")
def test_a_search_for_no_queries_or_in_no_texts_finds_none() -> None:
    vectors = unit(np.random.default_rng(2), 7, DIM)
    none, barred = np.empty((0, DIM), np.float32), [np.array([3]), np.array([], np.int64)]
    assert Nearest(vectors).search(none, [], 3).indices.shape == (0, 3)
    assert Nearest(vectors, np.array([], np.int64)).search(vectors[:2], barred, 3).indices.shape == (2, 0)
    assert Nearest(vectors, np.array([3])).search(vectors[:2], barred, 3).indices.tolist() == [[NONE], [3]]
    assert LexicalSearch(["Owls"]).search([], [], 3).indices.shape == (0, 3)
    with pytest.raises(ValueError, match="1 queries, and texts to leave out for 0"):
        LexicalSearch(["Owls"]).search(["owls"], [], 3)


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize("depth", [1, 5, 16, 60, 99, 100, 120])
def test_of_many_texts_with_equal_scores_the_first_are_found(depth: int) -> None:
    texts = [*(f"Owls of county {number}" for number in range(100)), "An owl is not owls.", "Rivers", "Owls"]
    found = LexicalSearch(texts).search(["owls"], [np.array([2, 7])], depth)
    best = [102, *(number for number in range(100) if number not in (2, 7)), 100][:depth]
    assert found.indices.tolist() == [[*best, *[NONE] * (depth - len(best))]]
    scores = found.scores[0][: len(best)]
    np.testing.assert_array_equal(scores, scores.round(6))
    assert np.isneginf(found.scores[0][len(best) :]).all() and (np.diff(scores) <= 0).all()
    assert len(set(scores.tolist())) == min(len(best), 2 + (len(best) > 99))


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize("max_rows", [7, 1 << 16])
def test_the_words_of_a_pool_are_searched_and_few_of_many_are_the_best(
    records: list[dict[str, str]], max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "MAX_ROWS", max_rows)
    texts = [row["text"] for row in records]
    pool = np.arange(0, 300, 2)
    found = LexicalSearch(texts, pool).search(["the of and", "qqq"], [np.array([4, 7, 8]), np.array([0])], 5)
    everything = LexicalSearch(texts).search(["the of and"], [np.array([4, 8])], 300)
    best = [number for number in everything.indices[0].tolist() if number != NONE and number % 2 == 0]
    assert len(best) > 30 and found.indices.tolist() == [best[:5], [NONE] * 5]
    assert np.isneginf(found.scores[1]).all() and (np.diff(found.scores[0]) <= 0).all()


@pytest.mark.guarantee("mined-negatives")
@pytest.mark.parametrize(
    ("limit", "beyond"),
    [({"relative_margin": 0.25}, 0), ({"absolute_margin": 0.25}, 0), ({"max_score": 0.75}, 0), ({"min_score": 0.5}, 1)],
)
def test_a_text_at_the_limit_itself_may_be_a_negative(limit: dict[str, float], beyond: int) -> None:
    scores = np.array([[0.75, 0.5]])
    options = ChoiceOptions(negatives=1, **{"relative_margin": None, **limit})  # type: ignore[arg-type]
    for shift, left in ((0.0, [0, 1]), (0.001 if beyond == 0 else -0.001, [1 - beyond, NONE])):
        ranked = BestTexts(np.array([[0, 1]]), scores + shift * (np.arange(2) == beyond))
        found = allowed_texts(ranked, ranked.scores, np.array([1.0]), np.array([3]), options)
        assert found.indices.tolist() == [left]
