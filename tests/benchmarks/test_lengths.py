"""The benchmark of lengths, at tiny sizes."""

import dataclasses
import functools
import os
import types

import numpy as np
import pytest

from benchmarks import draw_lengths, length_contenders, lengths, workers
from benchmarks.length_contenders import Case
from benchmarks.workers import Contender, LeftOutError, Reading, Result
from tests.benchmarks.commands import measured

CASE = Case("stream", 20, 8, 2, 1)


@pytest.mark.parametrize("name", length_contenders.LAYERS)
def test_contenders_see_the_length_and_have_equal_parameters(name, monkeypatch):
    monkeypatch.setattr(length_contenders, "STREAMED_STEPS", 20)
    _, make = length_contenders.LAYERS[name]
    units = length_contenders.equal_units(make, CASE)
    layer = make(CASE, units, return_sequences=True)
    sequences = np.repeat(CASE.sequences()[:, :1], 20, axis=1)
    expected = layer(sequences)[:, -1]
    assert layer.count_params() == pytest.approx(CASE.parameters, rel=0.1)
    assert (getattr(layer, "receptive_field", None) or 20) >= 20
    runs = [length_contenders.streamed(layer, CASE, compiled=False)]
    runs.append(length_contenders.in_place(layer, CASE))
    for run in runs:
        np.testing.assert_allclose(run().reshape(2, -1), expected, atol=1e-5)


@pytest.mark.parametrize("name", length_contenders.LAYERS)
@pytest.mark.parametrize("task", length_contenders.TASKS)
def test_contenders_take_their_steps(name, task, monkeypatch):
    monkeypatch.setattr(length_contenders, "_limit_memory", lambda: None)
    case = dataclasses.replace(CASE, task=task, xla=False)
    _, make = length_contenders.LAYERS[name]
    contender = length_contenders.of_tensorflow(make, case)
    contender.step()
    streamed = task == "stream" and name not in ("lstm", "gru")
    assert contender.facts["form"] in (["", "in place"] if streamed else [""])
    assert contender.facts["parameters"] == pytest.approx(CASE.parameters, rel=0.1)


def test_a_row_is_measured_once(tmp_path, forks):
    path = tmp_path / "rows.csv"
    flags = [f"--csv={path}", "--task=stream", "--channels=4", "--threads=1"]
    flags += ["--rounds=1", "--warmup=0"]
    run = functools.partial(measured, forks, tmp_path, "lengths", *flags)
    run("--time_steps=4", "--only=gru")
    first = path.read_text()
    found, text = run("--time_steps=4,8", "--only=gru", "--bound=0")
    assert path.read_text() == first
    rows = lengths.read(path)
    assert [row["contender"] for row in rows.values()] == ["lstm", "gru"]
    assert len(found["rows"]) == 2 and "| 8 | not measured | not measured |" in text


def dies_with_xla(case):
    if case.xla:
        os.abort()
    return Contender(lambda: None, {"form": str(case.xla)})


def not_here(case):
    raise LeftOutError("not installed")


def test_a_contender_that_fails_is_measured_without_xla(monkeypatch):
    contenders = {"lstm": ("LSTM", dies_with_xla), "torch": ("torch", not_here)}
    monkeypatch.setattr(lengths, "CONTENDERS", contenders)
    flags = types.SimpleNamespace(warmup=0, rounds=1)
    monkeypatch.setattr(lengths, "FLAGS", flags)
    plain = set()
    with workers.Processes(1) as processes:
        rows, left_out = lengths.measure(processes, CASE, list(contenders), {}, plain)
    assert [(row["contender"], row["form"]) for row in rows] == [("lstm", "False")]
    assert left_out == {"torch": "not installed"}
    assert plain == {"lstm"}


def results(seconds):
    readings = [Reading(1.0, value, 2**20) for value in seconds]
    return Result({"units": 3, "parameters": 5, "form": "XLA"}, readings)


def test_rows_are_read_as_they_were_written(tmp_path):
    case = Case("answer", 1024, 8, 2, 1)
    found = {"lstm": results([2.0, 4.0]), "tcn": results([1.0, 1.0])}
    rows = [lengths.row(case, name, found) for name in found]
    for one in rows:
        lengths.append(tmp_path / "rows.csv", [one])
    read = lengths.read(tmp_path / "rows.csv")
    assert list(read.values()) == rows
    text = lengths.table(read, [case])
    assert (
        text.splitlines()[-1] == "| 1,024 | 3,000 ms XLA | 0.25, **0.38**, 0.50 XLA |"
    )
    figure = draw_lengths.draw(list(read.values()), 8)
    answer, *_ = figure.axes
    assert [line.get_label() for line in answer.lines] == ["keras.layers.LSTM", "TCN"]
