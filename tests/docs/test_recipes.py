"""The recipes of CONTRIBUTING.md, followed in a copy of the packages."""

import json
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
    composed = ["--workdir=composed", *common]
    composed += flags_of("A new gate", "A new head", "A new optimizer")
    # A layer of another kind has no gate: it comes alone.
    alone = ["--workdir=alone", *common, *flags_of("A new layer")]
    said = run(
        f"""{RUN}
run("trainers.lm", *{composed})
run("trainers.lm", *{alone})
run("trainers.evaluate", "--workdir=alone", "--data_dir=texts", "--protocol=exact")
run("trainers.export", "--workdir=composed", "--output=models")

import tensorflow as tf
from trainers import report

print(report.table(report.read_runs(["composed"])))
served = tf.saved_model.load("models/1").signatures["embed"]
print("features", served(text=tf.constant(["a text", ""]))["features"].shape)
"""
    )
    assert said.count("best of epoch") == 2
    assert re.search(r"validation perplexity: exact .*, next_token [\d.]+ %\n", said)
    assert re.search(r"\| [\d.]+ \(\d+ tokens\), next_token [\d.]+ % \|", said)
    assert "features (2, 6)" in said
    card = followed / "models" / "1" / "assets.extra" / "model_card.md"
    assert "after the last token" in card.read_text()
    for place in ("composed", "alone"):
        result = json.loads((followed / place / "result.json").read_text())
        assert all(
            0 <= score["next_token"] <= 100
            for split in ("validation", "test")
            for score in result["scores"][split].values()
        )


def test_a_new_task_can_be_compared(run):
    run(
        """
from trainers.studies import comparison
settings = comparison.Settings(
    ["lower"], comparison.MODELS, 1, [1.0], "small", None, 0, 1, 1, None, {}
)
of_texts = [model for model in comparison.MODELS if model != "sru"]
of_images = [model for model in of_texts if model != "skip_lstm"]
for task, models in (("lower", of_texts), ("leaves", of_images)):
    for model in models:
        assert comparison.starting_config(settings, task, model).task == task
"""
    )


def test_images_of_the_users_own_are_trained_on(run):
    tiny = (
        *("units=8", "output_units=6", "depth=2", "kernel_size=2", "dilation_rate=1"),
        *("initial_deviation=0.1", "recurrent_dropout=0"),
    )
    flags = [
        *("--workdir=images", "--task=leaves", "--preset=small", "--data_dir=pictures"),
        *(f"--config.model.{each}" for each in tiny),
        *("--config.data.validation=3", "--config.data.batch_size=2"),
        *("--config.training.epochs=1", "--noconfig.training.jit_compile"),
    ]
    said = run(
        f"""{RUN}
import pathlib
import tensorflow as tf
from trainers.images.tasks.leaves import CLASSES

for split, count in (("train", 3), ("test", 1)):
    for label, name in enumerate(CLASSES):
        folder = pathlib.Path("pictures", split, name)
        folder.mkdir(parents=True)
        for number in range(count):
            picture = tf.fill([9, 20, 3], tf.cast(80 * label + number, tf.uint8))
            content = tf.io.encode_png(picture).numpy()
            (folder / (str(number) + ".png")).write_bytes(content)

run("trainers.pixels", *{flags})
"""
    )
    assert "6 training sequences of 256 steps" in said
    assert re.search(r"test accuracy: [\d.]+ % \(3 images\)", said)
