"""The recipes of CONTRIBUTING.md, each followed in a copy of the packages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
        files = re.findall(r"^```python (\S+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        diffs = re.findall(r"^```diff\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        command = re.search(r"`python -m (trainers\S+ [^`]*)`", part)[1]
        yield pytest.param(files, diffs, command.split(), id=heading)


def changed_lines(diff):
    return len(re.findall(r"^[-+](?![-+]{2} )", diff, re.MULTILINE))


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.run(
        [sys.executable, "-P", "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(("files", "diffs", "command"), list(recipes()))
def test_a_recipe_is_one_new_file_and_ten_lines(files, diffs, command, tmp_path):
    """The tiny model that its command trains is scored and exported."""
    assert len(files) == 1
    assert sum(map(changed_lines, diffs)) <= 10
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in files:
        assert not (tmp_path / name).exists()
        Path(tmp_path / name).write_text(content)
    for diff in diffs:
        patch = ["git", "apply", "-"]
        subprocess.run(patch, input=diff, text=True, cwd=tmp_path, check=True)
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("train", "valid", "test"):
        (texts / f"{name}.txt").write_text(TEXT * 20)
    module, *flags = command
    task = "lower" if "--task=lower" in flags else "text"
    chosen = [flag for flag in flags if flag.startswith("--config")]
    trained = run(
        tmp_path, module, f"--task={task}", f"--data_dir={texts}", "--workdir=run", *chosen, *TINY
    )
    assert trained.returncode == 0, trained.stderr
    assert "test perplexity" in trained.stdout
    exported = run(tmp_path, "trainers.export", "--workdir=run", "--output=models")
    assert exported.returncode == 0, exported.stderr
