"""The benchmarks: stored results print, the padded peer has the packed step's loss, a missing GPU is one line."""

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import adapting, cuda, cuda_runs, demo, equality, peer_trainer, shares, train_step
from benchmarks.docstrings import Module, summary_and_body, write_retrieval
from benchmarks.equality import Found, results
from benchmarks.equality_cases import BUILDERS, CASES, Case, selected
from benchmarks.span_step import build, documents, padded, padded_loss, plain
from clearspan.eval.scores import Examples
from clearspan.retrieval.comparison import SystemComparison
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.train.objectives import spans
from clearspan.train.recipe import load_recipe
from tests.conftest import ROOT

ABSENT = ("deepspeed", "apache_beam", "webdataset", "gigatoken")
"""Packages that a borrowed machine may lack."""
ALONE = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    "name",
    [
        "embed_bytes",
        "encode",
        "hybrid",
        "loader",
        "lora",
        "pipelines",
        "senteval",
        "shares",
        "titled_texts",
        "train_step",
    ],
)
def test_a_stored_result_prints_as_the_command_prints_its_own(name: str) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    printed = importlib.import_module(f"benchmarks.{name.removesuffix('_bytes')}").table(result)
    assert all(row in printed for row in result.get("rows", ()))


def test_without_a_cuda_device_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cuda"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cuda.main() == 2
    assert capsys.readouterr() == ("", "benchmarks.cuda: no CUDA device here: run it where nvidia-smi lists one\n")


@pytest.mark.exhaustive
def test_the_tests_for_cuda_are_collected_where_much_is_not_installed() -> None:
    assert [path.name for path in cuda.marked()] == ["test_cuda.py"]
    words = ["-m", "cuda", "-rs", "-p", "no:cacheprovider", str(cuda.marked()[0])]
    program = f"""import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
import pytest
from benchmarks import cuda, train_step
sys.exit(pytest.main({words!r}))"""
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=ALONE, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "no CUDA device here: `python -m benchmarks.cuda` runs this test where there is one" in found.stdout


def test_files_that_differ_are_named_and_what_tells_time_or_place_is_not_compared(tmp_path: Path) -> None:
    cases = [Case("made", "datasets", (), ()), Case("wrong", "refusals", (), ())]
    for checkout in ("before", "after"):
        made = tmp_path / checkout / "out"
        (made / ".clearspan").mkdir(parents=True)
        (made / "a.tar").write_bytes(b"a shard")
        (made / "b.json").write_text(json.dumps({"rows": [{"mrr": 0.5, "seconds": len(checkout)}], "run": checkout}))
        (made / "m.jsonl").write_text(
            "".join(f'{{"loss": 0.1, "tokens_per_s": {len(checkout) + n}}}\n' for n in range(2))
        )
        for name in (".clearspan/00000.json", "report.html"):
            (made / name).write_text(checkout)
    before, after = tmp_path / "before/out", tmp_path / "after/out"
    first = {"made": Found([0, 0], results(before), 1.5), "wrong": Found([2], {})}
    same = {"made": Found([0, 0], results(after), 2.5), "wrong": Found([2], {})}
    assert list(equality.differences(first, same, cases)) == [(cases[0], 4, []), (cases[1], 1, [])]
    (after / "a.tar").write_bytes(b"A shard")
    (after / "b.json").write_text(json.dumps({"rows": [{"mrr": 0.5000000000000001}]}))
    (after / "c.txt").write_text("only here")
    second = {"made": Found([0, 1], results(after)), "wrong": Found([1], {})}
    found = list(equality.differences(first, second, cases))
    assert found == [
        (cases[0], 1, ["exit codes [0, 0], [0, 1]", "a.tar", "b.json", "c.txt"]),
        (cases[1], 0, ["exit codes [2], [1]"]),
    ]


