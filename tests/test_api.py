"""`import clearspan`: quick, complete, and with the commands' own checks as exceptions."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import clearspan
from clearspan.common.errors import PipelineError
from clearspan.common.plain_json import from_json, to_json
from clearspan.common.spawned import call
from clearspan.common.terminal import UsageError
from clearspan.shards.manifest import ManifestError
from clearspan.train.config.options import RecipeError
from clearspan.train.request import TrainOptions
from tests.conftest import ROOT

HEAVY = ("apache_beam", "deepspeed", "numpy", "pyarrow", "torch", "transformers")


def test_the_import_loads_nothing_heavy() -> None:
    code = f"import sys, clearspan; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", clearspan.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    assert getattr(clearspan, name).__doc__
    assert name in dir(clearspan) and re.search(rf"\b{name}\b", str(clearspan.__doc__))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dry_run": True}, "dry_run is an option"),
        ({"overrides": ["--model=m"]}, "overrides: --model=m: is no recipe key with a value"),
    ],
)
def test_adapt_refuses_what_has_no_result(options: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        clearspan.adapt("a.csv", tmp_path / "adapted", **options)


def test_the_stub_exports_each_of_its_names_and_each_is_loaded() -> None:
    lines = ast.parse(Path(clearspan.__file__).with_suffix(".pyi").read_text()).body
    named = [(line.module, alias.name, alias.asname) for line in lines for alias in line.names]  # type: ignore[attr-defined]
    assert named and all(name == exported for _, name, exported in named), "only `NAME as NAME` is exported by a stub"
    assert {name: module for module, name, _ in named} == clearspan._PLACES and len(named) == len(clearspan._PLACES)


def test_no_name_is_hidden_by_a_package() -> None:
    """After `import clearspan.train` the package would stand in place of a function `train`; `adapt` is both."""
    both = {path.name for path in (ROOT / "clearspan").iterdir()} & set(clearspan.__all__)
    assert both == {"adapt"}
    for first in ("", "import clearspan.adapt.options; "):
        code = f"import clearspan; {first}a = clearspan.adapt; import clearspan.adapt.run; assert a is clearspan.adapt"
        done = subprocess.run([sys.executable, "-c", f"{code}; a('')"], capture_output=True, text=True)
        assert "missing a required argument: 'output'" in done.stderr


def test_what_a_process_prints_need_not_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    (tmp_path / "noisy.py").write_text(r"import os; write = lambda: os.write(1, b'\xff\n') and None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    call("noisy:write")
    assert capfd.readouterr().out == "\\xff\n"


@pytest.mark.guarantee("interrupt-reaches-all")
def test_an_interrupted_process_stays_quiet(tmp_path: Path) -> None:
    """In a process of its own, as this one may ignore interrupts."""
    code = """
        import os, signal, sys
        def wait():
            signal.signal(signal.SIGINT, lambda *_: (print("saved", flush=True), sys.exit(1)))
            os.kill(os.getppid(), signal.SIGINT)
            signal.pause()
    """
    (tmp_path / "interrupted.py").write_text(textwrap.dedent(code))
    caller = """
        import signal
        from clearspan.common.spawned import call
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        call("interrupted:wait", quiet=True)
    """
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(caller)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.slow
def test_a_pipeline_that_fails_raises_its_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"{tmp_path}/absent.txt") as raised:
        clearspan.make_tokenizer(tmp_path / "absent.txt", tmp_path / "out")
    assert "\n" not in str(raised.value) and not str(raised.value).startswith("pipelines: ")


@pytest.mark.exhaustive
def test_a_worker_of_beam_names_options_as_its_caller_does(tmp_path: Path, roberta_tokenizer: Path) -> None:
    lines = [{"text": "Owls hunt at dusk."}, *[{"body": f"Owl {number} hunts at dusk."} for number in range(2000)]]
    (tmp_path / "owls.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = {"tokenizer": roberta_tokenizer, "workers": 2, "unit_bytes": 20_000, "quiet": True}
    with pytest.raises(PipelineError, match=r"with `text_field` \(allowed: `max_bad_fraction` 0\.001"):
        clearspan.make_dataset("documents", tmp_path / "owls.jsonl", tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        ("docs", {}, "no such kind: 'docs'; did you mean 'documents'?"),
        ("absent.module:Kind", {}, "absent.module"),
        ("documents", {"min_token": 3}, "no such option: min_token; did you mean 'min_tokens'?"),
        ("documents", {"min_tokens": "few"}, "`min_tokens`: not an integer: 'few'"),
        ("documents", {}, "required: tokenizer"),
    ],
)
def test_wrong_options_of_a_dataset_are_refused_before_a_process_starts(
    kind: str, options: dict, complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("clearspan.shards.command.call", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(UsageError, match=re.escape(complaint)):
        clearspan.make_dataset(kind, "a.jsonl", tmp_path / "out", **options)


@pytest.mark.parametrize("beam", ["--runer=FlinkRunner", ["--runer=FlinkRunner"]])
@pytest.mark.parametrize("command", ["documents", "vocabulary"])
def test_options_of_beam_are_the_processes_alone_to_check(
    command: str, beam: str | list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beams = []
    monkeypatch.setattr("clearspan.shards.command.call", lambda _, *given, **__: beams.append(given[-1]))
    if command == "vocabulary":
        clearspan.make_tokenizer("a.jsonl", tmp_path, beam=beam)
    else:
        with pytest.raises(ManifestError, match="manifest"):  # no process has made it
            clearspan.make_dataset("documents", "a.jsonl", tmp_path, beam=beam, tokenizer="tokenizer")
    assert [getattr(each, "beam", each) for each in beams] == [("--runer=FlinkRunner",)]


def test_options_of_beam_are_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clearspan.shards.command.call", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(UsageError, match=r"^`beam`\.0 must be a text"):
        clearspan.make_tokenizer("a.jsonl", tmp_path, beam=5)


def test_a_recipe_takes_values_of_python() -> None:
    changes = {"data.text.path": Path("shards"), "output": "out", "training.bf16": False, "model.config": None}
    numbers = {"optimizer.betas": [0.8, np.float64(0.9)], "training.max_steps": np.int64(3)}
    recipe = clearspan.load_recipe("demo", {**changes, "model.path": "folder", **numbers})
    assert (recipe.training.bf16, recipe.model.config, recipe.model.path) == (False, {}, "folder")
    assert recipe.optimizer.betas == [0.8, 0.9] and recipe.data["text"].path == "shards"
    assert recipe.training.max_steps == 3


@pytest.mark.parametrize("path", ["shards #1", "a: b", "true", "null", "5e-5", "*.txt", " ü 😀 ", "'quoted'"])
def test_a_text_of_python_is_no_yaml(path: str) -> None:
    changes = {"data": {"text": {"path": Path("shards")}}, "data.text.validation": path, "training.eval_steps": 5}
    recipe = clearspan.load_recipe("demo", {**changes, "output": "out"})
    assert (recipe.data["text"].path, recipe.data["text"].validation) == ("shards", path)


def test_an_option_of_the_launcher_that_is_no_number_is_named() -> None:
    with pytest.raises(UsageError, match="`num_gpus`: not an integer: 'two'"):
        clearspan.train_model("demo", {"data.text.path": "shards", "output": "out"}, num_gpus="two")


def test_the_attributes_of_a_recipe_take_values_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trained = []

    def run(_: str, options: TrainOptions, *more: object, **__: object) -> None:
        trained.append(clearspan.load_recipe(from_json(TrainOptions, to_json(options)).recipe))

    monkeypatch.setattr("clearspan.train.api.call", run)
    recipe = clearspan.load_recipe("demo", {"data.text.path": "shards", "output": "out"})
    recipe.training.max_steps, recipe.training.bf16, recipe.optimizer.betas[1] = (
        np.int64(3),
        np.bool_(0),
        np.float64(0.9),
    )
    recipe.output, recipe.data["text"].batch_size = tmp_path / "ü", np.uint8(8)
    recipe.model.config["note"] = np.str_("u")
    assert clearspan.train_model(recipe).folder == tmp_path / "ü"
    made = trained[0]
    assert (made.training.max_steps, made.training.bf16, made.optimizer.betas[1]) == (3, False, 0.9)
    assert (made.output, made.data["text"].batch_size) == (str(tmp_path / "ü"), 8)
    assert made.model.config["note"] == "u"
    recipe.optimizer.betas[1] = b"1"
    with pytest.raises(UsageError, match=r"^optimizer\.betas\.1 must be .*, not bytes$"):
        clearspan.train_model(recipe)


def test_a_recipe_that_cannot_work_is_refused_before_a_process_starts() -> None:
    with pytest.raises(RecipeError, match="max_step"):
        clearspan.train_model("demo", {"training.max_step": 1})


@pytest.mark.exhaustive
def test_a_run_that_fails_raises_its_one_line(tmp_path: Path) -> None:
    recipe = clearspan.load_recipe("demo", {"data.text.path": tmp_path / "absent", "output": tmp_path / "run"})
    with pytest.raises(RuntimeError, match=f"{tmp_path}/absent") as raised:
        clearspan.train_model(recipe)
    assert "\n" not in str(raised.value) and not str(raised.value).startswith("train: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["stss"], "data": "."}, "unknown task 'stss'"),
        ({"tasks": ["sts"]}, "`tasks` needs `data`"),
        ({"pairs": "x.csv", "protocol": "quick"}, "`protocol` quick: choose full, fast"),
        ({"pairs": "x.csv", "protocoll": "fast"}, "no such option: protocoll; did you mean 'protocol'?"),
        ({"pairs": "x.csv", "batch_tokens": "many"}, "`batch_tokens`: not an integer: 'many'"),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused(options: dict, message: str, minilm: Path) -> None:
    with pytest.raises(UsageError, match=message):
        clearspan.evaluate(minilm, **options)
