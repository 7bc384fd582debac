"""Texts to vectors: the library's own embeddings, whatever the batches, the kills and the processes."""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

from clearspan.common import compute
from clearspan.common.encoder.library import Model
from clearspan.common.encoder.sentence_encoder import Embedded
from clearspan.common.errors import PipelineError
from clearspan.common.model_folder import EncoderError
from clearspan.pipelines.builders import model_processes
from clearspan.pipelines.builders import vectors as kind
from clearspan.shards import Dataset, vectors, verify
from clearspan.shards.__main__ import main as shards
from tests.pipelines.conftest import Command

MAX_TOKENS = 48


@pytest.fixture(scope="module")
def other_model(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same encoder with one prompt changed."""
    folder = shutil.copytree(encoder, tmp_path_factory.mktemp("models") / "other")
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(settings.read_text().replace("passage: ", "document: "))
    return folder


@pytest.fixture(scope="module")
def sentences(wiki: Path) -> list[str]:
    """Texts of all lengths: 300 sentences, one of them twice, one very long, one blank."""
    lines = [line for line in wiki.read_text(encoding="utf-8").split("\n") if line.strip()][:300]
    return [*lines, lines[7], " ".join(lines[:40]), "  ", "一只猫头鹰 🦉"]


@pytest.fixture(scope="module")
def corpus(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "sentences.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences))
    return path


@pytest.fixture(scope="module")
def expected(encoder: Path, sentences: list[str]) -> Callable[..., np.ndarray]:
    """The library's own embeddings of the texts that are not blank."""
    library = SentenceTransformer(str(encoder), device="cpu")
    return lambda **options: library.encode([text for text in sentences if text.strip()], **options)


@pytest.fixture
def embed(direct: Command, corpus: Path, encoder: Path) -> Command:
    """Run the command without Beam, on several units."""
    return lambda *words: direct("embed", "--input", corpus, "--model", encoder, "--unit-bytes", "16000", *words)


def rows(folder: Path) -> pa.Table:
    return pa.Table.from_batches(list(Dataset(folder)))


def stored(folder: Path) -> np.ndarray:
    return np.concatenate([vectors.decoded(batch) for batch in Dataset(folder)])


@pytest.mark.guarantee("prompts-of-a-side")
def test_a_text_is_embedded_as_it_is_judged_without_white_space_at_its_ends(
    direct: Command, still: Path, roberta_tokenizer: Path, sentences: list[str], tmp_path: Path
) -> None:
    """By a tokenizer of bytes, to which " Owls" and "Owls" differ. Ids are those of what is embedded."""
    shutil.copy(roberta_tokenizer / "tokenizer.json", shutil.copytree(still, tmp_path / "model"))
    size = len(json.loads((roberta_tokenizer / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    table = np.random.default_rng(0).standard_normal((size, 16), np.float32)
    save_file({"embedding.weight": table}, tmp_path / "model" / "model.safetensors")
    plain = [text.strip() for text in sentences[:20]]
    for name, texts in (("plain", plain), ("spaced", [f" \t{text}\n" for text in plain])):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"title": "On", "text": text}) + "\n" for text in texts))
        for title in ("", "title"):
            words = ["--title-field", title] if title else []
            output = tmp_path / f"{name}{title}"
            ended = direct(
                "embed", "--input", path, "--model", tmp_path / "model", "--keep-text", *words, "--output", output
            )
            assert ended.code == 0, ended.err
            assert rows(output)["text"].to_pylist() == texts
    library = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for title, before in (("", ""), ("title", "On ")):
        expected = library.encode([before + text for text in plain])
        for name in ("plain", "spaced"):
            np.testing.assert_allclose(stored(tmp_path / f"{name}{title}"), expected, atol=1e-5)
        assert rows(tmp_path / f"plain{title}")["id"] == rows(tmp_path / f"spaced{title}")["id"]