def test_a_case_that_fails_or_succeeds_in_both_checkouts_against_its_table_is_wrong() -> None:
    codes = {"made": ([1], [2]), "made in one": ([0], [1]), "refused": ([2], [0]), "done": ([0], [0])}
    cases = [Case(name, "datasets" if "made" in name else "refusals", (), ()) for name in codes]
    before, after = ({name: Found(pair[side], {}) for name, pair in codes.items()} for side in (0, 1))
    assert equality.unexpected(before, after, cases) == ["made", "done"]


def test_each_case_runs_after_those_that_it_needs() -> None:
    for names in (["search"], ["training", "datasets"], ["ranks"]):
        order = [case.name for case in selected(names)]
        assert len(order) == len({*order})
        assert all(order.index(need) < order.index(case) for case in order for need in CASES[case].needs)
    assert [case.name for case in selected(["hits"])] == [
        "tokenizer", "sentences", "documents", "encoder", "vectors", "hits",
    ]  # fmt: skip


@pytest.mark.parametrize("builder", BUILDERS)
def test_each_format_and_each_option_of_a_builder_is_in_a_case(builder: str) -> None:
    _, formats, options = BUILDERS[builder]
    covered = [name.removeprefix(f"{builder}-") for name in CASES]
    assert all(any(name.startswith(f"{format_}-") for name in covered) for format_ in formats)
    assert all(any(name.endswith(f"-{option}") for name in covered) for option in options)


