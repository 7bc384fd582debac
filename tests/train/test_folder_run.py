"""A whole run on from a sentence-transformers folder: nothing of what its model did is lost on the way."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import AutoModel, RobertaConfig

from clearspan.common.checksummed_folder import read_manifest
from clearspan.common.encoder.library import load_with_library
from clearspan.train.engine.checkpoint import CheckpointError
from clearspan.train.export import _trained, load_skeleton, main, save_model, save_skeleton
from clearspan.train.model.embedding import encode_texts
from clearspan.train.model.mlm_head import HEAD as HEAD_FILE
from clearspan.train.model.mlm_head import INDEX
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_encoder import build_encoder
from tests.train.conftest import TINY_MODEL, VOCABULARY
from tests.train.ranks import train_alone
from tests.train.runs import last_weights, same_weights

TEXTS = ["", "A sentence.", "A longer one, of Several words.", "words " * 100]
HEAD = ("config.json", "model.safetensors")


@pytest.fixture(scope="module")
def source(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that does something at every step besides encoding."""
    folder = tmp_path_factory.mktemp("source")
    values = [option.removeprefix("model.config.").split("=") for option in TINY_MODEL[2:]]
    config = RobertaConfig(vocab_size=VOCABULARY, pad_token_id=1, **{key: json.loads(value) for key, value in values})
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    load_tokenizer(tokenizer_folder).save_pretrained(folder / "plain")
    transformer = Transformer(str(folder / "plain"), processor_kwargs={"model_max_length": 40})
    modules = [transformer, Pooling(32, "cls"), Dense(32, 32), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"q": "Find: "}, default_prompt_name="q")
    model.save_pretrained(str(folder / "whole"))
    settings = folder / "whole" / "sentence_bert_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_lower_case": True}))
    return folder / "whole"


def given(tiny: list[str], source: Path) -> list[str]:
    words = [option for option in tiny if option not in TINY_MODEL and "bf16" not in option]
    return [*words, "model.config=null", f"model.path={source}", "model.pooling=null", "training.bf16=true"]


@pytest.fixture(scope="module")
def run(source: Path, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In bf16; spans are shorter than the folder's length limit."""
    output = tmp_path_factory.mktemp("runs") / "run"
    done = train_alone(*given(tiny, source), f"output={output}")
    assert "has no masked-LM head" in done.stdout and "LOAD REPORT" not in done.stdout + done.stderr
    return output


@pytest.mark.guarantee("same-vectors")
@pytest.mark.slow
def test_the_export_does_what_the_folder_did_with_weights_that_were_trained(run: Path, source: Path) -> None:
    model = SentenceTransformer(str(run / "model"), device="cpu", local_files_only=True)
    assert [type(module) for module in model] == [Transformer, Pooling, Dense, Normalize]
    assert (model.max_seq_length, model[1].pooling_mode) == (40, "cls")
    assert np.array_equal(*model.encode(["An Owl", "an owl"]))
    # The spans had no prompt: that of the folder is there by its name, and no longer the default.
    assert (model.prompts, model.default_prompt_name) == (SentenceTransformer(str(source)).prompts, None)
    encoder, tokenizer, _ = _trained(run, last_weights(run))
    packed = encode_texts(encoder, tokenizer, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(packed, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS), packed, atol=1e-5)
    np.testing.assert_allclose(load_with_library(run / "model").encode(TEXTS), packed, atol=1e-5)
    before, after = (load_file(folder / "2_Dense" / "model.safetensors") for folder in (source, run / "model"))
    assert before.keys() == after.keys() and not any(torch.equal(before[key], after[key]) for key in before)


def test_a_head_is_checksummed_with_what_an_export_needs(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = read_manifest(run / "encoder", "encoder")[1]
    assert {"inference.json", *(f"head-0/{name}" for name in HEAD)} <= listed.keys()
    for path in (run / "encoder" / "head-0" / name for name in HEAD):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert main([str(run), str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and f"{path}: damaged" in error and "--resume" in error
        path.write_bytes(content)
    assert main([str(run), str(tmp_path / "out" / "model")]) == 0
    assert same_weights(tmp_path / "out", run)
    assert {path.relative_to(run) for path in (run / "model").rglob("*.safetensors")} == {
        Path("model/model.safetensors"),
        Path("model/mlm_head.safetensors"),
        Path("model/2_Dense/model.safetensors"),
    }


def test_masked_lm_goes_on_with_the_head_of_an_export(run: Path, tiny: list[str]) -> None:
    trained = last_weights(run)
    recipe = load_recipe("demo", [*given(tiny, run / "model"), "output=unused"])
    encoder = build_encoder(recipe, load_tokenizer(run / "model"))
    names = encoder.mlm_head_parameters()
    assert encoder.new_weights == [] and any(name.startswith("lm_head.dense") for name in names)
    assert all(torch.equal(encoder.model.get_parameter(name), trained[f"encoder.model.{name}"]) for name in names)


def test_an_export_without_masked_lm_has_no_head(run: Path, tmp_path: Path) -> None:
    """As of a run whose objectives do not train it."""
    states = last_weights(run)
    names = {name for name in states if ".lm_head." in name}
    without = {name.replace(".roberta.", "."): states[name] for name in states.keys() - names}
    encoder, tokenizer, recipe = _trained(run, without)
    save_model(encoder, tokenizer, tmp_path / "model", recipe)
    assert names and not (tmp_path / "model" / HEAD_FILE).exists() and not (tmp_path / "model" / INDEX).exists()


@pytest.mark.parametrize("limit", [100, 6000])
def test_a_disk_that_fills_up_is_one_line_whatever_is_written(run: Path, tmp_path: Path, limit: int) -> None:
    """The tokenizer's file is the largest, the head's the next."""
    encoder, tokenizer = load_skeleton(run / "encoder"), load_tokenizer(run / "encoder")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        with pytest.raises((CheckpointError, OSError), match=rf"{tmp_path}.*too large|too large: '{tmp_path}"):
            save_skeleton(encoder, tokenizer, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_a_head_is_saved_out_of_the_one_tensor_in_which_zero_keeps_all_weights(
    run: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    encoder = load_skeleton(run / "encoder")
    weight, flat = encoder.head[0].linear.weight, torch.arange(5000.0)
    weight.data = flat[100 : 100 + weight.numel()].view_as(weight)
    save_skeleton(encoder, load_tokenizer(tokenizer_folder), tmp_path / "encoder")
    assert torch.equal(load_skeleton(tmp_path / "encoder").head[0].linear.weight, weight)