@pytest.mark.slow
@pytest.mark.guarantee("update-as-new")
def test_an_update_counts_the_truncated_texts_that_a_new_run_counts(
    direct: Command, encoder: Path, sentences: list[str], tmp_path: Path
) -> None:
    def run(texts: list[str], *more: str | Path) -> dict[str, int]:
        (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        ended = direct("embed", "--input", tmp_path / "a.jsonl", "--model", encoder, "--json", *more)
        assert ended.code == 0, ended.err
        sums: dict[str, int] = json.loads(ended.out)["sums"]
        return sums

    run(sentences)
    updated = run([*sentences, "Owls hunt."], "--update")
    assert updated == run([*sentences, "Owls hunt."], "--output", tmp_path / "anew") and updated["truncated"] > 1


@pytest.mark.slow
def test_the_vectors_are_the_librarys_and_every_text_is_counted(
    embed: Command, encoder: Path, sentences: list[str], expected, tmp_path: Path
) -> None:
    ended = embed("--keep-text", "--json")
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    assert (summary["read"], summary["kept"], summary["filtered"]) == (304, 303, {"empty": 1})
    tokenizer = SentenceTransformer(str(encoder), device="cpu").tokenizer
    truncated = [text for text in sentences if len(tokenizer(text, verbose=False)["input_ids"]) > MAX_TOKENS]
    assert summary["sums"] == {"truncated": len(truncated)} and len(truncated) > 1
    table = rows(tmp_path / "out")
    assert table.column_names == ["id", "source", "vector", "text", "record"]
    assert set(table["source"].to_pylist()) == {"sentences.jsonl"}
    assert table["record"].to_pylist() == [line for line, text in enumerate(sentences, 1) if text.strip()]
    assert table["text"].to_pylist() == [text for text in sentences if text.strip()]
    np.testing.assert_allclose(stored(tmp_path / "out"), expected(), atol=1e-5)
    assert len(set(table["id"].to_pylist())) == 302
    assert not verify(tmp_path / "out") and len(Dataset(tmp_path / "out").shards) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["query", "passage"])
def test_a_prompt_of_the_model_is_put_before_each_text(embed: Command, expected, name: str, tmp_path: Path) -> None:
    ended = embed("--prompt-name", name)
    assert ended.code == 0 and "which need" not in ended.out
    np.testing.assert_allclose(stored(tmp_path / "out"), expected(prompt_name=name), atol=1e-5)
    assert np.abs(stored(tmp_path / "out") - expected()).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_smaller_type_is_off_by_half_a_step_at_most(embed: Command, expected, dtype: str, tmp_path: Path) -> None:
    assert embed("--vector-dtype", dtype).code == 0
    table, theirs = rows(tmp_path / "out"), expected()
    assert table.schema.field("vector").type.value_type == {"float16": pa.float16(), "int8": pa.int8()}[dtype]
    scales = np.abs(theirs).max(axis=1) / 127
    step = scales[:, None] / 2 if dtype == "int8" else np.abs(theirs) * 2**-11
    assert (np.abs(stored(tmp_path / "out") - theirs) <= step + 2e-6).all()
    if dtype == "int8":
        np.testing.assert_allclose(table["scale"].to_numpy(), scales, rtol=1e-3)
        assert max(map(max, table["vector"].to_pylist())) == 127


