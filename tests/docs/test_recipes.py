"""The recipes of CONTRIBUTING.md, followed in a copy of the packages."""

import re
import shutil
import subprocess

import pytest

from tests import ROOT

PACKAGES = ("configs", "keras_trellis", "trainers", "tests", "docs/reference")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "testdata", "*.keras", "*.npz")
TEXT = "A minimal text of a few words , which a small model reads .\n"
TINY = (
    "--config.model.units=8",
    "--config.model.depth=2",
    "--config.model.dilation_rate=1",
    "--config.model.output_units=6",
    "--config.model.embedding_units=6",
    "--config.data.batch_size=2",
    "--config.data.window=20",
    "--config.evaluation.batch_size=2",
    "--config.evaluation.exact_batch_size=2",
    "--config.training.epochs=1",
)


def recipes():
    """Yields the heading, the new files, the diffs and the commands of each recipe."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.split("\n## Recipes\n")[1].split("\n## ")[0]
    for part in section.split("\n### ")[1:]:
        heading = part.partition("\n")[0]
        files = re.findall(
            r"^```python (\S+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL
        )
        diffs = re.findall(r"^```diff\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        commands = re.findall(r"`python -m (\S+ [^`]*)`", part)
        yield heading, files, diffs, [command.split() for command in commands]


def changed_lines(diff):
    return len(re.findall(r"^[-+](?![-+]{2} )", diff, re.MULTILINE))


RECIPES = {heading: recipe for heading, *recipe in recipes()}
COMMANDS = {heading: commands for heading, (_, _, commands) in RECIPES.items()}


@pytest.mark.parametrize("heading", RECIPES)
def test_a_recipe_is_one_new_file_and_ten_lines(heading):
    files, diffs, _ = RECIPES[heading]
    assert len(files) == 1
    assert sum(map(changed_lines, diffs)) <= 10


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of a copy of the packages in which every recipe was followed."""
    folder = tmp_path_factory.mktemp("followed")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for files, diffs, _ in RECIPES.values():
        for name, content in files:
            assert not (folder / name).exists()
            (folder / name).write_text(content)
        for diff in diffs:
            patch = ["git", "apply", "-"]
            subprocess.run(patch, input=diff, text=True, cwd=folder, check=True)
    return folder


# A process that is forked has imported the packages as they are: it imports the copies instead.
# tensorflow_datasets would know the data sets in them twice.
OF_THE_COPY = """
import sys
sys.path.insert(0, ".")
again = ("configs", "keras_trellis", "trainers", "tests", "tensorflow_datasets")
for name in [each for each in sys.modules if each.partition(".")[0] in again]:
    del sys.modules[name]
"""


@pytest.fixture
def run(forks, followed):
    """Runs a program with the copies; returns what it prints."""

    def run(program):
        done = forks.run("-c", OF_THE_COPY + program, cwd=followed)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    return run


RUN = """
import importlib
from absl.testing import flagsaver

def run(name, *flags):
    program = importlib.import_module(name)
    with flagsaver.flagsaver():
        program.parse_flags(["program", *flags])
        assert program.main(["program"]) == 0
"""


def flags_of(*headings):
    """The flags of the configs in the recipes' commands."""
    commands = [command for heading in headings for command in COMMANDS[heading]]
    return [flag for each in commands for flag in each if flag.startswith("--config")]


def test_a_new_layer_passes_the_contract(run):
    contract, _ = COMMANDS["A new layer"]
    assert contract[0] == "pytest"
    *arguments, names = contract[1:]
    # The files that a fresh process loads are of all entries.
    arguments += [f"{names} and not fresh or complete", "-q", "-p", "no:cacheprovider"]
    said = run(f"import pytest; print('status', int(pytest.main({arguments})))")
    assert "status 0" in said and " passed" in said, said


def test_what_the_recipes_add_is_trained_scored_and_exported(run, followed):
    texts = followed / "texts"
    texts.mkdir()
    for name in ("train", "valid", "test"):
        (texts / f"{name}.txt").write_text(TEXT * 20)
    common = ["--task=lower", "--data_dir=texts", *TINY]
    lines = [RUN]
    # A layer of another kind has no gate: it comes alone.
    for place, *headings in (
        ("composed", "A new gate", "A new head", "A new optimizer"),
        ("layer", "A new layer"),
    ):
        flags = [f"--workdir={place}/run", *common, *flags_of(*headings)]
        lines.append(f"run('trainers.lm', *{flags})")
    lines.append("run('trainers.export', '--workdir=composed/run', '--output=models')")
    said = run("\n".join(lines))
    assert said.count("best of epoch") == 2
    assert (followed / "models" / "1").is_dir()


def test_a_new_task_can_be_compared(run):
    run(
        """
from trainers.studies import comparison
settings = comparison.Settings(
    ["lower"], comparison.MODELS, 1, [1.0], "small", None, 0, 1, 1, None, {}
)
for model in comparison.MODELS:
    assert comparison.start_of(settings, "lower", model).task == "lower"
"""
    )
