"""Exports in sentence-transformers since 3.0, in model2vec, and as text-embeddings-inference wants them.

Each version is installed into a folder of its own, beside the libraries that it came with.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer

from clearspan.train.config.options import ModelConfig, Recipe
from clearspan.train.export import save_model
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.portable import make_portable
from clearspan.train.start.build_encoder import build_encoder

HUB = "huggingface_hub==0.36.2"
VERSIONS = {
    "3.0": ("sentence-transformers==3.0.1", "transformers==4.45.2", "tokenizers==0.20.3", HUB),
    "3.4": ("sentence-transformers==3.4.1", "transformers==4.48.3", "tokenizers==0.21.4", HUB),
    "5.1": ("sentence-transformers==5.1.2", "transformers==4.57.6", "tokenizers==0.22.2", HUB),
    "6": (),
}
LATER = {"static": "3.0", "static-normalize": "3.0", "modernbert": "3.0"}
"""Kinds of which a version, or its transformers, has no class."""
TEXTS = ["A sentence.", "Another one, of Ünusual words [DEL] and more.", " ".join(["words"] * 100), "x"]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ROPES = {"full_attention": 5000.0, "sliding_attention": 77.0}
CONFIGS = {
    "mean": {"model_type": "roberta", **SIZE, "max_position_embeddings": 66},
    "bert": {"model_type": "bert", **SIZE},
    "distilbert": {"model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "modernbert": {
        "model_type": "modernbert",
        **SIZE,
        "local_attention": 16,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {layer: {"rope_type": "default", "rope_theta": theta} for layer, theta in ROPES.items()},
    },
    "qwen2": {
        "model_type": "qwen2",
        **SIZE,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1234.0},
    },
    "static": {"model_type": "static", "hidden_size": 32},
}
MODELS = {
    **{name: ModelConfig(config=config) for name, config in CONFIGS.items()},
    "cls-dense": ModelConfig(config=CONFIGS["mean"], pooling="cls", head="tanh"),
    "weighted": ModelConfig(config=CONFIGS["mean"], pooling="weighted"),
    "lasttoken": ModelConfig(config=CONFIGS["qwen2"], pooling="lasttoken"),
}
KINDS = (*MODELS, "normalize", "static-normalize")


@pytest.fixture(scope="module")
def exports(
    minilm: Path, tokenizer_folder: Path, del_tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with an export of each kind; `normalize` is all-MiniLM-L6-v2."""
    folder = tmp_path_factory.mktemp("exports")
    backend = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    torch.manual_seed(0)
    table = SentenceTransformer(modules=[StaticEmbedding(backend, embedding_dim=32), Normalize()], device="cpu")
    table.save_pretrained(str(folder / "table"))
    models = {**MODELS, "normalize": ModelConfig(path=str(minilm))}
    models["static-normalize"] = ModelConfig(path=str(folder / "table"))
    for name, model in models.items():
        place = {"normalize": minilm, "static-normalize": folder / "table", "static": tokenizer_folder}
        tokenizer = load_tokenizer(place.get(name, del_tokenizer_folder))
        encoder = build_encoder(Recipe(output="unused", model=model), tokenizer)
        save_model(encoder, tokenizer, folder / "models" / name, "")
    return folder / "models"


def settings(folder: Path, name: str) -> dict:
    content: dict = json.loads((folder / name).read_text())
    return content


