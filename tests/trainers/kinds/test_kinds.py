"""No code asks of which kind a task is, outside of the folder of that kind."""

import ast

import pytest

from tests import ROOT
from tests.test_layers import KINDS
from trainers.kinds.task import Task
from trainers.tasks import registry

TRAINERS = ROOT / "trainers"
TREES = {
    path.relative_to(TRAINERS).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(TRAINERS.rglob("*.py"))
}
TASKS = [*registry.EVERY.values()]
# Attributes that say of which kind a task is. They may be shown, or called by their name.
NAMES = {"program", "folder", "evaluation", "reproduction"}
# What compares the command of a task with the one that runs, and `program` with another meaning.
OTHERS = {
    "tasks/registry.py",
    "cli/run_command.py",
    "meta_evaluate.py",
    "training/identity.py",
}


def kind_classes():
    """The classes of tasks, each with the folder that it is in."""
    classes = {kind for task in TASKS for kind in type(task).__mro__}
    modules = {kind.__name__: kind.__module__.split(".") for kind in classes}
    return {
        name: module[1]
        for name, module in modules.items()
        if module[0] == "trainers" and module[1] in KINDS
    }


def names(node):
    """Yields the names that a node reads, imports, or matches."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield node.name.rpartition(".")[2]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value  # as in `type(task).__name__ == "ImageTask"`


def of_bases(tree):
    """Returns the nodes that a class derives from, and those that import."""
    bases = {
        base
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    return bases | {node for node in ast.walk(tree) if isinstance(node, ast.alias)}


def classes_named(tree, folder, classes):
    """Yields where a tree names the class of another folder's kind, but to derive from it."""
    allowed = of_bases(tree) if folder in KINDS else set()
    for node in ast.walk(tree):
        if node in allowed:
            continue
        for name in names(node):
            if classes.get(name, folder) != folder:
                yield f"line {getattr(node, 'lineno', '?')}: {name}"


def read_of(side):
    """The attribute that a side of a comparison reads, or the item; None if it is neither."""
    if isinstance(side, ast.Attribute):
        return side.attr
    if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Constant):
        return side.slice.value
    return None


def kinds_compared(tree):
    """Yields where a tree compares what only a kind says of itself, or the names of tasks."""
    known = {task.name for task in TASKS}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        read = {read_of(side) for side in (node.left, *node.comparators)}
        values = {
            each.value for each in ast.walk(node) if isinstance(each, ast.Constant)
        }
        if read & NAMES or ("task" in read and values & known):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_kinds():
    """The test below looks for something."""
    classes = kind_classes()
    assert {*classes.values()} == {*KINDS} and len(classes) >= len(KINDS)
    assert {task.folder for task in TASKS} == {f"trainers.{kind}" for kind in KINDS}
    for source in (
        "isinstance(task, ImageTask)",
        "type(task) is kinds.ImageTask",
        "from trainers.images.tasks import ImageTask",
        "type(task).__name__ == 'ImageTask'",
        "match task:\n    case ImageTask(): pass",
    ):
        assert [*classes_named(ast.parse(source), "studies", classes)]
        assert not [*classes_named(ast.parse(source), "images", classes)]
    derived = ast.parse("class Tags(ImageTask): pass\nisinstance(task, ImageTask)")
    assert len([*classes_named(derived, "language", classes)]) == 1
    for source in (
        "task.program == 'trainers.lm'",
        "config.task == 'csv'",
        "config['task'] in ('csv', 'watch')",
    ):
        assert [*kinds_compared(ast.parse(source))]


@pytest.mark.parametrize("file", TREES)
def test_no_code_asks_for_the_kind(file):
    folder = file.split("/")[0]
    assert not [*classes_named(TREES[file], folder, kind_classes())]
    if folder not in KINDS and file not in OTHERS:
        assert not [*kinds_compared(TREES[file])]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_parts_of_a_kind_have_what_they_promise(task):
    promised = {
        "experiment": ("load",),
        "exporting": ("export",),
        "writing": ("generate",),
        "authors": ("SCORED", "is_permuted", "make_comparable", "models", "imported"),
    }
    assert isinstance(task, Task) and task.has_part("experiment")
    for name, functions in promised.items():
        if task.has_part(name):
            assert all(hasattr(task.part(name), each) for each in functions)
    if task.has_layer:
        assert hasattr(task.part("experiment").load, "published_parameters")
    if task.reproduction:
        assert all(hasattr(task.reproduced(), each) for each in ("load", "drawn"))