@pytest.mark.slow
def test_a_vector_that_is_not_finite_is_a_bad_record(
    embed: Command, sentences: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = Model.embed_windows

    def broken(self: Model, windows: Iterator[list[str]], *options: Any) -> Iterator[Embedded]:
        for window in windows:
            (made,) = usual(self, [window], *options)
            made.vectors[[text == sentences[7] for text in window]] = np.nan
            yield made

    monkeypatch.setattr(Model, "embed_windows", broken)
    ended = embed()
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert "2 of 304 records are bad" in ended.err and "its vector is not finite in float32" in ended.err
    assert embed("--max-bad-fraction", "0.1", "--vector-dtype", "int8", "--output", tmp_path / "some").code == 0
    assert Dataset(tmp_path / "some").manifest.counts["bad"] == 2


@dataclasses.dataclass
class Beyond:
    """Vectors outside float16's range."""

    def embed_windows(self, windows: Iterator[list[str]], batch_tokens: int, prompt: str) -> Iterator[Embedded]:
        for texts in windows:
            yield Embedded(np.full((len(texts), 4), 1e5, np.float32), np.zeros(len(texts), bool))


def test_a_value_outside_the_range_of_float16_is_not_stored_as_an_infinity(
    embed: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "model_of", lambda options: Beyond())
    ended = embed("--vector-dtype", "float16")
    assert ended.code == 1 and "its vector is not finite in float16" in ended.err


@pytest.mark.slow
def test_equal_texts_once_and_a_held_out_part(embed: Command, tmp_path: Path) -> None:
    ended = embed("--dedup", "--holdout-fraction", "0.3", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["filtered"]["duplicate"] == 1
    assert not verify(tmp_path / "out") and not verify(tmp_path / "out" / "validation")
    assert rows(tmp_path / "out").num_rows + rows(tmp_path / "out" / "validation").num_rows == 302


@pytest.mark.slow
def test_other_models_and_options_do_not_continue_an_output(embed: Command, other_model: Path) -> None:
    assert embed().code == 0
    for option, value, named in (("--model", other_model, "model"), ("--vector-dtype", "int8", "dtype")):
        ended = embed(option, value)
        assert ended.code == 1 and f"options.{named}: " in ended.err and ended.err.count("\n") == 1


def multiplying(monkeypatch: pytest.MonkeyPatch, hardware: bool) -> None:
    """Make of this CPU one with or without bfloat16."""
    monkeypatch.setattr(compute, "bfloat16", lambda device: compute.Bfloat16(hardware, "this CPU", "slow"))


@pytest.mark.slow
def test_a_run_that_continues_keeps_the_precision_that_auto_was(
    embed: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    multiplying(monkeypatch, hardware=True)
    assert embed("--precision", "auto").code == 0
    multiplying(monkeypatch, hardware=False)
    ended = embed("--precision", "auto")
    assert ended.code == 0 and "was already finished" in ended.out and "computed on cpu in bf16" in ended.out
    assert ended.err == "--precision: this CPU, so bf16 is slow: set --precision fp32 for fp32\n"
    other = embed("--precision", "fp32")
    assert other.code == 1 and 'options.precision: "bf16" there, "fp32" now' in other.err


def test_the_device_is_a_gpu_if_there_is_one_but_that_of_a_run_that_continues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = kind.Vectors(model=str(tmp_path), plan=kind.VectorPlan(model_sha256="0"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    new, continued = given.resolved({}).plan, given.resolved({"device": "cpu"}).plan
    assert (new.device, new.batch_tokens) == ("cuda", 16384)
    assert (continued.device, continued.batch_tokens) == ("cpu", 1024)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert given.resolved({}).plan.device == "cpu"


@pytest.mark.parametrize(
    ("device", "memories", "tokens"),
    [
        ("cuda", [80], 65536),
        ("cuda", [36, 80], 65536),
        ("cuda", [80, 24], 16384),
        ("cuda:0", [80, 24], 65536),
        ("cuda:1", [80, 24], 16384),
        ("cuda:1", [80], 16384),
        ("cuda", [], 16384),
        ("cpu", [80], 1024),
    ],
)
def test_batches_are_large_if_all_gpus_have_the_memory_but_those_of_a_run_that_continues_stay(
    device: str, memories: list[int], tokens: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(memories))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=memories[number] << 30)
    )
    given = kind.Vectors(model=str(tmp_path), device=device, plan=kind.VectorPlan(model_sha256="0"))
    assert given.resolved({}).plan.batch_tokens == tokens
    assert given.resolved({"batch_tokens": 4096}).plan.batch_tokens == 4096
    assert dataclasses.replace(given, batch_tokens=512).resolved({"batch_tokens": 4096}).plan.batch_tokens == 512


def test_units_of_a_gpu_are_larger_than_those_of_a_cpu(tmp_path: Path) -> None:
    few, many = (SimpleNamespace(files=[SimpleNamespace(bytes=size)]) for size in (3_000_000, 200_000_000))
    on_cpu, on_gpu = (
        kind.Vectors(model=str(tmp_path), plan=kind.VectorPlan(device=device)) for device in ("cpu", "cuda:1")
    )
    assert (on_cpu.unit_bytes(few), on_gpu.unit_bytes(few)) == (250_000, 1_000_000)  # type: ignore[arg-type]
    assert on_cpu.unit_bytes(many) == on_gpu.unit_bytes(many) == 200_000_000 // 64  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--model", "nowhere"], 2, "--model nowhere: no such folder"),
        (["--device", "gpu"], 2, "--device gpu: choose auto, cpu, cuda"),
        (["--pooling", "mean"], 2, "defines its own pooling: leave out --pooling"),
        (["--prompt-name", "title"], 2, "--prompt-name title: the model has document, passage, query"),
        (["--text-field", "body"], 1, 'no field "body" among text: '),
    ],
)
def test_bad_usage_is_one_line(embed: Command, words: list[str], code: int, complaint: str) -> None:
    ended = embed(*words)
    assert (ended.code, ended.err.count("\n")) == (code, 1) and complaint in ended.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device is here")
def test_a_device_that_is_not_here_is_one_line(embed: Command) -> None:
    ended = embed("--device", "cuda")
    assert ended.code == 1 and "--device cuda: this machine has no GPU" in ended.err


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.exhaustive
def test_one_process_a_gpu_embeds_for_all_workers(
    pipeline: Command,
    corpus: Path,
    encoder: Path,
    expected,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A CPU in place of two GPUs: both workers connect to a model's process."""
    names, holding = list[str](), model_processes.holding

    @contextlib.contextmanager
    def watched(*options: Any) -> Iterator[None]:
        with holding(*options):
            yield
            names.extend(path.name for path in Path(os.environ[model_processes.FOLDER]).iterdir())

    monkeypatch.setattr(model_processes, "holding", watched)
    monkeypatch.setattr(kind, "SHARED", ("cpu",))
    monkeypatch.setattr(kind, "gpus", lambda device: [device, device])
    words = ("embed", "--input", corpus, "--model", encoder, "--unit-bytes", "16000", "--device", "cpu", "--keep-text")
    ended = pipeline(*words, "--workers", "2")
    assert ended.code == 0, ended.err
    assert sorted(names) == ["0.socket", "1.socket", "worker-0", "worker-1"]
    np.testing.assert_allclose(stored(tmp_path / "out"), expected(), atol=1e-5)
    assert pipeline(*words, "--workers", "1", "--output", tmp_path / "alone").code == 0
    assert rows(tmp_path / "out").drop(["vector"]).equals(rows(tmp_path / "alone").drop(["vector"]))
    assert model_processes.FOLDER not in os.environ


@pytest.mark.exhaustive
def test_a_model_that_no_process_can_load_is_one_line(encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(encoder, tmp_path / "broken")
    weights = next(folder.rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    own = {"folder": str(folder), "sha256": kind.model_hash(str(folder)), "pooling": None, "precision": "fp32"}
    with pytest.raises(PipelineError, match=r"^\S*broken: no usable model .*$"), model_processes.holding(["cpu"], own):
        pass
    assert model_processes.FOLDER not in os.environ


@pytest.mark.guarantee("one-model-a-gpu")
@pytest.mark.parametrize("left", ["no folder", "no socket", "a socket"])
def test_a_worker_whose_models_process_is_gone_says_so_in_a_line(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sockets"
    monkeypatch.setenv(model_processes.FOLDER, str(folder))
    if left != "no folder":
        folder.mkdir()
    if left == "a socket":
        (folder / f"0{model_processes.SOCKET}").touch()
    with pytest.raises(PipelineError, match=r"process has ended"):
        model_processes.connected()


@pytest.mark.guarantee("one-model-a-gpu")
def test_the_workers_are_divided_among_the_processes_with_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(model_processes.FOLDER, raising=False)
    monkeypatch.setattr(model_processes, "SharedModel", Path)
    assert model_processes.connected() is None, "there is no such process"
    for name in ("2.socket", "0.socket", "1.socket", "notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.setenv(model_processes.FOLDER, str(tmp_path))
    found = [model_processes.connected() for _ in range(7)]
    assert found == [tmp_path / f"{number % 3}.socket" for number in range(7)]

    def unreachable(address: str) -> None:
        raise EncoderError("the process of the model\ncannot be reached")

    monkeypatch.setattr(model_processes, "SharedModel", unreachable)
    told = r"^the model's process has ended \(the process of the model cannot be reached\): run again$"
    with pytest.raises(PipelineError, match=told):
        model_processes.connected()


@pytest.mark.guarantee("one-model-a-gpu")
def test_a_gpus_model_is_held_once_for_several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    monkeypatch.setattr(model_processes, "holding", lambda *given: held.append(given) or contextlib.nullcontext())
    monkeypatch.setattr(kind, "gpus", lambda device: [f"{device}:0", f"{device}:1"])
    options = {"pooling": "cls", "precision": "bf16"}
    own = {"folder": "owls", "sha256": "4a", **options}
    for device, num_processes, expected in [
        ("cpu", 1, []),
        ("cpu", 4, []),
        ("cuda", 1, []),
        ("cuda", 2, [(["cuda:0", "cuda:1"], own)]),
        ("cuda:1", 8, [(["cuda:1:0", "cuda:1:1"], own)]),
    ]:
        held.clear()
        plan = kind.VectorPlan(model_sha256="4a", device=device, precision="bf16")
        builder: Any = SimpleNamespace(model="owls", pooling="cls", plan=plan)
        with kind.Vectors.shared_by(builder, num_processes):
            assert held == expected


def test_without_torch_the_extra_is_named(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PipelineError, match=r"torch: .*'.\[embed\]'"):
        kind.load_model(str(encoder), kind.model_hash(str(encoder)), None, "cpu", "fp32")


@pytest.mark.slow
def test_an_export_to_parquet_opens_in_other_programs(
    embed: Command, expected, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert embed("--keep-text").code == 0
    out, files = str(tmp_path / "out"), tmp_path / "parquet"
    assert shards(["export", out, str(files), "--quiet"]) == 0
    table = pq.read_table(files)
    assert table.replace_schema_metadata(None).equals(rows(tmp_path / "out"))
    assert shards(["export", out, str(files), "--quiet"]) == 1
    assert "is not empty: choose a new or empty folder" in capsys.readouterr().err
