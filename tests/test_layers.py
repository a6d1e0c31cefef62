"""Imports point downwards, form no circle, and reach nothing private."""

import ast
import graphlib
import itertools

from tests import ROOT

# From the bottom up. A file belongs to the line with the longest beginning of its path. Files of
# one line may import one another.
ORDER = (
    ("keras_trellis/types.py", "keras_trellis/arguments.py"),
    ("keras_trellis/core/",),
    ("keras_trellis/engine/",),
    ("keras_trellis/",),  # the layers
    ("keras_trellis/recurrent/",),
    ("keras_trellis/heads/",),
    ("keras_trellis/models/",),
    ("keras_trellis/convert/",),
    ("keras_trellis/__init__.py",),
    ("keras_trellis/export/",),
    ("configs/",),
    ("trainers/baselines/",),
    ("trainers/optimizers/",),
    ("trainers/data/stores.py",),
    ("trainers/data/files.py",),
    ("trainers/data/",),
    ("trainers/models/",),
    ("trainers/tasks/",),
    ("trainers/training/",),
    (
        "trainers/language/",
        "trainers/sequences/",
        "trainers/drawing/",
        "trainers/learned_optimizers/",
        "trainers/authors/",
        "trainers/serving/",
        "trainers/scoring/",
    ),
    ("trainers/studies/",),
    ("trainers/cli/",),
    ("trainers/",),  # the commands
)
RANKS = {start: rank for rank, line in enumerate(ORDER) for start in line}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = [
    path
    for folder in ("keras_trellis", "configs", "trainers")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
MODULES = {module_of(path): path.relative_to(ROOT).as_posix() for path in FILES}


def imported(path):
    """Yields the dotted names that a file imports, those inside of functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def our_files(path):
    """Returns the files of the library and the trainers that a file imports."""
    beginnings = (
        itertools.accumulate(name.split("."), "{}.{}".format) for name in imported(path)
    )
    modules = [[name for name in names if name in MODULES] for names in beginnings]
    return {MODULES[names[-1]] for names in modules if names}


IMPORTS = {path.relative_to(ROOT).as_posix(): our_files(path) for path in FILES}


def rank(file):
    return RANKS[max(filter(file.startswith, RANKS), key=len)]


def test_imports_point_downwards():
    pairs = [(file, below) for file, files in IMPORTS.items() for below in files]
    upwards = {(file, below) for file, below in pairs if rank(below) > rank(file)}
    assert not upwards


def test_imports_form_no_circle():
    graphlib.TopologicalSorter(IMPORTS).prepare()


def test_data_knows_no_network():
    of_data = [
        files for file, files in IMPORTS.items() if file.startswith("trainers/data/")
    ]
    of_library = {
        file for file in set().union(*of_data) if file.startswith("keras_trellis/")
    }
    assert of_library <= {"keras_trellis/export/tokenizer.py"}


def test_nothing_private_is_imported():
    folders = ("benchmarks", "docs", "examples", "tests", "tools")
    others = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = [name for path in FILES + others for name in imported(path)]
    assert not [
        name for name in names if name.startswith(("keras.src", "tensorflow.python"))
    ]
