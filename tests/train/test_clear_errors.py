"""What cannot go together in a CLEAR recipe: exit codes and one line on stderr."""

import json
import shutil
from pathlib import Path

import pytest

from clearspan.train.recipe import load_recipe, to_yaml
from clearspan.train.run import main
from tests.train.conftest import write_sentences
from tests.train.test_learner import learner_and_batch

RECIPE = "clear-subs+del-span"


@pytest.fixture(scope="module")
def other_shards(
    sentences: list[list[int]], tokenizer_folder: Path, del_tokenizer_folder: Path, tmp_path_factory
) -> dict[str, Path]:
    """Datasets that a CLEAR recipe cannot take as they are."""
    root = tmp_path_factory.mktemp("shards")
    folders = {
        "bare": write_sentences(root / "bare", sentences[:40], del_tokenizer_folder),
        "no-del": write_sentences(root / "no-del", sentences[:40], tokenizer_folder),
    }
    for name, change in (("no-mask", {"mask_token": None}), ("no-cls", {})):
        tokenizer = root / f"tokenizer-{name}"
        shutil.copytree(del_tokenizer_folder, tokenizer)
        settings = json.loads((tokenizer / "tokenizer_config.json").read_text())
        (tokenizer / "tokenizer_config.json").write_text(json.dumps({**settings, **change}))
        if name == "no-cls":
            backend = json.loads((tokenizer / "tokenizer.json").read_text())
            (tokenizer / "tokenizer.json").write_text(json.dumps({**backend, "post_processor": None}))
        folders[name] = write_sentences(root / name, sentences[:40], tokenizer)
    (root / "list.json").write_text('["object", "thing"]')
    folders["list"] = root / "list.json"
    return folders


@pytest.fixture(scope="module")
def recipe_file(tiny_clear: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe in a file: its many overrides take a while to apply."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(to_yaml(load_recipe(RECIPE, [*tiny_clear, "output=unused"])))
    return path


STORED = ("objectives.clear.views=stored", "objectives.clear.synonyms=null")


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (
            ["data.text.path={bare}", "objectives.clear.synonyms=null", "objectives.clear.views=stored"],
            "holds 0: make the shards again with --views 2",
        ),
        (
            ["objectives.clear.views=auto", "objectives.clear.synonyms=null"],
            "augment subs+del-span: the stored views of {sentences} were made with del-span",
        ),
        (
            [*STORED, "objectives.clear.augment=del-span", "objectives.clear.del_spans=4"],
            "del_spans 4: the stored views of {sentences} have 5",
        ),
        (["objectives.clear.synonyms=''"], "subs needs synonyms: set objectives.clear.synonyms=FILE"),
        (["objectives.clear.views=stored"], "synonyms {table} has no effect with views: stored"),
        (["objectives.clear.augment=del-span"], "synonyms {table} has no effect: augment del-span has no subs"),
        (["objectives.clear.synonyms={list}"], "{list}: a JSON list: expected a JSON object of words"),
        (["objectives.clear.synonyms=absent.json"], "absent.json: No such file"),
        (["data.text.path={no-del}"], "has no [DEL]: make the shards again"),
        (["data.text.path={no-mask}"], "objectives.mlm: the tokenizer has no mask token"),
        (["data.text.path={no-cls}"], "objectives.clear: the tokenizer puts no token"),
        (["objectives.clear.augment=''"], "objectives.clear: augment is not set"),
        (["objectives.clear.augment=subs+swap"], "objectives.clear: augment 'subs+swap': 'swap' is not one of"),
        (
            ["objectives.clear.pool=mean"],
            "objectives.clear: pool: mean needs a model that pools by the mean, and the pooling of this model is cls",
        ),
        (["objectives.mlm.copies=2", "objectives.mlm.input=clear/view_0"], "objectives.mlm: copies 2 has no effect"),
        (
            ["optimizer.warmup_steps=80", "training.max_steps=0", "training.epochs=2"],
            "training.epochs 2, with its steps 74 must be more than optimizer.warmup_steps 80",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line_that_names_it(
    recipe_file: Path,
    other_shards: dict[str, Path],
    sentences_folder: Path,
    synonyms_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    overrides: list[str],
    named: str,
) -> None:
    places = {**other_shards, "sentences": sentences_folder, "table": synonyms_file}
    arguments = [override.format(**places) for override in overrides]
    assert main(["--recipe", str(recipe_file), *arguments, f"output={tmp_path / 'run'}", "--dry-run"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("train: ") and named.format(**places) in lines[-1]
    assert not any("Traceback" in line for line in lines)


def test_a_tokenizer_without_cls_is_enough_for_the_mean(tiny_clear: list[str], other_shards: dict[str, Path]) -> None:
    given = [
        *tiny_clear,
        f"data.text.path={other_shards['no-cls']}",
        "objectives.clear.pool=mean",
        "model.pooling=mean",
    ]
    learner, batches, _ = learner_and_batch(given, recipe=RECIPE)
    assert learner(batches)[0].isfinite()
