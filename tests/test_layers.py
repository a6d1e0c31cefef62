"""Imports point downwards, form no circle, and reach nothing private."""

import ast
import graphlib
import itertools
import sys

import pytest

from tests import ROOT

KINDS = (
    "language",
    "images",
    "synthetic",
    "time_series",
    "drawing",
    "learned_optimizers",
    "tagging",
)
# From the bottom up. A file belongs to the line with the longest beginning of its path. Files of
# one line may import one another.
ORDER = (
    (
        "keras_trellis/types.py",
        "keras_trellis/arguments.py",
        "keras_trellis/version.py",
    ),
    ("keras_trellis/after_keras.py",),
    ("keras_trellis/formats/",),
    ("keras_trellis/backend/",),
    ("keras_trellis/core/",),
    ("keras_trellis/engine/",),
    # Cells and their steps stand below the layers; the layers made of them, above.
    tuple(
        f"keras_trellis/recurrent/{name}.py"
        for name in ("cell", "cells", "grid", "steps")
    ),
    ("keras_trellis/layers/",),
    ("keras_trellis/testing.py",),
    ("keras_trellis/recurrent/",),
    ("keras_trellis/heads/",),
    ("keras_trellis/models/",),
    ("keras_trellis/convert/",),
    ("keras_trellis/estimators/",),
    # What has the names of layers of other folders too, and imports none of them by itself.
    ("keras_trellis/__init__.py", "keras_trellis/layers/__init__.py"),
    ("keras_trellis/export/",),
    # Nothing of the library imports it.
    ("keras_trellis/serving/",),
    ("configs/",),
    ("trainers/baselines/",),
    ("trainers/optimizers/",),
    ("trainers/data/stores.py",),
    ("trainers/data/files.py",),
    ("trainers/data/",),
    ("trainers/training/",),
    ("trainers/models/",),
    ("trainers/kinds/",),
    # What every command knows of a kind of task; the rest of its folder stands above the loop.
    tuple(f"trainers/{kind}/tasks/" for kind in KINDS),
    ("trainers/tasks/",),
    (
        "trainers/sequences/",
        "trainers/authors/",
        "trainers/serving/",
        "trainers/scoring/",
    ),
    tuple(f"trainers/{kind}/" for kind in KINDS),
    ("trainers/studies/",),
    ("trainers/papers/",),
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


@pytest.fixture(scope="module")
def imports():
    """The files of ours that each file imports."""
    return {path.relative_to(ROOT).as_posix(): our_files(path) for path in FILES}


def rank(file):
    return RANKS[max(filter(file.startswith, RANKS), key=len)]


def test_imports_point_downwards(imports):
    pairs = [(file, below) for file, files in imports.items() for below in files]
    upwards = {(file, below) for file, below in pairs if rank(below) > rank(file)}
    assert not upwards


def test_imports_form_no_circle(imports):
    graphlib.TopologicalSorter(imports).prepare()


def room(file):
    """Returns the folder of the library that a file is in; a loose file is its own."""
    if file == "keras_trellis/layers/__init__.py":
        return file
    return "/".join(file.split("/")[:2])


def test_the_rooms_of_the_library_form_no_circle(imports):
    arrows = {}
    for file, files in imports.items():
        if file.startswith("keras_trellis/"):
            rooms = arrows.setdefault(room(file), set())
            rooms |= set(map(room, files)) - {room(file)}
    graphlib.TopologicalSorter(arrows).prepare()


def test_data_knows_no_network(imports):
    of_data = [
        files for file, files in imports.items() if file.startswith("trainers/data/")
    ]
    of_library = {
        file for file in set().union(*of_data) if file.startswith("keras_trellis/")
    }
    known = {f"formats/{name}.py" for name in ("philox", "pieces", "standardizer")}
    known.add("types.py")
    assert of_library <= {f"keras_trellis/{name}" for name in known}


def test_nothing_private_is_imported():
    folders = ("benchmarks", "docs", "examples", "tests", "tools")
    others = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = [name for path in FILES + others for name in imported(path)]
    assert not [
        name for name in names if name.startswith(("keras.src", "tensorflow.python"))
    ]


_ON_JAX = ("keras_trellis/backend/", "trainers/papers/")


def test_neither_jax_nor_pyplot_is_imported_outside_the_backends():
    names = {
        name
        for path in FILES
        if not path.relative_to(ROOT).as_posix().startswith(_ON_JAX)
        for name in imported(path)
    }
    assert not [
        name for name in names if f"{name}.".startswith(("jax.", "matplotlib.pyplot."))
    ]


def test_what_runs_on_every_backend_imports_no_tensorflow():
    folders = ("keras_trellis/core/", "keras_trellis/recurrent/")
    names = {
        name
        for path in FILES
        if path.relative_to(ROOT).as_posix().startswith(folders)
        for name in imported(path)
    }
    assert not [name for name in names if name.partition(".")[0] == "tensorflow"]


_SERVER = {"fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"}


@pytest.mark.parametrize(
    ("folder", "packages", "below"),
    [
        ("formats", {"numpy"}, set()),
        ("serving", {"numpy", "onnxruntime"}, {"formats"}),
        (
            "serving/server",
            {"numpy", *_SERVER},
            {"formats", "serving", "serving/server/page"},
        ),
        ("serving/server/page", set(), set()),
    ],
)
def test_what_serves_an_export_imports_neither_keras_nor_tensorflow(
    imports, folder, packages, below
):
    """Nor what each of these folders does without."""
    place = ROOT / "keras_trellis" / folder
    paths = {path for path in FILES if path.parent == place} - {place / "__main__.py"}
    names = {name.partition(".")[0] for path in paths for name in imported(path)}
    assert paths and names - sys.stdlib_module_names - {"keras_trellis"} <= packages
    own = {
        file for path in paths for file in imports[path.relative_to(ROOT).as_posix()]
    }
    known = {f"keras_trellis/{name}" for name in (folder, *below)}
    known |= {"keras_trellis/__init__.py", "keras_trellis/version.py"}
    assert all({file, file.rpartition("/")[0]} & known for file in own)


def test_training_knows_neither_models_nor_tasks(imports):
    of_training = [
        files
        for file, files in imports.items()
        if file.startswith("trainers/training/")
    ]
    known = {file for file in imports if file.startswith(_BELOW_TRAINING)}
    assert set().union(*of_training) <= known


def test_a_run_needs_few_files(imports):
    needed, todo = set(), ["trainers/training/runs.py"]
    while todo:
        file = todo.pop()
        needed.add(file)
        todo += imports[file] - needed
    assert len(needed) < 50


_BELOW_TRAINING = ("trainers/data/", "trainers/optimizers/", "trainers/training/")

# Imports a module in a process that has forgotten ours; prints which of ours that brings.
IMPORT = """
import importlib, sys, types

def of_packages(*packages):
    return sorted(name for name in sys.modules if name.partition(".")[0] in packages)

OURS = "configs", "keras_trellis", "trainers"
# TensorFlow Datasets would know the data sets of ours twice.
for name in of_packages(*OURS, "tensorflow_datasets"):
    del sys.modules[name]
"""
# The library's own `__init__` imports all public names, for whatever module of it.
BARE = """
package = types.ModuleType("keras_trellis")
package.__path__ = ["keras_trellis"]
sys.modules["keras_trellis"] = package
"""
# As `python -m` begins: the package quiets TensorFlow and listens for signals.
COMMAND = """
sys.argv[0] = "-m"
"""


def loaded(forks, before, module, *packages):
    packages = packages or ("configs", "keras_trellis", "trainers")
    end = f"importlib.import_module({module!r})\nprint(*of_packages(*{packages}))\n"
    done = forks.run("-c", IMPORT + before + end, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout.split()


def test_the_network_in_plain_code_stands_alone(forks):
    names = loaded(forks, BARE, "keras_trellis.core.trellis")
    parts = {tuple(name.split(".")[1:2]) for name in names}
    assert parts <= {(), ("backend",), ("core",), ("types",), ("arguments",)}


def test_the_training_loop_loads_neither_models_nor_tasks(forks):
    names = loaded(forks, COMMAND, "trainers.training.loop")
    parts = {".".join(name.split(".")[:3]) for name in names}
    expected = {"trainers", "trainers.cli", "trainers.cli.quiet"}
    of_data = ("files", "names", "stores", "terminal", "threads")
    expected |= {"trainers.data", *(f"trainers.data.{name}" for name in of_data)}
    others = parts - expected
    allowed = ("trainers.training", "trainers.optimizers")
    assert not [name for name in others if not name.startswith(allowed)]
    assert len(names) <= 36


def test_a_language_run_loads_no_data_sets_of_images(forks):
    names = loaded(forks, COMMAND, "trainers.lm", "tensorflow_datasets")
    assert not [name for name in names if "image_classification." in name]
