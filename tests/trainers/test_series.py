"""`python -m trainers.series` from end to end, on tables of its own."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from numpy.testing import assert_allclose

from tests.trainers import calls
from tests.trainers.time_series import series_files
from trainers import evaluate, series
from trainers import export as export_command
from trainers.time_series import exporting

SMALL = calls.flags("""
    data.channels=a,b data.time=t data.batch_size=4 model.units=8 model.output_units=6
    model.depth=3 model.dilation_rate=1,4,16 optimizer.learning_rate=3e-2
    training.epochs=8 training.epoch_steps=0
""")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    series_files.write_tables(folder)
    return folder


@pytest.fixture(autouse=True)
def shared_flags():
    """Gives the command a flag that it shares with others, which are not in this process."""
    missing = "input" not in flags.FLAGS
    if missing:
        flags.DEFINE_string("input", None, "")
    yield
    if missing:
        delattr(flags.FLAGS, "input")


@pytest.fixture
def call(own_settings, capsys):
    """Runs a command line in this process, whose generators are left as they are."""
    return calls.in_process(series, capsys)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory, forks):
    workdir = tmp_path_factory.mktemp("runs") / "waves"
    command = [
        "-m",
        "trainers.series",
        "--task=csv",
        "--config.data.label=kind",
        *SMALL,
    ]
    done = forks.run(*command, f"--data_dir={folder}", f"--workdir={workdir}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return workdir, done.stdout


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_training_tells_its_data_and_its_result(trained):
    workdir, output = trained
    assert "series: 8 train, 2 validation, 2 test\nclasses: high, low\n" in output
    assert "have an empty cell and are skipped" in output
    assert "8 training windows of 19 steps, of 8 recordings, 2 channels; r" in output
    result = json.loads((workdir / "result.json").read_text())
    assert result["summary"] == calls.summary(output)
    score = result["scores"]["test"]["exact"]
    assert score["accuracy"] == 100.0 and score["answers"] == 2
    assert np.sum(score["confusion"]) == 2
    record = json.loads((workdir / "data.json").read_text())
    assert record["facts"]["classes"] == ["high", "low"]
    assert record["facts"]["channels"] == ["a", "b"]
    assert (workdir / "confusion.png").exists()


def test_evaluation_is_that_of_the_end(trained, folder, call):
    workdir, output = trained
    place = (f"--workdir={workdir}", f"--data_dir={folder}")
    lines = call("--mode=evaluate", *place).splitlines()
    assert calls.summary(output).split(": ", 1)[1] == "; ".join(lines)
    assert call(*place, program=evaluate).splitlines() == lines
    again = call("--task=csv", "--config.data.label=kind", *SMALL, *place)
    assert "holds a finished run" in again


def test_predictions_are_those_of_the_export(trained, folder, call, tmp_path):
    workdir, _ = trained
    table = tmp_path / "answers.csv"
    place = f"--workdir={workdir}"
    line = ("--mode=predict", place, f"--input={folder}", f"--output={table}")
    assert call(*line) == f"12 rows in {table}\n"
    rows = rows_of(table)
    assert list(rows[0]) == ["id", "answer", "probability_high", "probability_low"]
    assert [row["id"] for row in rows] == [f"s{n:02}" for n in range(12)]
    before = table.read_bytes()
    assert "--output must be a new file" in call(*line, status=2)
    assert table.read_bytes() == before
    # The test series are predicted without --input.
    data = f"--data_dir={folder}"
    call("--mode=predict", place, data, f"--output={tmp_path / 'test.csv'}")
    tested = {row["id"]: row for row in rows_of(tmp_path / "test.csv")}
    assert len(tested) == 2
    assert all(row == tested.get(row["id"], row) for row in rows)
    # The export scales by itself, and is given no row with an empty cell.
    served = tmp_path / "served"
    options = (place, f"--output={served}", "--precision=float16", data)
    call(*options, program=export_command)
    classify = tf.saved_model.load(str(served / "1")).signatures["serve"]
    for row in rows:
        read = rows_of(folder / f"{row['id']}.csv")
        steps = [[float(r["a"]), float(r["b"])] for r in read if r["a"]]
        padded = np.pad(np.array([steps], "float32"), [(0, 0), (0, 3), (0, 0)])
        answer = classify(
            sequences=tf.constant(padded), lengths=tf.constant([len(steps)])
        )
        assert answer["labels"][0, 0] == row["answer"].encode()
        expected = [float(row["probability_high"]), float(row["probability_low"])]
        assert_allclose(answer["probabilities"][0], expected, atol=2e-3)
    card = (served / "1/assets.extra/model_card.md").read_text()
    assert "| Channels | a, b |" in card and "| Classes | high, low |" in card
    assert "| Time between two steps | 0.5 |" in card
    assert "| Validation accuracy in float16 | 100.00 %, in float32 100.00 % |" in card


def test_other_data_are_not_the_run_s(trained, call, tmp_path):
    workdir, _ = trained
    series_files.write_tables(tmp_path, seed=1)
    line = call(
        "--mode=evaluate", f"--workdir={workdir}", f"--data_dir={tmp_path}", status=2
    )
    assert "belongs to a run on other data" in line


def test_names_in_tables_do_not_command_the_terminal(call, tmp_path):
    tables = tmp_path / "\x1b[2J"
    tables.mkdir()
    series_files.write_tables(tables)
    for path in tables.iterdir():
        text = path.read_text()
        for plain, odd in (
            ("low", "\x1b[31mlow $x_{$"),
            ("s1", "\x9b1mé"),
            ("a,", "\x07,"),
        ):
            text = text.replace(plain, odd)
        path.rename(path.with_name(f"\x1b{path.name}")).write_text(text)
    fields = ("--config.data.label=kind", "--config.data.time=t")
    line = ("--task=csv", *SMALL[2:-1], *fields, "--config.training.epochs=1")
    place = (f"--workdir={tmp_path / 'run'}", f"--data_dir={tables}")
    assert "control characters" in call(*line, *place, status=2)
    place = (place[0], f"--data_dir={tables.rename(tmp_path / 'tables')}")
    output = call(*line, *place)
    assert r"classes: \x1b[31mlow $x_{$, high" in output
    assert not {*output, *call.output.err} & {"\x1b", "\x9b", "\x07"}
    assert (tmp_path / "run" / "confusion.png").exists()
    answers = tmp_path / "answers.csv"  # a file has the names themselves
    call("--mode=predict", *place, f"--output={answers}")
    assert "probability_\x1b[31mlow $x_{$" in rows_of(answers)[0]


def test_numbers_of_steps(folder, call, tmp_path):
    workdir = tmp_path / "run"
    place = (f"--workdir={workdir}", f"--data_dir={folder}")
    fields = (
        "--config.data.label=level",
        "--config.data.answer=step",
        "--config.data.window=8",
    )
    line = ("--task=csv_numbers", *SMALL, *fields, "--config.training.epochs=1")
    output = call(*line, *place)
    assert "test rmse: " in calls.summary(output)
    table = tmp_path / "answers.csv"
    call("--mode=predict", *place, f"--output={table}")
    rows = rows_of(table)
    assert list(rows[0]) == ["id", "time", "answer"]
    name = rows[0]["id"]
    read = [r for r in rows_of(folder / f"{name}.csv") if r["a"]]
    ours = [row for row in rows if row["id"] == name]
    assert [row["time"] for row in ours] == [r["t"] for r in read]
    served = tmp_path / "served"
    call(place[0], f"--output={served}", program=export_command)
    answer = tf.saved_model.load(str(served / "1")).signatures["serve"]
    sequences = np.array([[[float(r["a"]), float(r["b"])] for r in read]], "float32")
    values = answer(sequences=tf.constant(sequences), lengths=tf.constant([len(read)]))[
        "values"
    ]
    expected = [float(row["answer"]) for row in ours]
    assert_allclose(values[0, :, 0], expected, atol=1e-5)
    precision = call(
        place[0],
        f"--output={served}",
        "--precision=int8",
        program=export_command,
        status=2,
    )
    assert "--precision must be float32 for a model without one class" in precision


def test_the_surprise_of_an_export_is_that_of_a_stream():
    pytest.importorskip("sklearn", reason="scikit-learn: the extra `series`")
    from tests.trainers.time_series import test_models
    from trainers.data.recordings import Recording
    from trainers.time_series import objectives

    model, runner = test_models.built("trellis", True, ("x", "y", "z", "w"))
    facts = test_models.facts(True)._replace(classes=(), outputs=4)
    values = test_models.recording(11, 0)
    recording = Recording("r", values, np.array(0, "int32"))
    (steps,) = objectives.step_scores(facts, 3, [recording], runner.streams)
    padded = np.concatenate([values, np.full((2, 2), np.nan)]).astype("float32")
    endpoints = exporting.Endpoints(model, facts, 3)
    scores = endpoints.answer(tf.constant(padded[None]), tf.constant([11]))["scores"]
    assert_allclose(scores[0, :8], steps[3:], atol=1e-5)
    assert not np.any(scores[0, 8:])
