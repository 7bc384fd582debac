"""No command looks for a model, a tokenizer or a part of one in the network, whatever the environment says."""

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
import torch
import transformers

from clearspan.cli.main import main
from clearspan.common import pretrained
from clearspan.common.encoder import library, library_pooling
from clearspan.common.errors import PipelineError
from clearspan.common.model_folder import EncoderError
from clearspan.common.model_forms import check_folder
from clearspan.eval.models import load
from clearspan.eval.models.load import load_encoder, load_model
from clearspan.pipelines.text.tokenization import read_tokenizer
from clearspan.train.model import tokenizer
from tests.conftest import exit_code


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The hosts whose address was asked for, where libraries may download."""
    hosts: list[Any] = []

    def refuse(host: Any, *_: Any, **__: Any) -> None:
        hosts.append(host)
        raise OSError("no network in tests")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield hosts


@pytest.mark.guarantee("no-network")
@pytest.mark.slow
def test_a_folder_that_could_be_a_hubs_name_is_read_from_the_disk_alone(
    minilm: Path, looked_up: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(minilm, "owls/hunt")
    for name in ("README.md", "sentence_bert_config.json", "special_tokens_map.json"):
        Path("owls/hunt", name).unlink(missing_ok=True)
    assert load_model("owls/hunt").encode(["an owl"]).shape == (1, 384)
    assert not looked_up


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--model", "owls/hunt", "--tasks", "sts", "--data", "data", "--output", "out"],
        ["embed", "--input", "text.txt", "--model", "owls/hunt", "--output", "out"],
        ["documents", "--input", "text.txt", "--tokenizer", "owls/hunt", "--output", "out"],
        ["distill", "--model", "owls/hunt", "--output", "out"],
        ["adapt", "--input", "text.txt", "--model", "owls/hunt", "--output", "out"],
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_is_no_folder_is_an_error_and_no_download(
    words: list[str],
    looked_up: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("An owl hunts at night.\n")
    assert exit_code(main, *words) in (1, 2)
    assert "owls/hunt" in capsys.readouterr().err
    assert not looked_up


LOCAL = {"local_files_only": True, "trust_remote_code": False}


class Recorder:
    """Stands for a class of a library: it keeps the arguments with which it, or a method of it, was called."""

    def __init__(self, returned: Any = None) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.returned = returned

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls.append((arguments, options))
        return self.returned

    from_pretrained = __call__


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_sentence_transformers_is_told_to_read_the_disk_alone(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = Recorder("loaded")
    monkeypatch.setattr(library, "SentenceTransformer", loading)
    assert library._load(Path("owls/hunt"), device, "") == "loaded"
    weights = {"dtype": torch.float32, "ignore_mismatched_sizes": True}
    assert loading.calls == [(("owls/hunt",), {"device": device, "model_kwargs": weights, **LOCAL})]


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("error", [ValueError, OSError, ImportError, KeyError, AttributeError, RuntimeError])
def test_a_model_that_cannot_be_loaded_is_not_tried_in_another_way(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def failing(*_: Any, **options: Any) -> None:
        calls.append(options)
        raise error("the tokenizer of owls/hunt is code of its folder")

    monkeypatch.setattr(library, "SentenceTransformer", failing)
    monkeypatch.setattr(library, "with_pooling", failing)
    for pooling in ("", "mean"):
        with pytest.raises(error):
            library._load(Path("owls/hunt"), "cpu", pooling)
    assert len(calls) == 2 and calls[0].items() >= LOCAL.items()


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    ("tokens", "pad"),
    [
        ({"pad_token": "[PAD]", "eos_token": "</s>", "unk_token": "[UNK]"}, "[PAD]"),
        ({"pad_token": None, "eos_token": "</s>", "unk_token": "[UNK]"}, "</s>"),
        ({"pad_token": None, "eos_token": None, "unk_token": "[UNK]"}, "[UNK]"),
    ],
)
def test_all_parts_of_a_plain_folder_are_read_from_the_disk_alone(
    tokens: dict[str, str | None], pad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [SimpleNamespace(tokenizer=SimpleNamespace(**tokens))]
    loading, pooling = Recorder("loaded"), Recorder(modules)
    monkeypatch.setattr(library, "SentenceTransformer", loading)
    monkeypatch.setattr(library, "with_pooling", pooling)
    assert library._load(Path("owls/hunt"), "cuda:1", "first-last") == "loaded"
    weights = {"dtype": torch.float32, "ignore_mismatched_sizes": True, **LOCAL}
    options = {"model_kwargs": weights, "processor_kwargs": LOCAL, "config_kwargs": LOCAL}
    assert pooling.calls == [(("owls/hunt", "first-last"), options)] and modules[0].tokenizer.pad_token == pad
    assert loading.calls == [((), {"modules": modules, "device": "cuda:1"})]


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("uses_pooler", [False, True])
def test_transformers_is_told_to_read_the_disk_alone_and_its_weights_are_checked(
    uses_pooler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, model, checked = Recorder("config"), Recorder(("model", "info")), []
    monkeypatch.setattr(pretrained, "AutoConfig", config)
    monkeypatch.setattr(pretrained, "check_config", lambda *given: checked.append(("config", *given)))
    monkeypatch.setattr(pretrained, "_check_weights", lambda *given: checked.append(("weights", *given)) or ["new"])
    monkeypatch.setattr(pretrained, "check_values", lambda *given: checked.append(("values", *given)))
    monkeypatch.setattr(pretrained, "model_class", lambda config: {"config": model, "own": chosen}[config])
    folder, chosen = Path("owls/hunt"), Recorder(("chosen", "info"))
    more = {"uses_pooler": True} if uses_pooler else {}
    assert pretrained.load_model(folder, **more) == ("model", ["new"])
    assert pretrained.load_model(folder, chosen, config="own", attn="sdpa", **more) == ("chosen", ["new"])
    assert config.calls == [((folder,), LOCAL)] * 2
    weights = {**LOCAL, "dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
    assert model.calls == [((folder,), {**weights, "config": "config"})]
    assert chosen.calls == [((folder,), {**weights, "config": "own", "attn": "sdpa"})]
    assert checked == [
        each
        for name in ("model", "chosen")
        for each in (("config", folder), ("weights", folder, name, "info", uses_pooler), ("values", folder, name))
    ]


@pytest.mark.guarantee("no-network")
def test_transformers_says_nothing_of_its_own_while_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = transformers.utils.logging
    before, seen = log.get_verbosity(), []

    def loading(*_: Any, **__: Any) -> tuple[str, str]:
        seen.append((log.get_verbosity(), log.is_progress_bar_enabled()))
        return "model", "info"

    monkeypatch.setattr(pretrained, "AutoConfig", Recorder())
    for name in ("check_config", "_check_weights", "check_values"):
        monkeypatch.setattr(pretrained, name, lambda *_: None)
    pretrained.load_model(Path("owls"), SimpleNamespace(from_pretrained=loading), config="own")
    assert seen == [(log.ERROR, False)] and log.get_verbosity() == before


@pytest.mark.slow
@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("roberta-base", []),
        ("bert-base-uncased", []),
        ("bert-base-uncased", ["tokenizer_config.json"]),
        ("bert-base-uncased", ["config.json"]),
    ],
)
def test_a_tokenizer_is_read_from_the_disk_alone(
    name: str, beside: list[str], shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(shared_data / "tokenizers" / name / "tokenizer.json", tmp_path)
    for each in beside:
        (tmp_path / each).write_text("{}")
    tokens = {"pad_token": None, "eos_token": None, "unk_token": "[UNK]"}
    read = Recorder(SimpleNamespace(get_vocab=lambda: {"owl": 0}, **tokens))
    monkeypatch.setattr(tokenizer, "AutoTokenizer", read)
    found = tokenizer.load_tokenizer(tmp_path)
    assert read.calls == ([((tmp_path,), LOCAL)] if beside else [])
    if beside:
        assert found.pad_token == "[UNK]"
    else:
        special = {each: getattr(found, each) for each in tokenizer.USUAL}
        assert special == {each: names[name.startswith("bert")] for each, names in tokenizer.USUAL.items() if each}
        assert found("owl")["input_ids"] and len(found.get_vocab()) > 30_000


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(("tokens", "pad"), [(("</s>", "[UNK]"), "</s>"), ((None, "[UNK]"), "[UNK]")])
@pytest.mark.parametrize("given", [None, "[PAD]"])
def test_a_tokenizer_without_padding_pads_with_its_end(
    tokens: tuple[str | None, str], pad: str, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocab.txt").write_text("owl\n")
    end, unknown = tokens
    read = Recorder(SimpleNamespace(get_vocab=lambda: {"owl": 0}, pad_token=given, eos_token=end, unk_token=unknown))
    monkeypatch.setattr(tokenizer, "AutoTokenizer", read)
    assert tokenizer.load_tokenizer(tmp_path).pad_token == (given or pad)


def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, 2.0] for _ in texts]


@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("bm25", "^bm25: .*embeds no text"),
        ("hybrid:owls", "^hybrid:owls: .*embeds no text"),
        ("static:owls", "^'static:owls': "),
        ("", "^'': names no folder"),
        ("owls", "^owls: no such folder or file"),
        ("sentence-transformers/all-MiniLM-L6-v2", "^sentence-transformers/all-MiniLM-L6-v2: no such folder or file"),
        ("no_such_module:embed", "there is no module no_such_module"),
        (f"{__name__}:LOCAL", "LOCAL.* a function"),
    ],
)
def test_a_model_that_is_not_on_this_machine_is_named(spec: str, why: str) -> None:
    with pytest.raises(EncoderError, match=why):
        load_encoder(spec)


@pytest.mark.guarantee("no-network")
def test_a_folder_is_loaded_before_all_else_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = Recorder("loaded")
    monkeypatch.setattr(load.folder, "load_folder", loaded)
    for name in ("owls", "hybrid:owls", f"{__name__}:embed"):
        Path(name).mkdir()
        assert load_encoder(name, "mean", "bf16", "cuda") == "loaded"
        assert loaded.calls.pop() == ((Path(name), "mean", "cuda", "bf16"), {})
        Path(name).rmdir()
    assert load_encoder(f"{__name__}:embed").encode(["owl", "rain"]).tolist() == [[1, 2], [1, 2]]
    Path("vectors.txt").write_text("owl 3 4\n")
    assert load_encoder("vectors.txt").encode(["owl"]).tolist() == [[3, 4]]


@pytest.mark.guarantee("no-network")
def test_a_tokenizer_is_a_file_or_its_folder_with_what_lies_beside_it(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "tokenizers/bert-base-uncased"
    files = {name: (source / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    folder = tmp_path / "owls"
    folder.mkdir()
    (folder / "README.md").write_text("Owls.")
    (tmp_path / "empty").mkdir()
    for missing in (folder, tmp_path / "empty", tmp_path / "absent", folder / "absent.json"):
        with pytest.raises(PipelineError, match=f"`tokenizer` {missing}: no tokenizer.json there: name that"):
            read_tokenizer(str(missing))
    (folder / "tokenizer_config.json").write_bytes(files["tokenizer_config.json"])
    with pytest.raises(PipelineError, match=r"no tokenizer\.json there"):
        read_tokenizer(str(folder))
    (folder / "tokenizer.json").write_bytes(files["tokenizer.json"])
    found = read_tokenizer(str(folder))
    assert found.files == files and found.vocab_size == 30522
    (folder / "owls.json").write_bytes(files["tokenizer.json"])
    alone = read_tokenizer(str(folder / "owls.json"))
    assert alone.files == {"tokenizer.json": files["tokenizer.json"]} and alone.vocab_size == 30522
    (folder / "owls.json").write_text("{}")
    with pytest.raises(PipelineError, match=f"^{folder / 'owls.json'}: "):
        read_tokenizer(str(folder / "owls.json"))


@pytest.mark.guarantee("no-network")
def test_a_folder_to_embed_with_is_on_this_machine(tmp_path: Path) -> None:
    check_folder(str(tmp_path))
    (tmp_path / "owls.txt").write_text("owl 1 2\n")
    for spec, why in [
        ("owls/hunt", "`model` owls/hunt: no such folder"),
        (str(tmp_path / "owls.txt"), "no such folder"),
        ("", "`model` ''"),
    ]:
        with pytest.raises(EncoderError, match=why):
            check_folder(spec)


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.guarantee("no-network")
@pytest.mark.parametrize("error", [OSError, ValueError, ImportError, KeyError, RuntimeError, TypeError])
def test_what_a_library_cannot_read_is_sought_nowhere_else(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each library is called once for each folder, with this folder alone, also where the environment allows more."""
    calls: list[tuple[Any, dict[str, Any]]] = []

    class Failing:
        def __init__(self, *given: Any, **options: Any) -> None:
            calls.append((given[0], options))
            raise error("Can't load it: connect to the hub, or set local_files_only=False, force_download=True")

        @classmethod
        def from_pretrained(cls, *given: Any, **options: Any) -> None:
            cls(*given, **options)

    monkeypatch.setattr(library, "SentenceTransformer", Failing)
    monkeypatch.setattr(library_pooling, "Transformer", Failing)
    monkeypatch.setattr(pretrained, "AutoConfig", Failing)
    monkeypatch.setattr(tokenizer, "AutoTokenizer", Failing)
    monkeypatch.setattr(pretrained, "check_config", lambda folder: {})
    monkeypatch.chdir(tmp_path)
    readers: list[Callable[[Path], Any]] = [
        lambda folder: library._load(folder, "cpu", ""),
        lambda folder: library._load(folder, "cpu", "mean"),
        lambda folder: library._load(folder, "cpu", "pooler"),
        pretrained.load_model,
        lambda folder: pretrained.load_model(folder, Failing, config=SimpleNamespace(_name_or_path="owls/base")),
        tokenizer.load_tokenizer,
    ]
    for offline in ("0", "", None):
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False) if offline is None else monkeypatch.setenv(name, offline)
        for folder in (Path("owls/hunt"), Path("hunt"), tmp_path / "mice"):
            folder.mkdir(parents=True, exist_ok=True)
            for file in ("config.json", "modules.json", "tokenizer_config.json", "vocab.txt"):
                (folder / file).write_text('{"model_type": "bert", "_name_or_path": "owls/base"}')
            for read in readers:
                calls.clear()
                with pytest.raises((error, EncoderError)):
                    read(folder)
                ((asked, options),) = calls
                parts = [
                    options[key] for key in ("model_kwargs", "processor_kwargs", "config_kwargs") if key in options
                ]
                told = [options] if "local_files_only" in options else parts
                assert Path(asked) == folder and len(told) in (1, 3)
                assert all(each["local_files_only"] is True and each["trust_remote_code"] is False for each in told)


@pytest.mark.guarantee("no-network")
def test_a_tokenizer_that_cannot_be_read_is_not_sought_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocab.txt").write_text("owl\n")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "_name_or_path": "owls/owl"}')
    calls = []

    def fails(*arguments: object, **options: object) -> None:
        calls.append((arguments, options))
        raise OSError("no tokenizer")

    monkeypatch.setattr(tokenizer, "AutoTokenizer", SimpleNamespace(from_pretrained=fails))
    with pytest.raises(tokenizer.EncoderError, match="no tokenizer"):
        tokenizer.load_tokenizer(tmp_path)
    assert calls == [((tmp_path,), {"local_files_only": True, "trust_remote_code": False})]