def test_outputs_that_are_kept_are_of_the_same_commit_or_refused(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (tmp_path / "kept/inputs").mkdir(parents=True)
    checkout.mkdir()
    equality.prepared(tmp_path / "kept", checkout, checkout)
    (tmp_path / "kept/2/left").touch()
    equality.prepared(tmp_path / "kept", checkout, checkout)
    assert not (tmp_path / "kept/2/left").exists()
    with pytest.raises(ValueError, match="another commit"):
        equality.prepared(tmp_path / "kept", tmp_path, checkout)


@pytest.mark.exhaustive
def test_a_checkout_makes_the_same_as_itself_and_what_another_makes_otherwise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one is a copy, whose tokenizers have one id less than they should."""
    words = ["equality", str(ROOT), str(ROOT), "--keep", str(tmp_path / "kept"), "--only", "tokenizer,no-option"]
    monkeypatch.setattr(sys, "argv", words)
    assert equality.main() == 0
    assert "cases that differ" in capsys.readouterr().out
    other = tmp_path / "other"
    shutil.copytree(ROOT, other, ignore=shutil.ignore_patterns(".*", "tests", "docs"), symlinks=True)
    command = other / "pipelines/vocabulary_command.py"
    command.write_text(command.read_text().replace("contents), options.size,", "contents), options.size - 1,"))
    words[2] = str(other)
    assert equality.main() == 1
    assert "tokenizer: summary.json, tokenizer.json" in capsys.readouterr().out


@pytest.mark.parametrize("size", [20, 60])
def test_fewer_texts_are_ranked_by_no_more_titles_than_they_hold_texts_of(size: int) -> None:
    """Of 20 dev titles and 20 test titles: as many of each as fit, each with its own text."""
    titles, texts, one = [f"title {n}" for n in range(40)], [f"text {n}" for n in range(100)], np.array([1])
    whole = RetrievalSet(texts, titles, [np.array([n]) for n in range(40)], [one] * 40)
    part = adapting.fitting(SystemComparison(whole, [(np.arange(20, 40), np.arange(20))]), size)
    assert len(part.test) == len(part.dev) == min(size // 2, 20)
    ranked = adapting.of_size(part.collection, size)
    assert len(ranked.documents) == len(set(ranked.documents)) == size
    right = [ranked.documents[row] for (row,) in ranked.relevant]
    assert right == [query.replace("title", "text") for query in ranked.queries]
    assert {ranked.queries[row] for row in part.test} <= {*titles[:20]}


def test_judged_queries_are_compared_with_the_untrained_model_alone_and_beside_bm25() -> None:
    """Of 400 queries, the trained model finds each that the untrained one finds, and others."""
    draws = np.random.default_rng(0).random(400)
    shares = {"BM25": 0.2, "base model": 0.3, "base model + BM25": 0.4, "static": 0.5, "static + BM25": 0.45}
    found = {name: {"cranfield": Examples.of("mean", draws < share)} for name, share in shares.items()}
    judged = adapting.judged_figures(found, {"static + BM25": 0.7})
    of_task = {name: system["tasks"]["cranfield"] for name, system in judged.items()}
    expected = 100 * (np.mean(draws < 0.45) - np.mean(draws < 0.4))
    change = of_task["static + BM25"]["against"]["base model + BM25"]
    assert change["value"] == pytest.approx(expected) and 0 < change["low"] < expected < change["high"]
    assert of_task["BM25"]["against"]["base model"]["high"] < 0 and "base model" not in of_task["base model"]["against"]
    lines = adapting.judged_lines(judged)
    figure, both = 100 * np.mean(draws < 0.45), 100 * (np.mean(draws < 0.45) - np.mean(draws < 0.3))
    assert any(line.startswith(f"| static + BM25 (w 0.7) | {figure:.2f}, {both:+.1f} [") for line in lines)
    assert lines[-1].startswith(f"| static + BM25 against base model + BM25 | {expected:+.1f} [") and len(lines) == 8
    without = {name: tasks for name, tasks in found.items() if name in ("BM25", "static")}
    assert len(adapting.judged_lines(adapting.judged_figures(without, {}))) == 4


def test_the_demos_queries_are_of_held_out_modules_and_rank_the_bodies_of_all(tmp_path: Path) -> None:
    """Of modules whose names' hashes decide; a body that a training module has too is no query's."""
    modules = [
        Module(f"package.module{i}", [docstring(f"of module {i}"), docstring("that all have")]) for i in range(60)
    ]
    held_out = [module for module in modules if module.held_out]
    num_queries, num_texts = write_retrieval(modules, tmp_path, 1000)
    assert (num_queries, num_texts) == (len(held_out), 61) and 0 < len(held_out) < 30
    corpus = {row["_id"]: row["text"] for row in map(json.loads, (tmp_path / "corpus.jsonl").open())}
    queries = {row["_id"]: row["text"] for row in map(json.loads, (tmp_path / "queries.jsonl").open())}
    judged = [line.split("\t")[:2] for line in (tmp_path / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    found = {(queries[query], corpus[text]) for query, text in judged}
    assert found == {summary_and_body(module.docstrings[0]) for module in held_out}
    assert write_retrieval(modules, tmp_path, 2) == (2, 61)


def docstring(ending: str) -> str:
    return f"Return the first thing {ending}\n\n{'It is a body of many words ' * 4}{ending}"


def test_the_demos_estimate_grows_with_the_time_that_its_probes_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes = iter([demo.PRODUCT_S, demo.TEXT_S, 2 * demo.PRODUCT_S, 3 * demo.TEXT_S])
    monkeypatch.setattr(demo, "seconds_of", lambda work: next(probes))
    assert [seconds for _, seconds in demo.planned()] == list(demo.STAGES.values())
    slower = {name: seconds / demo.STAGES[name.partition("] ")[2]] for name, seconds in demo.planned()}
    assert all(factor == (2 if "training" in name else 3) for name, factor in slower.items())
    assert capsys.readouterr().out.startswith("7 stages, about ")


@pytest.mark.parametrize(("limit_s", "said"), [(60.0, "No module named absent"), (0.01, "took more than 0 s")])
def test_a_part_that_fails_or_hangs_is_told(limit_s: float, said: str) -> None:
    found = cuda.run(["absent"], limit_s)
    assert not found["ok"] and said in found["output"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("whole", [False, True])
def test_a_padded_step_has_the_loss_of_the_packed_one_it_was_made_from(whole: bool) -> None:
    learner = build(1, 64, 0.0, pairs=False).eval()
    given = documents(2)
    made = padded(learner, given)
    loss, metrics = learner(given)
    assert made.tokens == metrics["tokens"] < made.rows and made.sequences == 2 * 6
    other = padded_loss(plain(learner).eval(), made, spans.SpansConfig().temperature, whole)
    torch.testing.assert_close(other, loss, atol=0.0, rtol=1e-4)


def test_sentence_transformers_own_trainer_steps_over_prepared_pairs() -> None:
    pytest.importorskip("datasets", reason="sentence-transformers' trainer wants it: extra `benchmarks`")
    learner = build(1, 64, 0.0, pairs=True)
    made = padded(learner, documents(2))
    model = peer_trainer.sentence_transformer(plain(learner), 1, "cpu")
    optimizer = torch.optim.AdamW(model.parameters())
    trainer = peer_trainer.PeerTrainer(model, [(made.anchors, made.positives)], optimizer, 0.05, 1.0, lambda: None)
    seconds, _ = trainer.seconds(2, bf16=False)
    assert seconds > 0 and {int(state["step"]) for state in optimizer.state.values()} == {3}


@pytest.mark.exhaustive
def test_a_budget_is_checked_without_a_forward_and_a_peer_without_memory_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An fp32 forward of all documents takes several times the memory of a step."""
    monkeypatch.setattr(peer_trainer, "why_not", lambda: "left out")
    bench = train_step.Bench({"layers": 1, "hidden": 64, "documents": 2, "batches": 2, "steps": 1}, "cpu")
    ran = []
    for name, learner in bench.learners.items():
        learner.encoder.register_forward_hook(lambda *_, name=name: ran.append(name))
        monkeypatch.setattr(learner.encoder, "compile_static", lambda: None)
    bench.compile()
    assert not ran and all(learner.static for learner in bench.learners.values())

    def full() -> torch.Tensor:
        raise torch.OutOfMemoryError

    bench.contenders = {name: bench.contenders[name] for name in ("packed", "padded")}
    bench.contenders["padded"].loss = full
    bench.warm_up(bf16=False)
    assert list(bench.contenders) == ["packed"] and "padded: out of memory" in bench.note and ran


def test_the_runs_on_a_gpu_are_listed_before_they_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each objective and option of the loop, resuming, ZeRO 1 and 2, and what uses a trained model."""
    monkeypatch.setattr(sys, "argv", ["cuda", "--dry-run", "--parts", "runs"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cuda.main() == 0
    first, *lines = capsys.readouterr().out.splitlines()
    steps = dict(line.split(": ", 1) for line in lines if not line.startswith("data: "))
    assert first.startswith("runs: python -m benchmarks.cuda_runs")
    others = {"resume", "adapt", "eval", "embed", "replay", "encode"}
    assert steps.keys() == {*cuda_runs.OBJECTIVES, *others, "encode-mpnet", "encode-t5", "encode-qwen3"}
    trainings = [steps[name] for name in (*cuda_runs.OBJECTIVES, "resume")]
    assert all(" train/run.py " in line for line in trainings) and steps["resume"].endswith(" --resume --quiet")
    assert all(f"training.zero_stage={stage}" in steps[f"zero-{stage}"] for stage in (1, 2))
    assert " --workers=2 " in steps["embed"] and " --num_accelerators=2 " in steps["two-ranks"]
    assert list(steps)[:2] == ["encode", "embed"], "what is timed comes first"
    objectives = {word.split(".")[1] for line in trainings for word in line.split() if word.startswith("objectives.")}
    assert {
        "mlm",
        "clear",
        "simcse",
        "patches",
        "pairs",
    } <= objectives and "spans" in steps  # the recipe demo has spans


@pytest.mark.parametrize("name", [*cuda_runs.OBJECTIVES])
def test_a_run_on_a_gpu_has_a_recipe_that_can_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    step = cuda_runs.Plan("cuda", tmp_path, []).training(name)
    keys = [word for word in step.words[step.words.index("--recipe=demo") + 1 :] if not word.startswith("--")]
    recipe = load_recipe("demo", keys)
    assert recipe.training.max_steps == 60 and recipe.output == str(tmp_path / "runs" / name)


def required(names: Iterable[str]) -> set[str]:
    """Return packages, and all that they require, by their normalized names."""
    found, left = set[str](), [*names]
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for line in importlib.metadata.requires(name) or []:
                requirement = Requirement(line)
                if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
                    left.append(requirement.name)
    return found


BARE = """import atexit, os, pathlib, sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {absent!r} else super().find_spec(name, path, target)

sys.meta_path[:] = [Bare if each is PathFinder else each for each in sys.meta_path]
atexit.register(lambda: pathlib.Path({folder!r}, str(os.getpid())).write_text("\\n".join(sys.modules)))
"""
"""A sitecustomize: a machine without these modules; each process writes what it imported into a folder."""


@pytest.mark.exhaustive
def test_a_part_of_the_runs_passes_on_a_cpu_with_the_packages_of_the_help_alone(tmp_path: Path) -> None:
    """Without Beam and all else that is neither assumed nor listed; what is listed is imported."""
    owners = importlib.metadata.packages_distributions()
    there = required([*cuda.ASSUMED, "importlib-metadata"])  # awkward's, before Python 3.12
    there |= {*map(canonicalize_name, cuda.NEEDED.values())}
    absent = {top for top, names in owners.items() if not there & {*map(canonicalize_name, names)}}
    absent -= {"clearspan", "train", "tests", "benchmarks"}
    site, imported = tmp_path / "site", tmp_path / "imported"
    site.mkdir(), imported.mkdir()
    (site / "sitecustomize.py").write_text(BARE.format(absent=absent, folder=str(imported)))
    only = "--only=encode,embed,mlm,adapt,eval"
    words = ["-m", "benchmarks.cuda_runs", "--device=cpu", only, f"--work={tmp_path / 'work'}"]
    environment = {**ALONE, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    output = tmp_path / "runs.json"
    done = subprocess.run(
        [sys.executable, *words, f"--output={output}"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(output.read_text())["steps"]
    assert steps["mlm"]["steps"] == 4 and steps["mlm"]["last_loss"] > 0 and "mlm" in done.stdout
    assert steps["embed"]["embed, texts_per_s"] > 0 and steps["encode"]["encode cosine, fp32"] > 0.9999
    modules = {name for path in imported.iterdir() for name in path.read_text().split()}
    assert {*cuda.NEEDED} <= modules and "apache_beam" in absent


@pytest.mark.exhaustive
def test_layers_compiled_or_with_one_product_give_the_same_states(tmp_path: Path) -> None:
    words = ["--device=cpu", "--layers=2", "--hidden=64", "--tokens=600", "--precisions=fp32"]
    output = tmp_path / "layers.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.encode_layers", *words, f"--output={output}"],
        cwd=ROOT,
        env={**ALONE, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text())["rows"]
    assert [*rows] == ["as it is, fp32", "one product, fp32", "compiled, fp32"]
    assert rows["as it is, fp32"]["times"] == 1 and rows["compiled, fp32"]["first_s"] > 0


def test_a_run_that_failed_says_why_and_what_needs_it_is_not_started(tmp_path: Path) -> None:
    failing = cuda_runs.Step("one", (sys.executable, "-c", "import sys; sys.exit('no such GPU')"))
    failed = cuda_runs.run(failing, tmp_path, {}, {}, 60)
    assert not failed["ok"] and failed["reason"] == "exit code 1: no such GPU"
    assert (
        cuda_runs.run(cuda_runs.Step("two", needs=("one",)), tmp_path, {"one": False}, {}, 60)["reason"] == "needs one"
    )
    assert cuda_runs.run(failing, tmp_path, {}, {}, 0)["reason"] == "not reached: time"


def test_a_step_that_fails_leaves_the_others_and_one_that_needs_it_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> dict[str, float]:
        raise KeyError("tokens")

    def slow() -> dict[str, float]:
        assert released.wait(60)
        return {}

    def release() -> dict[str, float]:
        released.set()
        return {}

    plan, done, released = cuda_runs.Plan("cpu", tmp_path, []), dict[str, float], threading.Event()
    steps = [
        cuda_runs.Step("broken", work=broken),
        cuda_runs.Step("after", work=done, needs=("broken",)),
        cuda_runs.Step("other", work=slow),
        cuda_runs.Step("waits", work=done, needs=("other",)),
        cuda_runs.Step("release", work=release),
        cuda_runs.Step("absent", left_out="there are no two GPUs"),
    ]
    monkeypatch.setattr(plan, "waves", lambda: [steps, [cuda_runs.Step("last", work=done, needs=("other",))]])
    found = cuda_runs.run_all(plan, 3, 60)
    assert [name for name, result in found.items() if not result["ok"]] == ["broken", "after"]
    assert found["broken"]["reason"] == "KeyError: 'tokens'" and found["after"]["reason"] == "needs broken"
    assert found["absent"]["left_out"] == "there are no two GPUs" and found["last"]["ok"]


def test_each_of_the_two_commands_ends_in_eight_minutes_with_its_start() -> None:
    limits = cuda.LIMITS_S
    assert max(sum(limits.values()) - limits["runs"], limits["runs"]) + cuda.START_S <= 480
    assert limits["runs"] - cuda.START_S > cuda_runs.LIMIT_S


def test_two_ranks_are_left_out_where_there_is_one_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    step = cuda_runs.Plan("cuda", tmp_path, []).training("two-ranks")
    assert str(step) == "two-ranks: there are no two GPUs" and cuda_runs.run(step, tmp_path, {}, {}, 60)["ok"]


@pytest.mark.exhaustive
def test_the_gradient_says_how_the_loss_changes_only_if_the_backward_pass_repeats_the_dropout() -> None:
    """dynamo's backend `eager` recomputes layers with other dropout."""
    size = cuda_runs.SIZES["cpu"]
    change, loss = cuda_runs.replay("cpu", size, checkpointing=True)
    wrong, same = cuda_runs.replay("cpu", size, checkpointing=True, backend="eager")
    assert change == pytest.approx(1, abs=0.02) and wrong < 0.7 and same == pytest.approx(loss, rel=1e-3)


def test_the_rate_of_a_training_leaves_out_the_interval_that_compiles(tmp_path: Path) -> None:
    plan = cuda_runs.Plan("cuda", tmp_path, [])
    run = tmp_path / "runs" / "declutr"
    run.mkdir(parents=True)
    rates = {10: 1.0, 20: 100.0, 30: 100.0, 40: 2.0, 50: 300.0, 60: 300.0}
    lines = [json.dumps({"step": step, "loss": 3.0, "tokens_per_s": rate}) for step, rate in rates.items()]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    assert plan.trained("declutr", 60, start=30)["tokens_per_s"] == 300
    (run / "metrics.jsonl").write_text("\n".join(lines[:3]))
    assert plan.trained("declutr", 30)["tokens_per_s"] == 100


def test_the_rate_of_embed_leaves_out_each_workers_first_unit(tmp_path: Path) -> None:
    plan, folder = cuda_runs.Plan("cpu", tmp_path, []), tmp_path / "vectors" / ".clearspan"
    folder.mkdir(parents=True)
    for number, end in enumerate([30, 33, 34, 35, 36]):  # loading took 30 s; 80 texts a unit
        (folder / f"{number:05}.json").touch()
        os.utime(folder / f"{number:05}.json", (end, end))
    manifest = folder.parent / "manifest.json"
    manifest.write_text(json.dumps({"shards": [{"examples": 150}, {"examples": 250}]}))
    assert plan.embedded() == {"embed, texts_per_s": 80}
    manifest.write_text(json.dumps({"shards": [{"examples": 399}]}))
    with pytest.raises(ValueError, match="holds vectors of 399 texts, not of 400"):
        plan.embedded()


def test_a_package_that_a_gpus_machine_lacks_is_named_with_the_command_that_downloads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cuda", "--parts", "tests"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "NEEDED", {"json": "hjson", "not_here": "soxr", "nor_this": "deepspeed"})
    assert cuda.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("benchmarks.cuda: not installed: soxr, deepspeed: pip download ") and said.count("\n") == 1
    assert "--python-version 3.12 --platform manylinux_2_28_x86_64 " in said and " soxr==1." in said
    assert "pip wheel --no-deps --no-build-isolation -w wheels deepspeed==0." in said


def test_the_help_lists_all_wheels_by_their_pins() -> None:
    assert cuda.missing() == [] and cuda.pinned(cuda.NEEDED.values())
    assert cuda.download(cuda.NEEDED.values()) in cuda.wheels_help()


@pytest.mark.slow
def test_shares_are_measured_on_titles_and_on_questions(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trained model is the model itself, so that every share finds what the base model finds."""
    animals = {"owl": "hunts mice by night", "hen": "lays eggs in a barn", "fox": "steals hens", "cow": "gives milk"}
    documents = [f"The {animal} {habit}." for animal, habit in animals.items()]
    ones = [np.ones(1, np.int64)] * 4
    titles = RetrievalSet(documents, list(animals), [np.array([place]) for place in range(4)], ones)
    (tmp_path / "farm.csv").write_text(
        "id,title,text\n" + "".join(f"{n},{n},{text}\n" for n, text in enumerate(documents))
    )
    (tmp_path / "farm.questions.csv").write_text(
        "query,id\nwho is awake at night?,0\nwhere does milk come from?,3\nwho is awake at night?,2\nwho?,9\n"
    )
    trained = Path(shutil.copytree(minilm, tmp_path / "work" / "farm-42" / "run" / "model"))
    monkeypatch.setattr(shares.Study, "titles", lambda _: SystemComparison.of_halves(titles, titles))
    given = argparse.Namespace(work=tmp_path / "work", collections=tmp_path, model=minilm, names="farm", shares="0.5,1")
    found = shares.measure(argparse.Namespace(**vars(given), seeds=1, questions_only=False))["found"]
    only = shares.measure(argparse.Namespace(**vars(given), seeds=1, questions_only=True))["found"]
    assert list(only) == ["farm: questions of farm, chosen by themselves"] and only.items() <= found.items()
    assert trained.is_dir() and (tmp_path / "work/farm-42/shares/0.5/model.safetensors").is_file()
    kinds = ["farm: titles", "farm: questions of farm", "farm: questions of farm, chosen by themselves"]
    assert list(found) == kinds
    for queries, each in zip((4, 2, 2), found.values(), strict=True):
        assert (each["queries"], each["texts"]) == (queries, 4)
        assert list(each["shares"]) == ["0", "0.5", "1", *(["chosen"] if each is found[kinds[2]] else [])]
        assert all(
            system["mrr"] == each["shares"]["0"][name]["mrr"]
            for share in each["shares"].values()
            for name, system in share.items()
        )
    assert found["farm: questions of farm"]["shares"]["0"]["alone"]["mrr"] == 100
    printed = shares.table({"found": found})
    assert "farm: questions of farm, 2 among 4" in printed and "100.0, +0.0 [+0.0, +0.0]" in printed
