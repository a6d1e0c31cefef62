"""docs/notes/papers.md: no row is silent, and each preset, command, test and name in it exists."""

import ast
import importlib.util
import pkgutil
import re
import shlex

from tests import ROOT
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.tasks.names import flatten

PAGE = (ROOT / "docs/notes/papers.md").read_text()
_, LEGEND, *PAPERS = re.split(r"^(?:## .*|\| word .*)$", PAGE, flags=re.MULTILINE)
STATES = re.findall(r"^\| ([a-z ]+) \|", LEGEND, re.MULTILINE)
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for paper in PAPERS
    for line in paper.splitlines()
    if line.startswith("| ") and not line.startswith("| item")
]
SPANS = sorted(set(re.findall("`([^`]+)`", "\n".join(PAPERS))))
COMMANDS = [span for span in SPANS if span.startswith("python -m ")]
TESTS = [span for span in SPANS if span.startswith("test_")]
NAMES = [span for span in SPANS if re.match(r"(keras_trellis|trainers)\.", span)]
OTHERS = {"reset_after=False", "means.png"}


def test_all_that_is_marked_as_code_is_looked_at():
    assert set(SPANS) == {*COMMANDS, *TESTS, *NAMES, *OTHERS}
    assert len(ROWS) > 90 and len(PAPERS) == 3


def test_no_row_is_silent():
    for row in ROWS:
        assert len(row) == 4 and all(row), row
        _, _, state, how = row
        assert state in STATES, row
        if state == "tested":
            assert "`test_" in how, row
        if state in ("not run", "small form run", "begun", "drawn"):
            assert "`python -m " in how, row


def test_each_paper_begins_with_what_was_not_reached():
    for paper in PAPERS:
        assert paper.strip().startswith("**Not reached: ")


def test_the_tests_and_names_exist():
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    names = re.findall(r"^def (test_\w+)\(", "\n".join(texts), re.MULTILINE)
    assert not set(TESTS) - set(names)
    for name in NAMES:
        assert pkgutil.resolve_name(name)


def test_the_quoted_tables_are_those_of_the_trainers():
    text = (ROOT / "docs/notes/quoted.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    for task in registry.TASKS.values():
        for result in task.quoted:
            own = [line for line in lines if line.startswith(f"| {result.name}")]
            numbers = {float(n) for line in own for n in re.findall(r"[\d.]*\d", line)}
            assert result.value in numbers, (task.name, result)


def test_the_commands_and_their_presets_exist():
    for command in COMMANDS:
        check(command)


def check(command):
    """Asserts that a command's module, task, preset and fields are there."""
    _, _, module, *rest = shlex.split(command)
    assert importlib.util.find_spec(module), command
    flags = dict(
        flag.removeprefix("--").split("=", 1) for flag in rest if flag.startswith("--")
    )
    if "task" not in flags:
        return
    task = registry.get(flags["task"])
    assert module in (task.program, "benchmarks.paper"), command
    values = flatten(configs.load(flags["task"], flags["preset"]))
    for name, text in flags.items():
        if name.startswith("config."):
            field = name.removeprefix("config.")
            assert field in values, command
            values[field] = value(text)
    schema.check_flat(values)


def value(text):
    """The value of a flag."""
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text
