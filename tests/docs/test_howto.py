"""The commands of docs/howto: each is one that its program takes."""

import importlib
import json
import re
import shlex
from contextlib import nullcontext

import pytest

from keras_trellis.serving.server import command as server
from tests import ROOT
from tests.fresh_flags import fresh_flags
from trainers.data.names import flatten
from trainers.tasks import config

HOWTO = ROOT / "docs" / "howto"
COMMAND = re.compile(
    r"^(?:\$ )?\.(?:venv|jax)/bin/python -m (trainers\..*)$", re.MULTILINE
)
SERVER = re.compile(r"^.*served/bin/keras-trellis (serve .*)$", re.MULTILINE)
# What a command may ask for before it begins: a file of values.
FILES = ("FILE", "FOLDER/best.json")
WORKERS = (HOWTO / "workers.md").read_text()
(CLUSTER,) = re.findall("^export TF_CONFIG='(.*)'$", WORKERS, re.MULTILINE)


def commands():
    """Yields the page, the program and the arguments of each command of a trainer."""
    for page in sorted(HOWTO.glob("*.md")):
        text = page.read_text().replace("\\\n", "")
        for line in COMMAND.findall(text):
            # A store would be asked whether the run is there.
            line = re.sub("gs://|s3://", "", line)
            program, *arguments = shlex.split(line, comments=True)
            yield pytest.param(program, arguments, id=f"{page.stem}: {line[:60]}")


@pytest.mark.parametrize("name, arguments", [*commands()])
def test_a_command_is_taken(name, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "--distribute=workers" in arguments:
        monkeypatch.setenv("TF_CONFIG", CLUSTER)
    values = json.dumps(flatten(config.load("text", "small")))
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(values)
    program = importlib.import_module(name)
    lists = "--preset=list" in arguments
    ends = pytest.raises(SystemExit, match="^0$") if lists else nullcontext()
    with fresh_flags(program), ends:
        program.parse_flags([name, *arguments])


@pytest.mark.parametrize("page", ["serve", "operate"])
def test_a_server_s_flags_are_taken(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    monkeypatch.chdir(tmp_path)
    (line,) = SERVER.findall((HOWTO / f"{page}.md").read_text())
    assert server.main(shlex.split(line)) == 2  # without a model; argparse would exit
    assert "MODEL" in capsys.readouterr().err


def test_a_command_with_a_flag_that_is_none_is_refused(capsys):
    program = importlib.import_module("trainers.lm")
    with fresh_flags(program), pytest.raises(SystemExit):
        program.parse_flags(["trainers.lm", "--task=ptb", "--config.model.unit=3"])
    assert "'model.unit'; did you mean 'model.units'?" in capsys.readouterr().err


def test_the_task_is_the_one_of_the_recipe():
    """Which tests/docs/test_recipes.py follows."""
    (task,) = re.findall(
        r"^```python3\n(.*?)^```$",
        (HOWTO / "task.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert task in (ROOT / "CONTRIBUTING.md").read_text()
