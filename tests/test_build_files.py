"""The BUILD files against the sources, and the directions in which the folders may import."""

from pathlib import Path

import pytest

from tools import build_files

FILES = build_files.python_files()
TEXTS = build_files.build_files()

# What the files of a folder may import of other folders; `trainers` itself stands above its parts.
MAY_IMPORT = {
    "keras_trellis": (),
    "configs": (),
    "trainers/data/files.py": (),
    "trainers/tasks/names.py": (),
    "trainers/data": ("trainers/data/files.py", "trainers/tasks/names.py"),
    "trainers/tasks": (
        "keras_trellis",
        "configs",
        "trainers/data/files.py",
        "trainers/tasks/names.py",
        "trainers/data",
    ),
    "trainers/training": (
        "keras_trellis",
        "configs",
        "trainers/data/files.py",
        "trainers/tasks/names.py",
        "trainers/data",
        "trainers/tasks",
    ),
    "trainers": (
        "keras_trellis",
        "configs",
        "trainers/data/files.py",
        "trainers/tasks/names.py",
        "trainers/data",
        "trainers/tasks",
        "trainers/training",
    ),
}
SOURCES = [path for path in FILES if path.parts[0] in {"keras_trellis", "configs", "trainers"}]


def layer_of(path: Path) -> str:
    return next((name for name in MAY_IMPORT if path.is_relative_to(name)), path.parts[0])


@pytest.mark.parametrize("path", TEXTS, ids=str)
def test_build_file_is_up_to_date(path):
    assert (build_files.ROOT / path).read_text() == TEXTS[path], "run `make build-files`"


def test_every_python_file_has_one_target():
    targets = "".join(TEXTS.values())
    assert targets.count("srcs = [") == len(FILES)
    assert {f"{path.parent.as_posix()}/BUILD" for path in FILES} == {
        f"{path.parent.as_posix()}/BUILD" for path in TEXTS
    }


def test_no_build_file_without_python_files():
    found = {
        path.relative_to(build_files.ROOT)
        for folder in build_files.FOLDERS
        for path in (build_files.ROOT / folder).rglob("BUILD")
    }
    assert found <= set(TEXTS)


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_point_downwards(path):
    first_party = [item for item in build_files.dependencies(path, FILES) if isinstance(item, Path)]
    layer = layer_of(path)
    wrong = [item for item in first_party if layer_of(item) not in (layer, *MAY_IMPORT[layer])]
    assert not wrong


def test_imports_have_no_cycle():
    imports = {path: build_files.dependencies(path, FILES) for path in FILES}
    finished: set[Path] = set()

    def visit(path, above):
        assert path not in above, f"cycle: {[*map(str, above), str(path)]}"
        if path not in finished:
            for item in imports.get(path, ()):
                visit(item, (*above, path))
            finished.add(path)

    for path in FILES:
        visit(path, ())


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nothing_private_is_imported(path):
    names = build_files.imported_names((build_files.ROOT / path).read_text(encoding="utf-8"))
    assert not [name for name in names if name.startswith(("keras.src", "tensorflow.python"))]


def test_distributions_are_locked():
    lock = (build_files.ROOT / "requirements_lock.txt").read_text()
    locked = {line.partition("==")[0].lower().replace("-", "_") for line in lock.splitlines()}
    used = {
        item
        for path in FILES
        for item in build_files.dependencies(path, FILES)
        if isinstance(item, str)
    }
    assert used <= locked


@pytest.fixture
def repository(tmp_path):
    """A small repository in which a file imports in every way there is."""
    for name, text in {
        "keras_trellis/__init__.py": "",
        "keras_trellis/gates.py": "import numpy as np",
        "configs/__init__.py": "",
        "configs/ptb.py": "",
        "tests/test_text.py": "FILE = 'testdata/a.txt'",
        "tests/testdata/a.txt": "",
        "tests/testdata/b.txt": "",
        "trainers/data/page.html": "",
        "trainers/data/sums.tsv": "",
        "trainers/data/text.py": "import os.path\nfrom absl import flags\n"
        "FILES = 'sums.tsv', 'page.html'",
        "trainers/lm.py": "import importlib\n"
        "import keras_trellis.gates\n"
        "from trainers.data import text\n"
        "def load(task):\n"
        "    from keras_trellis import TrellisLayer\n"
        '    return importlib.import_module(f"configs.{task}")\n'
        'if __name__ == "__main__":\n'
        "    pass\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_targets_of_a_small_repository(repository):
    texts = build_files.build_files(repository)
    assert (
        '    name = "keras_trellis",\n    srcs = ["__init__.py"],\n)'
        in texts[Path("keras_trellis/BUILD")]
    )
    assert 'deps = ["@pypi//numpy"]' in texts[Path("keras_trellis/BUILD")]
    assert (
        '    data = [\n        "page.html",\n        "sums.tsv",\n    ],\n'
        '    deps = ["@pypi//absl_py"]' in texts[Path("trainers/data/BUILD")]
    )
    assert texts[Path("tests/BUILD")].endswith('    data = ["testdata/a.txt"],\n)\n')
    assert texts[Path("trainers/BUILD")].endswith(
        "py_binary(\n"
        '    name = "lm",\n'
        '    srcs = ["lm.py"],\n'
        "    deps = [\n"
        '        "//configs:ptb",\n'
        '        "//keras_trellis",\n'
        '        "//keras_trellis:gates",\n'
        '        "//trainers/data:text",\n'
        "    ],\n)\n"
    )


def test_a_source_may_name_all_of_testdata(repository):
    (repository / "tests/test_text.py").write_text("FILES = 'testdata/*'")
    text = build_files.build_files(repository)[Path("tests/BUILD")]
    assert '    data = [\n        "testdata/a.txt",\n        "testdata/b.txt",\n    ],\n' in text


@pytest.mark.parametrize(
    "text", ["from . import gates", "import keras_trellis_missing.x\nimport trainers.nothing"]
)
def test_imports_that_lead_nowhere_are_refused(repository, text):
    (repository / "trainers/lm.py").write_text(text)
    with pytest.raises(ValueError, match="absolute|no file defines"):
        build_files.build_files(repository)
