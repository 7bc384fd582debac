"""A folder that `adapt` has finished, made without training."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from clearspan.adapt import __main__ as adapt
from clearspan.adapt import runner
from clearspan.adapt.options import Adapt
from clearspan.adapt.run import until_verdict
from clearspan.adapt.stages import VERDICT, Stage
from clearspan.common.checksummed import dump_checksummed
from clearspan.eval.verdict import Verdict
from clearspan.pipelines.__main__ import main as pipelines
from tests.adapt.test_decision import verdict
from tests.pipelines.conftest import without_beam

NUM_TEXTS = 1000
Ran = list[tuple[str, ...]]


def owls(path: Path, numbers: range, **more: Any) -> Path:
    hunts = "They hunt at night in county {0}, and roost by day in the barns of county {0}, where many mice are."
    rows = [{"id": n, "title": f"Owls of county {n}", "text": hunts.format(n), **more} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def planned(options: Adapt) -> list[Stage]:
    """Return the stages up to the verdict."""
    stages: list[Stage] = []
    until_verdict(options, stages.append)
    return stages


@pytest.fixture(scope="module")
def still(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static model with random vectors, which embeds without torch."""
    folder = tmp_path_factory.mktemp("still")
    shutil.copy(shared_data / "tokenizers/bert-base-uncased/tokenizer.json", folder)
    num_tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    table = np.random.default_rng(0).standard_normal((num_tokens, 16), np.float32)
    save_file({"embedding.weight": table}, folder / "model.safetensors")
    kind = "sentence_transformers.models.StaticEmbedding"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    return folder


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The commands of the stages that run; of these, `embed` does its work, in this process and without Beam."""
    found: Ran = []

    def run(stage: Stage, quiet: bool) -> None:
        _, _, module, *words = shlex.split(str(stage))
        found.append((module.removeprefix("clearspan."), *words))
        if stage.name == "embed":
            assert pipelines([*words, "--quiet"]) == 0

    monkeypatch.setattr("clearspan.pipelines.run._run_beam", without_beam)
    monkeypatch.setattr(Stage, "run", run)
    monkeypatch.setattr(runner, "damage", lambda *_: "")
    return found


def write_verdict(output: Path, found: Verdict) -> None:
    (output / VERDICT).write_bytes(dump_checksummed({"inputs": "", "held_out": found.to_json(), "questions": None}))


@pytest.fixture
def line(tmp_path: Path, still: Path, ran: Ran, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The command line of a finished folder, without --input: its verdict is of 1,000 owls, by a made-up contest."""
    output = tmp_path / "adapted"
    options = Adapt(inputs=(str(owls(tmp_path / "owls.jsonl", range(NUM_TEXTS))),), output=output)
    for name in ("start", "run/model"):
        shutil.copytree(still, output / name)
    write_verdict(output, verdict("untrained static"))
    done = {stage.name: str(stage) for stage in planned(options)}
    (output / runner.STATE).write_bytes(dump_checksummed({"format": runner.FORMAT, "steps": done, "given": None}))
    line = ["--output", str(output), "--quiet", "--input"]
    assert adapt.main([*line, options.inputs[0]]) == 0
    capsys.readouterr()
    ran.clear()
    return line
