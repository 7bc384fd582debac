"""The files of settings in a model's folder are checked before a library reads them: what they name is never run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearspan.common.model_folder import EncoderError, Module, check_config, check_modules, read_modules

TYPE = "sentence_transformers.models."
WORDS = {"name": "0", "type": TYPE + "Transformer", "path": ""}
MEAN = {"name": "1", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling", "path": "1_Pooling"}
LISTED, STRINGS = "expected a list of modules, each with name, type and path", "name, type and path must be strings"


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Write files of a model's folder, given as path -> content; return the folder."""

    def write(files: dict[str, Any]) -> Path:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return write


@pytest.mark.guarantee("no-foreign-code")
def test_all_modules_are_read_in_their_order(put: Callable[..., Path], tmp_path: Path) -> None:
    assert read_modules(tmp_path) == []
    modules = read_modules(put({"modules.json": [WORDS, MEAN]}))
    assert modules == [Module("0", "Transformer", tmp_path), Module("1", "Pooling", tmp_path / "1_Pooling")]


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize(
    ("modules", "named"),
    [
        ({"modules": [WORDS]}, "holds a dict"),
        ([], LISTED),
        (["sentence_transformers.models.Transformer"], LISTED),
        ([WORDS, ["1_Pooling"]], LISTED),
        *(([WORDS, {key: MEAN[key] for key in MEAN if key != missing}], LISTED) for missing in MEAN),
        *(([WORDS, {**MEAN, key: 7}], STRINGS) for key in MEAN),
        ([WORDS, {**MEAN, "type": "owls.Pooling"}], r"'owls\.Pooling' is not part"),
        ([{**WORDS, "type": "sentence_transformers_owls.Transformer"}], "other code is never run"),
        ([{**WORDS, "type": "owls.sentence_transformers.Transformer"}, MEAN], "other code is never run"),
        ([WORDS, MEAN, {**MEAN, "type": ""}], "the module '' is not part"),
        ([WORDS, {**MEAN, "path": "../owls"}], "leaves the folder of the model"),
        ([WORDS, {**MEAN, "path": "1_Pooling/../../owls"}], "leaves the folder of the model"),
        ([WORDS, {**MEAN, "path": "/owls"}], "leaves the folder of the model"),
        ([{**WORDS, "type": "owls.Transformer"}, {**MEAN, "name": "0"}], "other code is never run"),
        ([WORDS, {**MEAN, "type": "Sentence_Transformers.models.Pooling"}], "other code is never run"),
        ([WORDS, {**MEAN, "type": " sentence_transformers.models.Pooling"}], "other code is never run"),
    ],
)
def test_a_list_of_modules_that_names_anything_else_is_refused_wherever_it_does(
    modules: Any, named: str, put: Callable[..., Path]
) -> None:
    folder = put({"modules.json": modules})
    with pytest.raises(EncoderError, match=named) as error:
        read_modules(folder)
    assert str(error.value).startswith(f"{folder / 'modules.json'}: ")


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize(
    ("kind", "files", "named"),
    [
        ("Router", {}, "Router is not supported"),
        ("Asym", {}, "Asym is not supported"),
        ("Transformer", {}, "2: no config.json here"),
        ("Transformer", {"2/config.json": {"model_type": "owls"}}, "'owls' is unknown"),
        ("Transformer", {"2/config.json": {"model_type": "bert"}}, "2: no tokenizer here"),
        ("StaticEmbedding", {}, "2: no tokenizer here"),
        ("StaticEmbedding", {"2/config.json": {}}, "2: no tokenizer here"),
        ("Dense", {"2/config.json": {"activation_function": "owls.Hoot"}}, "must be one of torch's"),
        ("Dense", {"2/config.json": {"activation_function": "torches.Hoot"}}, "must be one of torch's"),
        ("Dense", {"2/config.json": ["torch.nn.Tanh"]}, "holds a list"),
        ("Dense", {"config_sentence_transformers.json": {"model_type": "CrossEncoder"}}, "must be SentenceTransformer"),
    ],
)
def test_what_a_later_module_cannot_mean_is_refused(
    kind: str, files: dict[str, Any], named: str, put: Callable[..., Path]
) -> None:
    folder = put(files)
    first = Module("1", "Pooling", folder / "1_Pooling")
    with pytest.raises(EncoderError, match=named):
        check_modules(folder, [first, Module("2", kind, folder / "2")])


@pytest.mark.guarantee("no-foreign-code")
def test_settings_that_the_library_reads_as_they_are_meant_pass(put: Callable[..., Path]) -> None:
    files = {
        "config.json": {"model_type": "bert"},
        "vocab.txt": "owl",
        "1_Pooling/config.json": {"pooling_mode": "mean"},
        "2_Dense/config.json": {"activation_function": "torch.nn.modules.activation.Tanh"},
        "4_Static/tokenizer.json": {},
    }
    folder = put(files)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
    modules = [Module(path, kind, folder / path) for path, kind in (kinds | {"4_Static": "StaticEmbedding"}).items()]
    check_modules(folder, modules)


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize(
    ("config", "named"),
    [
        (["bert"], "config.json: holds a list"),
        (
            {"model_type": "owls", "auto_map": {"AutoModel": "owls.Owls"}},
            "model_type 'owls' is unknown to transformers",
        ),
        ({"model_type": ["bert"]}, r"model_type \['bert'\] is unknown"),
        (
            {"model_type": "owls", "architectures": ["OwlModel"], "auto_map": {"AutoModel": "owls.OwlModel"}},
            "code .* is never run",
        ),
        ({"model_type": "BERT"}, "model_type 'BERT' is unknown to transformers"),
        ({"model_type": ""}, "model_type '' is unknown to transformers"),
        ({"model_type": 7}, "model_type 7 is unknown to transformers"),
    ],
)
def test_a_model_type_that_only_foreign_code_knows_is_refused(
    config: Any, named: str, put: Callable[..., Path]
) -> None:
    with pytest.raises(EncoderError, match=named):
        check_config(put({"config.json": config}))


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize("config", [{"model_type": "bert", "hidden_size": 32}, {"hidden_size": 32}])
def test_a_known_model_type_or_none_is_read_and_an_adapter_is_not(
    config: dict[str, Any], put: Callable[..., Path]
) -> None:
    folder = put({"config.json": config})
    assert check_config(folder) == config
    put({"adapter_config.json": {}})
    with pytest.raises(EncoderError, match="an adapter's weights are not supported"):
        check_config(folder)
