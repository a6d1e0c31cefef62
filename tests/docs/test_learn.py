"""The programs of `docs/learn`, which are notebooks: they run, and are short."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests import ROOT

PROGRAM = ROOT / "docs/learn/watch.py"


def test_from_data_to_device_in_one_program(forks):
    """The program compares the stream and LiteRT with the whole pass."""
    pytest.importorskip("ai_edge_litert")
    small = os.environ | {"SECONDS": "0.1"}
    done = forks.run("-m", "docs.learn.watch", cwd=ROOT, env=small)
    assert done.returncode == 0, done.stderr[-3000:]
    sizes = re.findall(r"(\w+): 7\d,\d{3} parameters, \d+ training", done.stdout)
    assert sizes == ["trellis_layer", "gru"]
    assert done.stdout.count("of 320 windows of the test people") == 2
    paths = re.findall(r"(\S+\.tflite): [\d,]+ bytes of cache", done.stdout)
    assert [Path(path).stem for path in paths] == ["trellis", "lstm"]
    folder = Path(paths[0]).parent
    assert (folder / "watch.png").stat().st_size > 10_000
    shutil.rmtree(folder)


def test_the_program_is_short():
    lines = filter(None, PROGRAM.read_text().splitlines())
    assert sum(not line.startswith("# %%") for line in lines) <= 80
