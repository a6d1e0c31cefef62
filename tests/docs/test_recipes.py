"""The recipes of CONTRIBUTING.md, followed in a copy of the packages."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import ROOT

PACKAGES = ("configs", "keras_trellis", "trainers")
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
    """Yields the heading, the new files, the diffs and the command of each recipe."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.split("\n## Recipes\n")[1].split("\n## ")[0]
    for part in section.split("\n### ")[1:]:
        heading = part.partition("\n")[0]
        files = re.findall(
            r"^```python (\S+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL
        )
        diffs = re.findall(r"^```diff\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        command = re.search(r"`python -m (trainers\S+ [^`]*)`", part)[1]
        yield pytest.param(files, diffs, command.split(), id=heading)


def changed_lines(diff):
    return len(re.findall(r"^[-+](?![-+]{2} )", diff, re.MULTILINE))


# Trains with what the recipes add, and exports: a recurrent layer has no gate, so it comes alone.
PROGRAM = """
import json, sys
from absl.testing import flagsaver
from trainers import export, lm

def run(program, *flags):
    with flagsaver.flagsaver():
        program.parse_flags(["program", *flags])
        assert program.main(["program"]) == 0

for place, flags in json.load(sys.stdin).items():
    run(lm, f"--workdir={place}/run", *flags)
    run(export, f"--workdir={place}/run", f"--output={place}/models")
"""
RECIPES = list(recipes())


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of a copy of the packages in which every recipe was followed."""
    folder = tmp_path_factory.mktemp("followed")
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for recipe in RECIPES:
        files, diffs, _ = recipe.values
        for name, content in files:
            assert not (folder / name).exists()
            (folder / name).write_text(content)
        for diff in diffs:
            patch = ["git", "apply", "-"]
            subprocess.run(patch, input=diff, text=True, cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(("files", "diffs", "command"), RECIPES)
def test_a_recipe_is_one_new_file_and_ten_lines(files, diffs, command):
    assert len(files) == 1
    assert sum(map(changed_lines, diffs)) <= 10


def test_what_the_recipes_add_is_trained_scored_and_exported(followed):
    texts = followed / "texts"
    texts.mkdir()
    for name in ("train", "valid", "test"):
        (texts / f"{name}.txt").write_text(TEXT * 20)
    given = [recipe.values[2] for recipe in RECIPES]
    assert all(command[0] == "trainers.lm" for command in given)
    chosen = {
        flag for command in given for flag in command if flag.startswith("--config")
    }
    layer = "--config.model.layer=minimal"
    common = [f"--data_dir={texts}", *TINY]
    runs = {
        "composed": ["--task=lower", *(chosen - {layer}), *common],
        "recurrent": ["--task=text", layer, *common],
    }
    assert layer in chosen and len(chosen) == 3
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        input=json.dumps(runs),
        cwd=followed,
        env={**os.environ, "PYTHONPATH": str(followed), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best of epoch") == 2
    assert all((followed / name / "models" / "1").is_dir() for name in runs)
