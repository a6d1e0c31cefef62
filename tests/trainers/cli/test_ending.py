"""The commands that a finished run offers."""

import copy
import functools
import importlib
import shlex

import pytest
from absl import flags
from absl.testing import flagsaver
from etils import epath

from trainers.cli import ending
from trainers.tasks import registry


def parsed(module, arguments, monkeypatch):
    """Parses a command's arguments as the command does; returns those that are no flags."""
    if not hasattr(module, "define_flags"):
        with flagsaver.flagsaver():
            return module.parse_flags(["program", *arguments])[1:]
    values = flags.FlagValues()
    with monkeypatch.context() as patch:
        for kind in ("string", "integer"):
            define = getattr(flags, f"DEFINE_{kind}")
            own = functools.partial(define, flag_values=values)
            patch.setattr(flags, f"DEFINE_{kind}", own)
        module.define_flags()
    # Some commands share the others of their flags.
    for flag in flags.FLAGS.get_key_flags_for_module(module.__name__):
        if flag.name not in values:
            values[flag.name] = copy.deepcopy(flag)
    return values(["program", *arguments])[1:]


@pytest.mark.parametrize("data_dir", [None, "my data"])
@pytest.mark.parametrize("name", registry.EVERY)
def test_the_commands_can_be_copied(name, data_dir, tmp_path, monkeypatch):
    folder = epath.Path(tmp_path) / f"a run of {name}"
    saved, *lines = ending.lines(registry.get(name), folder, data_dir)
    assert saved == f"the run is saved in {folder}; next:"
    assert len(lines) > 1
    for line in lines:
        _, minus_m, module, *arguments = shlex.split(line, comments=True)
        assert minus_m == "-m"
        rest = parsed(importlib.import_module(module), arguments, monkeypatch)
        assert rest in ([], [str(folder)])


def test_python_is_called_as_the_shell_finds_it(tmp_path, monkeypatch):
    place = tmp_path / ".venv" / "bin" / "python"
    monkeypatch.setattr(ending.sys, "executable", str(place))
    monkeypatch.setattr(ending.shutil, "which", lambda _: None)
    assert ending._python() == str(place)
    monkeypatch.chdir(tmp_path)
    assert ending._python() == ".venv/bin/python"
    monkeypatch.setattr(ending.shutil, "which", lambda _: str(place))
    assert ending._python() == "python"
