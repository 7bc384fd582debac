"""Small CLEAR runs from scratch: what they learn, resume through the deepspeed launcher, ranks, the exported folder."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from tokenizers import Tokenizer

from clearspan.pipelines.augment.steps import Augmentation, Augmenter
from tests.train import runs
from tests.train.conftest import write_sentences
from tests.train.ranks import train_alone, train_on_ranks
from tests.train.runs import same_weights

RECIPE = "clear-subs+del-span"
FIGURES = ("loss", "clear/loss", "mlm/loss", "grad_norm", "tokens", "learning_rate")
PORT = 28110 + os.getpid() % 300


def metrics(run: Path) -> list[dict[str, float]]:
    return runs.metrics(run, FIGURES)


@pytest.fixture(scope="module")
def learned(tiny_clear: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run of 40 steps of two forwards, with dropout; and its arguments."""
    arguments = [
        *tiny_clear,
        "model.config.hidden_dropout_prob=0.02",  # with more, one seed in two learns nothing at this size
        "model.config.attention_probs_dropout_prob=0.1",
        "model.config.initializer_range=0.1",
        "optimizer.learning_rate=3e-3",
        "data.text.batch_size=32",
        "training.max_steps=40",
    ]
    run = tmp_path_factory.mktemp("learned") / "run"
    done = train_alone(*arguments, f"output={run}", recipe=RECIPE)
    assert done.returncode == 0, done.stderr
    return run, arguments


@pytest.mark.exhaustive
def test_both_losses_fall(learned: tuple[Path, list[str]]) -> None:
    lines = metrics(learned[0])
    for name, least in (("clear/loss", 1.0), ("mlm/loss", 0.5)):
        first, last = (np.mean([line[name] for line in part]) for part in (lines[:5], lines[-5:]))
        assert last < first - least, name


@pytest.mark.exhaustive
def test_a_terminated_run_resumes_bit_for_bit(learned: tuple[Path, list[str]], tmp_path: Path) -> None:
    """With dropout, several forwards a step, and new views: nothing that decides a step is lost."""
    whole, arguments = learned
    run = tmp_path / "run"
    arguments = [*arguments, f"output={run}"]
    stopped = train_alone(*arguments, script="tests/train/terminated_at.py", at=14, recipe=RECIPE)
    assert "stopped and saved at step 14 of 40" in stopped.stdout, stopped.stderr
    assert metrics(run) == metrics(whole)[:14]
    resumed = train_alone(*arguments, "--resume", recipe=RECIPE)
    assert resumed.returncode == 0, resumed.stderr
    assert metrics(run) == metrics(whole)
    assert same_weights(run, whole)


@pytest.mark.slow
def test_resuming_with_another_table_of_synonyms_is_refused(
    learned: tuple[Path, list[str]], synonyms_file: Path, tmp_path: Path
) -> None:
    """The file's name in the recipe is the run's; what it holds decides the views."""
    (whole, arguments), run, table = learned, tmp_path / "run", tmp_path / "synonyms.json"
    shutil.copytree(whole, run)
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace(str(synonyms_file), str(table)))
    table.write_text(json.dumps({**json.loads(synonyms_file.read_text()), "object": ["entity"]}))
    refused = train_alone(*arguments, f"objectives.clear.synonyms={table}", f"output={run}", "--resume", recipe=RECIPE)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    error = refused.stderr.strip().splitlines()[-1]
    assert error.startswith(f"train: objectives.clear.synonyms {table}: is no longer what the run in {run} read")


@pytest.mark.slow
@pytest.mark.parametrize("max_steps", [2, 3])
def test_a_run_says_at_start_that_it_sees_two_stored_views_again(
    tiny_clear: list[str], sentences: list[list[int]], del_tokenizer_folder: Path, tmp_path: Path, max_steps: int
) -> None:
    """40 sentences are two steps of 16: the third begins another epoch."""
    tokenizer = Tokenizer.from_file(str(del_tokenizer_folder / "tokenizer.json"))
    augmenter = Augmenter(Augmentation.parse("del-span"), tokenizer)
    folder = write_sentences(tmp_path / "shards", sentences[:40], del_tokenizer_folder, augmenter, 2)
    stored = ["objectives.clear.views=stored", "objectives.clear.augment=del-span", "objectives.clear.synonyms=null"]
    given = [
        *tiny_clear,
        *stored,
        f"data.text.path={folder}",
        f"training.max_steps={max_steps}",
        "optimizer.warmup_steps=1",
    ]
    done = train_alone(*given, f"output={tmp_path / 'run'}", recipe=RECIPE)
    assert done.returncode == 0, done.stderr
    said = (done.stdout + done.stderr).count(
        "views of each sentence are the same in all 2 epochs: set objectives.clear.vi"
    )
    assert said == (max_steps > 2)


@pytest.mark.slow
def test_the_exported_folder_pools_cls_has_del_and_no_head(learned: tuple[Path, list[str]]) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    from clearspan.common.encoder.library import load

    folder = learned[0] / "model"
    texts = ["A sentence.", "[DEL] one, of several [DEL] words.", ""]
    ours = load(folder).encode(texts)
    np.testing.assert_allclose(ours, SentenceTransformer(str(folder), device="cpu").encode(texts), atol=1e-5)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, add_pooling_layer=False)
    assert tokenizer.convert_tokens_to_ids("[DEL]") == 1500 == len(model.get_input_embeddings().weight) - 1
    ids = tokenizer(texts[1], return_tensors="pt")
    assert (ids["input_ids"] == 1500).sum() == 2
    np.testing.assert_allclose(ours[1], model.eval()(**ids).last_hidden_state[0, 0].detach(), atol=1e-5)
    assert not any("head" in name or "objectives" in name for name in load_file(folder / "model.safetensors"))


@pytest.mark.exhaustive
def test_two_ranks_train_as_one(tiny_clear: list[str], tmp_path: Path) -> None:
    alone = train_alone(*tiny_clear, f"output={tmp_path / 'one'}", recipe=RECIPE)
    assert alone.returncode == 0, alone.stderr
    both = train_on_ranks(2, *tiny_clear, f"output={tmp_path / 'two'}", recipe=RECIPE, port=PORT)
    assert both.returncode == 0, both.stderr
    one = metrics(tmp_path / "one")
    assert [line["step"] for line in one] == [1, 2, 3, 4, 5, 6]
    assert [line["learning_rate"] / 6e-4 for line in one] == pytest.approx([0.5, 0.5, 1, 0.75, 0.5, 0.25])
    for expected, found in zip(one, metrics(tmp_path / "two"), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
