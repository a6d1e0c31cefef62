"""The commands of docs/howto/serve.md for a program, in their order, to a score without TensorFlow.

A clone trains and exports. What comes after can import the wheel, NumPy and ONNX Runtime alone.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

from tests import ROOT

PAGE = (ROOT / "docs" / "howto" / "serve.md").read_text()
EXPORT, _, PROGRAM = PAGE.partition("\n## In a program, without TensorFlow\n")
# `make train` takes minutes.
BRIEF = (
    "--config.training.steps=3",
    "--config.training.epochs=1",
    "--noconfig.training.jit_compile",
    "--config.model.units=16",
    "--config.model.embedding_units=8",
    "--config.model.output_units=8",
)
ALONE = """
import sys

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("keras", "tensorflow", "trainers", "configs"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Absent)
"""


def fenced(language, text):
    """Returns the first block in a language of a part of the page."""
    block = rf"^```{language}\n(.*?)^```$"
    return re.search(block, text, re.MULTILINE | re.DOTALL)[1]


def commands(block):
    """Yields the words of the commands of a block, those of `make` in its place."""
    for line in block.splitlines():
        words = shlex.split(line)
        if words[0] == "make":
            quiet = "--no-print-directory"  # which make says where make runs the tests
            dry = ["make", "--dry-run", quiet, "--assume-old=setup", *words[1:]]
            made = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True)
            assert made.returncode == 0, made.stderr
            yield from map(shlex.split, made.stdout.splitlines())
        else:
            yield words


def test_from_a_clone_to_a_score_elsewhere(forks, tmp_path):
    in_clone, elsewhere = fenced("", EXPORT), fenced("", PROGRAM)
    program = fenced("python3", PROGRAM)
    clone, other = tmp_path / "clone", tmp_path / "other"
    shutil.copytree(ROOT / "keras_trellis", clone / "keras_trellis")
    for name in ("MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, clone)
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = []
    for words in commands(in_clone):
        if words[0] != ".venv/bin/python" or words[2] == "twine":
            assert words[0] in ("rm", "echo") or "dist/*" in words[-1]
            continue
        module, words = words[2], words[1 : words.index(">") if ">" in words else None]
        extra = BRIEF if words == ["-m", "trainers.lm", "--task=pydoc"] else ()
        if module == "build":
            extra = ["--no-isolation", "--skip-dependency-check"]  # no network
        run = forks.run(*words, *extra, env=environment, cwd=clone)
        assert run.returncode == 0, run.stdout + run.stderr
        done.append(module)
    assert done == ["trainers.lm", "trainers.export", "build"]

    other.mkdir()
    for name in ("dist", "models"):
        shutil.move(clone / name, other / name)
    shutil.rmtree(clone)
    (install,) = commands(elsewhere)
    assert (
        install.pop() == "onnxruntime"
    )  # which is here, as is what the wheel requires
    (wheel,) = other.glob(install.pop())
    alone = ("--no-deps", "--target=site", "--no-compile")
    command = [sys.executable, *install[1:], *alone, wheel]
    subprocess.run(command, cwd=other, check=True, capture_output=True)
    shown = "import keras_trellis\nprint(keras_trellis.__file__)\n"
    command = [sys.executable, "-c", f"{ALONE}{program}{shown}"]
    site = {**os.environ, "PYTHONPATH": str(other / "site")}
    run = subprocess.run(command, cwd=other, env=site, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    written, place = run.stdout.rstrip().rsplit("\n", 1)
    assert place.startswith(str(other / "site"))
    assert re.search(r"\[\d+\.\d+ ", written), written  # the first of the nll
