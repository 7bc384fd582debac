"""Adapting a model to texts: the recipe, the verdict, what is refused, and one short gain on real texts."""

import csv
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import clearspan
from clearspan.adapt import __main__ as adapt
from clearspan.adapt import finish, running
from clearspan.adapt import recipe as adapt_recipe
from clearspan.adapt.options import Adapt
from clearspan.adapt.state import STATE
from clearspan.common.commands import CommandError
from clearspan.eval import compare, results
from clearspan.eval.api import load_model


@pytest.fixture(scope="module")
def static_model(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random token vectors of BERT's vocabulary, which know nothing yet."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("static") / "model"
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers/bert-base-uncased/tokenizer.json"))
    torch.manual_seed(0)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=64)], device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="module")
def abstracts(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cranfield's first 700 abstracts as a csv file."""
    text = (shared_data / "retrieval/cranfield/cran.all.1400").read_text()
    path = tmp_path_factory.mktemp("texts") / "abstracts.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "abstract"])
        writer.writerows(enumerate(" ".join(part.split()) for part in re.findall(r"(?s)\n\.W\n(.*?)\n\.I", text)[:700]))
    return path


@pytest.fixture
def arguments(abstracts: Path, static_model: Path, tmp_path: Path) -> list[str]:
    given = ["--input", str(abstracts), "--text-field", "abstract", "--model", str(static_model)]
    return [*given, "--output", str(tmp_path / "adapted"), "--holdout-fraction", "0.3", "--quiet"]


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.exhaustive
def test_a_killed_call_continues_and_ends_with_a_better_model(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before training and before the evaluation; each command runs once, apart from the one that compares its
    inputs, and the gain exceeds noise. Then a model of the same name is another one.
    """
    output, ran, run_module = tmp_path / "adapted", [], running.run_module

    def killed_before(module: str) -> None:
        def run(name: str, *words: object) -> None:
            if name == module:
                raise KeyboardInterrupt
            ran.append(name)
            run_module(name, *words)  # type: ignore[arg-type]

        monkeypatch.setattr(running, "run_module", run)

    given = Path(shutil.copytree(arguments[arguments.index("--model") + 1], tmp_path / "given"))
    command = [
        *arguments,
        "--model",
        str(given),
        "optimizer.learning_rate=0.1",
        "training.max_steps=30",
        "data.text.batch_size=128",
    ]
    pipelines, train, evaluation = (f"clearspan.{name}" for name in ("pipelines", "train", "eval"))
    for module, done in ((train, [pipelines]), (evaluation, [pipelines, pipelines, train])):
        killed_before(module)
        assert adapt.main(command) == 130 and ran == done
        assert not (output / "model").exists()
    killed_before("")
    assert adapt.main(command) == 0
    assert ran == [pipelines, pipelines, train, pipelines, evaluation]
    first = capsys.readouterr().out
    assert adapt.main(command) == 0 and ran[5:] == [pipelines]
    second = capsys.readouterr().out
    assert second.splitlines()[-2:] == first.splitlines()[-2:] and second.count("# finished") == 3

    found = json.loads((output / STATE).read_text())
    assert found["verdict"] == "better" and found["low"] > 3
    assert first.splitlines()[-2].startswith(f"better: MRR on held-out texts +{found['difference']:.2f} [")
    assert found["mrr"].keys() == {"before", "after", "hybrid", "tfidf", "bm25"}
    after, better = load_model(output / "run/model"), load_model(output / "model")
    assert (after.encode(["a wing in a slipstream"]) == better.encode(["a wing in a slipstream"])).all()
    assert (output / "report.html").is_file()

    texts, held_out = command[command.index("--input") + 1], command[command.index("--holdout-fraction") + 1]
    keys = [word for word in command if "=" in word]
    again = clearspan.adapt(texts, output, given, keys, quiet=True, text_field="abstract", holdout_fraction=held_out)
    assert (again.verdict, again.low, again.mrr) == ("better", found["low"], found["mrr"])
    assert again.model == output / "model" and ran[6:] == []

    for damaged, ends in (
        ("model", [pipelines]),
        ("run/model", [pipelines, train]),
        ("after", [pipelines, evaluation]),
    ):
        file = next((output / damaged).rglob("*.safetensors" if "model" in damaged else "results.json"))
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        capsys.readouterr()
        ran.clear()
        assert adapt.main(command) == 0 and ran == ends, damaged
        printed = capsys.readouterr().out
        assert str(output / damaged) in printed and printed.splitlines()[-2:] == first.splitlines()[-2:]
        assert file.read_bytes() == content or file.name == "results.json"
    assert (output / "model.damaged").is_dir() and (output / "run/model.damaged").is_dir()
    ran[:] = [""] * 6
    assert adapt.main([*command, "training.seed=5"]) == 2
    assert "its step train is that of another command; name another folder" in capsys.readouterr().err
    weights = next(given.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert adapt.main(command) == 2 and ran[6:] == [pipelines]
    assert f"--model {given}: is not, or no longer, the model of " in capsys.readouterr().err

    recipes = ("simcse-unsup-bert-base", "contrastive-only", "clear-roberta-base")
    assert [adapt.main([*arguments, "--recipe", recipe, "--dry-run"]) for recipe in recipes] == [0, 0, 0]
    assert capsys.readouterr().out.count("training.eval_data=heldout training.eval_steps=") == 3


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.1, 4.0, "better"),
        (-4.0, -0.1, "worse"),
        (-0.1, 4.0, "no difference"),
        (0.0, 0.0, "no difference"),
        (float("nan"), float("nan"), "no difference"),
    ],
)
def test_the_verdict_is_that_of_the_interval(low: float, high: float, word: str) -> None:
    assert finish.verdict(low, high) == word


@pytest.mark.parametrize(
    ("low", "high", "copied"), [(1.0, 3.0, "after"), (-3.0, -1.0, "before"), (-1.0, 3.0, "before")]
)
def test_the_better_model_is_delivered(
    low: float, high: float, copied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless training helped, it is the given model, whatever an earlier, killed call left."""
    for name, folder in (("before", tmp_path / "given"), ("after", tmp_path / "out/run/model")):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(name)
    row = SimpleNamespace(metric="mrr", task="heldout", difference=(low + high) / 2, low=low, high=high)
    monkeypatch.setattr(compare, "compare_folders", lambda a, b: SimpleNamespace(rows=[row]))
    scores = SimpleNamespace(scores={"heldout": {"mrr": 50.0}}, environment={})
    monkeypatch.setattr(results, "read", lambda folder: scores)
    options = Adapt(inputs=(), output=tmp_path / "out", model=str(tmp_path / "given"))
    finish.finish(options, {"steps": {}})
    assert (tmp_path / "out/model/config.json").read_text() == copied
    assert json.loads((tmp_path / "out" / STATE).read_text())["verdict"] == finish.verdict(low, high)


@pytest.mark.parametrize(
    ("num_texts", "median", "is_static", "recipe", "changes"),
    [
        (5_000, 30, False, "simcse-unsup-bert-base", adapt_recipe.SENTENCES),
        (5_000, 100, False, "crops", ("training.epochs=3",)),
        (50_000, 400, False, "crops", ()),
        (50_000, 2_048, False, "contrastive-only", adapt_recipe.LONG_TEXTS),
        (5_000, 30, True, "static", adapt_recipe.STATIC),
    ],
)
def test_the_recipe_follows_from_texts_and_model(
    num_texts: int, median: int, is_static: bool, recipe: str, changes: tuple[str, ...]
) -> None:
    chosen = adapt_recipe.choose(num_texts, median, is_static)
    assert (chosen.recipe, chosen.changes) == (recipe, changes)
    assert f"{num_texts:,} texts" in chosen.reason and f"{median:,} tokens" in chosen.reason
    assert ("single sentences" in chosen.reason) == (median < 32)
    assert adapt_recipe.choose(num_texts, median, is_static, recipe="mine.yaml")[:2] == ("mine.yaml", ())
    titled = adapt_recipe.choose(num_texts, median, is_static, has_titles=True)
    assert titled.recipe == ("static-pairs" if is_static else "pairs") and "single sentences" not in titled.reason


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ([], ["tokenizer", "texts", "start", "train", "eval"]),
        (["--model", "static:{model}"], ["texts", "start", "train", "eval"]),
        (["--model", "{model}"], ["texts", "train", "eval"]),
    ],
)
def test_titles_are_recognized_and_a_model_is_made_where_none_is_given(
    static_model: Path, tmp_path: Path, more: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    titled = tmp_path / "titled.csv"
    titled.write_text("id,title,abstract\n1,an owl,it hunts at night\n2,a fox,it hunts by day\n")
    line = ["--input", str(titled), "--output", str(tmp_path / "out"), "--dry-run"]
    assert adapt.main([*line, *(word.format(model=static_model) for word in more)]) == 0
    printed = capsys.readouterr().out
    steps = re.findall(r"(?m)^(\d)/(\d) (\w+): ", printed)
    assert steps == [(str(number), str(len(names)), name) for number, name in enumerate(names, 1)]
    assert not (tmp_path / "out").exists()
    assert "pairs of title and abstract (found by their names" in printed and "--fields=title,abstract" in printed
    assert adapt.main([*line, "--text-field", "abstract"]) == 0
    assert "pipelines documents" in capsys.readouterr().out


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.exhaustive
def test_titles_find_their_texts_better_after_training_a_static_encoder_from_the_texts_alone(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cranfield's titles and abstracts."""
    text = (shared_data / "retrieval/cranfield/cran.all.1400").read_text()
    pairs = re.findall(r"(?s)\n\.T\n(.*?)\n\.A\n.*?\n\.W\n(.*?)\n\.I", text)
    rows = [[" ".join(title.split()), " ".join(body.split())[len(" ".join(title.split())) :]] for title, body in pairs]
    path = tmp_path / "texts.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["title", "text"], *rows])
    line = ["--input", str(path), "--output", str(tmp_path / "texts"), "--holdout-fraction", "0.3", "--quiet"]
    assert adapt.main([*line, "training.max_steps=60"]) == 0
    assert "better: MRR of held-out titles " in capsys.readouterr().out
    state = json.loads((tmp_path / "texts" / "adapt.json").read_text())
    assert state["verdict"] == "better" and state["mrr"].keys() == {"before", "after", "hybrid", "tfidf", "bm25"}
    assert (tmp_path / "texts/model/README.md").read_text().count("static token vectors of 1024 dimensions") == 1

    weights = tmp_path / "texts/start/model.safetensors"
    content = weights.read_bytes()
    for damaged in (False, True):
        weights.write_bytes(content[:-1000]) if damaged else shutil.rmtree(weights.parent)
        assert adapt.main([*line, "training.max_steps=60"]) == 0
        said = capsys.readouterr().out
        assert f"{tmp_path}/texts/start/" in said and "step start is run again" in said
        assert weights.read_bytes() == content
    assert json.loads((tmp_path / "texts" / "adapt.json").read_text())["mrr"] == state["mrr"]


def test_bad_input_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*more: str) -> str:
        code, err = adapt.main([*arguments, *more]), capsys.readouterr().err
        assert code == 2 and err.count("\n") == 1
        return err.removeprefix("adapt: ")

    assert complaint("--model", "missing").startswith("--model missing: no such folder")
    assert complaint("--model", "static:missing").startswith("--model missing: no such folder")
    assert complaint("--fields", "title,abstract").startswith("--fields and --text-field: a text with a title, or")
    without = [word for word in arguments if word not in ("--text-field", "abstract")]
    assert adapt.main([*without, "--fields", "title"]) == 2
    assert capsys.readouterr().err == "adapt: --fields must name two different fields, e.g. title,text\n"
    inside = Path(arguments[arguments.index("--model") + 1]) / "adapted"
    assert complaint("--output", str(inside)).endswith("name a folder outside of it\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("mine")
    assert complaint("--output", str(tmp_path / "mine")).endswith(
        "holds something else: name a new or an empty folder\n"
    )
    (tmp_path / "mine/adapt.json").write_text("[]")
    assert "is not a file of this command" in complaint("--output", str(tmp_path / "mine"))

    def refuse(*_: object) -> None:
        raise CommandError("the command's own line", 2)

    assert complaint("--recipe", "statik") == "no recipe 'statik'; did you mean 'static'?\n"
    monkeypatch.setattr(running, "run_module", refuse)
    assert complaint() == "the command's own line\n"