@pytest.mark.slow
@pytest.mark.guarantee("exports-everywhere")
def test_settings_have_the_names_that_earlier_versions_and_an_inference_server_read(exports: Path) -> None:
    """text-embeddings-inference wants a length as a number, a flag for each pooling, and types of these names alone."""
    folder = exports / "cls-dense"
    types = [module["type"] for module in settings(folder, "modules.json")]
    assert types == [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Dense")]
    lengths = settings(folder, "sentence_bert_config.json")
    assert lengths == {"max_seq_length": 64, "do_lower_case": False, "model_args": {"add_pooling_layer": False}}
    pooling = settings(folder, "1_Pooling/config.json")
    assert pooling["word_embedding_dimension"] == 32 and pooling["include_prompt"] is True
    flags = {name: value for name, value in pooling.items() if name.startswith("pooling_mode_")}
    assert [name for name, value in flags.items() if value] == ["pooling_mode_cls_token"]
    wanted = {f"pooling_mode_{name}" for name in ("mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")}
    assert wanted < flags.keys() and all(type(value) is bool for value in flags.values())
    dense = settings(folder, "2_Dense/config.json")
    assert dense.keys() == {"in_features", "out_features", "bias", "activation_function"}
    assert dense["activation_function"] == "torch.nn.modules.activation.Tanh"
    assert {"architectures", "model_type", "max_position_embeddings"} < settings(folder, "config.json").keys()
    tokenizer = settings(folder, "tokenizer_config.json")
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast" and "extra_special_tokens" not in tokenizer
    assert settings(exports / "qwen2", "config.json")["rope_theta"] == 1234.0
    modern = settings(exports / "modernbert", "config.json")
    assert (modern["global_rope_theta"], modern["local_rope_theta"]) == tuple(ROPES.values())
    assert modern["global_attn_every_n_layers"] == 2


@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_version_6_reads_them_without_a_warning(exports: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error", FutureWarning)
        model = SentenceTransformer(str(exports / kind), device="cpu", local_files_only=True)
    assert not [record.getMessage() for record in caplog.records if record.name.startswith("sentence_transformers")]
    assert model.encode(TEXTS).shape == (len(TEXTS), 384 if kind == "normalize" else 32)


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.slow
def test_an_export_names_no_code_of_the_folder_that_training_began_with(exports: Path, tmp_path: Path) -> None:
    """The code was never run, and is not in the export: nobody needs `trust_remote_code`."""
    source = shutil.copytree(exports / "mean", tmp_path / "source")
    for name, classes in (
        ("config.json", {"AutoModel": "m.M"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["t.T", "t.F"]}),
    ):
        (source / name).write_text(json.dumps(settings(source, name) | {"auto_map": classes}))
    tokenizer = load_tokenizer(source)
    encoder = build_encoder(Recipe(output="unused", model=ModelConfig(path=str(source))), tokenizer)
    save_model(encoder, tokenizer, tmp_path / "export", "")
    assert "auto_map" not in "".join(path.read_text() for path in (tmp_path / "export").glob("*.json"))


def wrote(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))


def written(folder: Path, modules: tuple[str, ...], **changes: Any) -> Path:
    """Write the settings of modules as sentence-transformers 6 does: of each, the names that it saves."""
    kinds = ("base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling")
    paths = {kind.rsplit(".", 1)[1]: kind for kind in kinds}
    entries = []
    for number, kind in enumerate(modules):
        path = "" if number == 0 else f"{number}_{kind}"
        name = paths.get(kind, f"sentence_transformer.modules.{kind.lower()}.{kind}")
        entries.append({"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.{name}"})
        if kind == "Pooling":
            pooling = {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": False}
            wrote(folder, {f"{path}/config.json": pooling | changes.get("pooling", {})})
        if kind == "Dense":
            own = {"in_features": 32, "out_features": 8 * number, "bias": number == 2}
            wrote(folder, {f"{path}/config.json": {**own, **NEW, **ACTIVE}})
    versions = {"sentence_transformers": "6.0.0", "transformers": "5.1.0", "pytorch": "2.9.0"}
    prompts = {"prompts": {"Fund": "Finde, was ähnlich ist: "}, "default_prompt_name": "Fund"}
    files = {"modules.json": entries, "config_sentence_transformers.json": {"__version__": versions, **prompts}}
    wrote(folder, files)
    if modules[0] == "Transformer":
        tokenizer = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["[DEL]", "[ADD]"]}
        tokenizer |= {"model_max_length": 512, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        tokenizer |= changes.get("tokenizer", {})
        files = {
            "sentence_bert_config.json": {"transformer_task": "feature-extraction", **ADDED},
            "config.json": {"model_type": "distilbert", "auto_map": {"AutoModel": "m.M"}} | changes.get("config", {}),
            "tokenizer_config.json": tokenizer | {"auto_map": {"AutoTokenizer": ["t.T", "t.F"]}, "pad_token": "[PAD]"},
        }
        wrote(folder, files)
    inference = SimpleNamespace(lower_case=True)
    base = type("Base", (), {"forward": lambda self, input_ids, attention_mask: None})()
    encoder = SimpleNamespace(max_tokens=100, inference=inference, base=base)
    tokenizer = SimpleNamespace(
        model_input_names=["input_ids", "token_type_ids", "attention_mask"], model_max_length=1 << 70
    )
    make_portable(folder, encoder, tokenizer)
    return folder


NEW = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
ACTIVE = {"activation_function": "torch.nn.modules.activation.Tanh"}
ADDED = {"model_args": {"add_pooling_layer": False}}


@pytest.mark.guarantee("exports-everywhere")
def test_every_module_has_the_names_that_earlier_versions_read(tmp_path: Path) -> None:
    folder = written(tmp_path, ("Transformer", "Pooling", "Dense", "Dense", "Normalize"))
    modules = settings(folder, "modules.json")
    kinds = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    assert [module["type"] for module in modules] == [f"sentence_transformers.models.{kind}" for kind in kinds]
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"]
    for number in (2, 3):
        assert settings(folder, f"{number}_Dense/config.json") == {
            "in_features": 32,
            "out_features": 8 * number,
            "bias": number == 2,
            **ACTIVE,
        }
    assert settings(folder, "sentence_bert_config.json") == {"max_seq_length": 100, "do_lower_case": True, **ADDED}
    assert settings(folder, "tokenizer_config.json") == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "additional_special_tokens": ["[DEL]", "[ADD]"],
        "model_max_length": 512,
        "pad_token": "[PAD]",
        "model_input_names": ["input_ids", "attention_mask"],
    }, "not the token types, which DistilBERT does not take"
    assert settings(folder, "config.json") == {"model_type": "distilbert"}
    assert settings(folder, "config_sentence_transformers.json") == {
        "__version__": {"transformers": "5.1.0", "pytorch": "2.9.0"},
        "prompts": {"Fund": "Finde, was ähnlich ist: "},
        "default_prompt_name": "Fund",
    }


@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.parametrize("kind", ["BertTokenizer", "XLMRobertaTokenizerFast", None])
def test_a_class_of_tokenizer_that_earlier_versions_know_stays(kind: str | None, tmp_path: Path) -> None:
    folder = written(tmp_path, ("Transformer", "Pooling"), tokenizer={"tokenizer_class": kind} if kind else {})
    assert settings(folder, "tokenizer_config.json")["tokenizer_class"] == (kind or "PreTrainedTokenizerFast")


@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.parametrize(
    ("modules", "is_unit"),
    [
        (("StaticEmbedding", "Normalize"), True),
        (("StaticEmbedding",), False),
        (("StaticEmbedding", "Dense", "Normalize"), False),
        (("Transformer", "Pooling", "Normalize"), False),
    ],
)
def test_a_static_model_alone_has_a_path_and_says_model2vec_whether_to_normalize(
    modules: tuple[str, ...], is_unit: bool, tmp_path: Path
) -> None:
    folder = written(tmp_path, modules)
    first, *others = settings(folder, "modules.json")
    assert first["path"] == ("." if modules[0] == "StaticEmbedding" else "")
    assert [module["path"] for module in others] == [
        f"{number}_{kind}" for number, kind in enumerate(modules) if number
    ]
    assert settings(folder, "config_sentence_transformers.json").get("normalize") is (True if is_unit else None)


@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.parametrize("mode", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_a_pooling_has_a_flag_for_each_mode_of_which_one_is_true(mode: str, tmp_path: Path) -> None:
    """Earlier versions take a missing flag of the mean for true."""
    key = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "weightedmean": "weightedmean_tokens"}
    for prompt in ({}, {"include_prompt": False}, {"include_prompt": True}):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        written(
            folder, ("Transformer", "Pooling"), pooling={"pooling_mode": mode, **({"include_prompt": True} | prompt)}
        )
        content = settings(folder, "1_Pooling/config.json")
        flags = {name: value for name, value in content.items() if name.startswith("pooling_mode_")}
        assert len(flags) == 6 and [name for name, value in flags.items() if value is not False] == [
            f"pooling_mode_{key.get(mode, mode)}"
        ]
        assert {name: value for name, value in content.items() if name not in flags} == {
            "word_embedding_dimension": 32,
            "include_prompt": prompt.get("include_prompt", True),
        }


FULL, NEAR = "full_attention", "sliding_attention"
BY_LAYER = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in ROPES.items()}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.parametrize(
    ("config", "added"),
    [
        ({"model_type": "bert"}, {}),
        ({"model_type": "bert", "rope_parameters": None}, {}),
        ({"model_type": "qwen2", "rope_parameters": {"rope_theta": 1234.0}}, {"rope_theta": 1234.0}),
        (
            {"model_type": "phi", "rope_parameters": {"rope_theta": 5.0, "partial_rotary_factor": 0.5}},
            {"rope_theta": 5.0, "partial_rotary_factor": 0.5},
        ),
        (
            {"model_type": "qwen2", "rope_parameters": {"rope_theta": 1234.0, **YARN}},
            {"rope_theta": 1234.0, "rope_scaling": YARN},
        ),
        (
            {"model_type": "phi", "rope_parameters": {"rope_theta": 5.0, "partial_rotary_factor": 0.5, **YARN}},
            {"rope_theta": 5.0, "partial_rotary_factor": 0.5, "rope_scaling": YARN},
        ),
        (
            {"model_type": "llama", "rope_parameters": {"rope_theta": 7.0, "rope_type": "linear", "factor": 2.0}},
            {"rope_theta": 7.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        ),
        (
            {"model_type": "gemma3_text", "rope_parameters": BY_LAYER, "layer_types": [NEAR, NEAR, FULL]},
            {"rope_theta": 5000.0, "rope_local_base_freq": 77.0},
        ),
        (
            {"model_type": "gemma3_text", "rope_parameters": BY_LAYER, "layer_types": [FULL, NEAR, FULL, NEAR]},
            {"rope_theta": 5000.0, "rope_local_base_freq": 77.0},
        ),
        *(
            ({"model_type": "gemma3_text", "rope_parameters": {FULL: BY_LAYER[FULL], **others}}, {})
            for others in ({}, {NEAR: None}, {"chunked_attention": BY_LAYER[NEAR]})
        ),
        (
            {"model_type": "gemma3_text", "rope_parameters": dict(reversed(BY_LAYER.items()))},
            {"rope_theta": 5000.0, "rope_local_base_freq": 77.0},
        ),
        *(
            (
                {"model_type": "modernbert", "rope_parameters": BY_LAYER, "layer_types": layers},
                {"global_rope_theta": 5000.0, "local_rope_theta": 77.0} | every,
            )
            for layers, every in [
                ([FULL, NEAR, NEAR] * 7 + [FULL], {"global_attn_every_n_layers": 3}),
                ([FULL] * 3, {"global_attn_every_n_layers": 1}),
                ([FULL, NEAR, NEAR, NEAR], {"global_attn_every_n_layers": 4}),
                ([FULL, NEAR, NEAR] * 7 + [NEAR], {}),
                ([NEAR, FULL] * 4, {}),
            ]
        ),
    ],
)
def test_rotary_positions_are_also_stated_under_the_keys_of_transformers_4(
    config: dict[str, Any], added: dict[str, Any], tmp_path: Path
) -> None:
    folder = written(tmp_path, ("Transformer", "Pooling"), config=config)
    assert settings(folder, "config.json") == config | added


def installed(folder: Path, packages: tuple[str, ...]) -> Path:
    """A folder with these packages from PyPI."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1", "--timeout", "20"]
    done = subprocess.run([*command, "--target", folder, *packages], capture_output=True, text=True, timeout=300)
    if done.returncode:
        message = f"{', '.join(packages)} cannot be installed beside: {done.stderr.strip().splitlines()[-1]}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder


def python(code: str, beside: Path | None, *words: str | Path) -> None:
    """Run a program, with the packages of a folder before the installed ones."""
    environment = {**os.environ, "PYTHONPATH": str(beside or ""), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-P", "-c", code, json.dumps(TEXTS), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


ENCODE = """
import json, pathlib, sys, numpy, sentence_transformers
texts, version, out, *folders = sys.argv[1:]
assert sentence_transformers.__version__.startswith(version), sentence_transformers.__version__
for folder in map(pathlib.Path, folders):
    try:
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        numpy.save(pathlib.Path(out) / folder.name, model.encode(json.loads(texts)))
    except Exception as error:
        (pathlib.Path(out) / f"{folder.name}.txt").write_text(f"{type(error).__name__}: {error}")
"""
STATIC = """
import json, sys, numpy, model2vec
texts, method, folder, out = sys.argv[1:]
numpy.save(out, getattr(model2vec.StaticModel, method)(folder).encode(json.loads(texts)))
"""


def embedded(exports: Path, version: str, folder: Path) -> dict[str, np.ndarray | str]:
    """The embeddings of each export by a version, or its error."""
    beside = installed(folder / "beside", VERSIONS[version]) if VERSIONS[version] else None
    (out := folder / version).mkdir()
    python(ENCODE, beside, version, out, *(exports / kind for kind in KINDS))
    errors = {kind: out / f"{kind}.txt" for kind in KINDS}
    return {kind: path.read_text() if path.exists() else np.load(out / f"{kind}.npy") for kind, path in errors.items()}


@pytest.mark.exhaustive
@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "6"])
def test_earlier_versions_give_the_vectors_of_version_6(exports: Path, version: str, tmp_path: Path) -> None:
    found, expected = embedded(exports, version, tmp_path), embedded(exports, "6", tmp_path)
    differences: dict[str, float | str] = {}
    for kind, vectors in found.items():
        if isinstance(vectors, str):
            differences[kind] = vectors
        elif not np.allclose(vectors, expected[kind], atol=1e-6, rtol=0):
            differences[kind] = float(np.abs(vectors - expected[kind]).max())
    missing = {kind for kind, first in LATER.items() if first == version}
    assert differences.keys() == missing, differences
    assert all(("StaticEmbedding" if "static" in kind else kind) in differences[kind] for kind in missing)


@pytest.mark.exhaustive
@pytest.mark.guarantee("exports-everywhere")
@pytest.mark.parametrize("version, method", [("0.8.2", "from_sentence_transformers"), ("0.10.0", "from_pretrained")])
def test_model2vec_gives_the_vectors_of_a_static_export(
    exports: Path, tmp_path: Path, version: str, method: str
) -> None:
    beside = installed(tmp_path / "beside", (f"model2vec=={version}",))
    for kind in ("static", "static-normalize"):
        python(STATIC, beside, method, exports / kind, tmp_path / f"{kind}.npy")
        expected = SentenceTransformer(str(exports / kind), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(np.load(tmp_path / f"{kind}.npy"), expected, atol=1e-6)
