"""Options in messages: `flag` names them as the caller writes them, and no message names one by hand."""

import ast
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clearspan.common.flags import VARIABLE, as_keys, caller, command_line, flag, set_caller
from tests.conftest import ROOT

PACKAGES = ("adapt", "clearspan", "common", "eval", "pipelines", "plugins", "shards", "train")
OPTION = re.compile(r"(?<![\w/=.-])--(?!help\b|version\b|list\b|runner\b)[a-z][\w-]*")
"""An option in a sentence. The first three have no keyword argument, and Beam's options are words in Python too."""
COMMAND = re.compile(r"`[^`]*`")
"""A command line in a sentence, which stays a command line for a reader in Python."""
OF_OTHERS = {"tar's": "pack it without --sparse", "zstd's": "e.g. zstd without --long"}
HELP = {"Flag", "add_argument", "add_argument_group", "continue_with"}
"""Functions whose texts are read on a command line only."""
HELP_TEXTS = re.compile(r"example|_?EXAMPLES?|EPILOG|OWN|notes|_?NOTES?|usage|LAUNCHER")
"""Names of texts of the help."""


def is_sentence(text: str) -> bool:
    """Return whether a text names an option within a sentence; a text that is an option, or an
    option and its value, is data for `flag`."""
    is_data = re.fullmatch(r"--[\w-]+ \S+", text)
    return not is_data and " " in text.strip() and bool(OPTION.search(COMMAND.sub("", text)))


def by_hand(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each literal that names an option in a sentence, except texts of the help."""
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    helping = [node for node in called if getattr(node.func, "id", getattr(node.func, "attr", "")) in HELP]
    in_help = {id(node) for call in helping for node in ast.walk(call)}
    named = {node.id for call in helping for node in ast.walk(call) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            in_help.add(id(node.value))  # a docstring
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {name for target in targets if isinstance(name := getattr(target, "id", ""), str)}
            if names & named or any(HELP_TEXTS.fullmatch(name) for name in names):
                in_help |= {id(each) for each in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "x" for each in node.values]
            in_help |= {id(each) for each in node.values if isinstance(each, ast.Constant)}
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in in_help and is_sentence(text):
            yield node.lineno, text


def test_no_message_names_an_option_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in by_hand(ast.parse(path.read_text(encoding="utf-8")))
        if not any(other in text for other in OF_OTHERS.values())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('raise ValueError("--eggs must be at least 1")', 1),
        ('raise ValueError(f"{option} has no effect without --butter")', 1),
        ('MEND = "lower --min-tokens"', 1),
        ("raise ValueError(f\"{flag('--eggs')} must be at least 1\")", 0),
        ('raise ValueError("make it with `clearspan documents --eggs 2`; --help lists more")', 0),
        ('TEXT = "as --butter"\neggs = Flag(TEXT)', 0),
        ('OPTION = "--group-field"', 0),
    ],
)
def test_the_rule_finds_options_in_messages_only(source: str, number: int) -> None:
    assert len(list(by_hand(ast.parse(source)))) == number


def test_options_are_named_as_the_caller_writes_them() -> None:
    assert flag("--min-tokens") == "min_tokens" and flag("--text-per line") == "text_per line"
    with command_line():
        assert flag("--min-tokens") == "--min-tokens" and flag("--text-per line") == "--text-per line"
        with as_keys():
            assert flag("--no-dedup") == "no_dedup"
        assert flag("training.bf16") == "training.bf16"
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(flag, "--no-dedup").result() == "--no-dedup"
    assert flag("--no-dedup") == "no_dedup"


def test_a_worker_on_another_machine_is_told_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    with command_line():
        told = caller()
    monkeypatch.setenv(VARIABLE, "")  # so that it is removed after the test
    monkeypatch.delenv(VARIABLE)
    set_caller(caller())
    assert flag("--no-dedup") == "no_dedup"
    set_caller(told)
    assert flag("--no-dedup") == "--no-dedup"


def test_only_the_option_is_renamed() -> None:
    file = Path("/data/--min-tokens/x")
    assert f"{flag('--exclude')} {file}: no such file" == "exclude /data/--min-tokens/x: no such file"
