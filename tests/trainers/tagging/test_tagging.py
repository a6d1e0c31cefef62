"""Tags of steps: a kind of task in one folder, from tables to an export."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from tests import ROOT
from tests.trainers import calls
from trainers import evaluate, series
from trainers import export as export_command
from trainers.data.recordings import NO_CLASS
from trainers.tagging.objective import Tags, f1_scores
from trainers.tasks import config as configs

TINY = calls.flags("""
    data.channels=a data.label=doing data.time=t data.window=12 data.batch_size=4
    model.units=8 model.output_units=6 model.depth=2 model.dilation_rate=1,4
    optimizer.learning_rate=3e-2 training.epochs=6
""")


@pytest.fixture
def folder(tmp_path):
    """Machines that run, rest, and seldom hum; the last rows of each have no tag."""
    folder = tmp_path / "tables"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for machine in range(16):
        levels = generator.choice(3, 24, p=(0.5, 0.4, 0.1)).repeat(2)
        tags = [["rest", "run", "hum"][level] for level in levels[:-4]] + 4 * [""]
        rows = zip(levels - 1.0 + generator.normal(0, 0.1, 48), tags, strict=True)
        with (folder / f"m{machine:02}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "t", "a", "doing"])
            for step, (value, tag) in enumerate(rows):
                writer.writerow([f"m{machine:02}", step, f"{value:.4f}", tag])
    return folder


@pytest.fixture
def call(own_settings, capsys):
    missing = "input" not in flags.FLAGS
    if missing:
        flags.DEFINE_string("input", None, "")
    yield calls.in_process(series, capsys)
    if missing:
        delattr(flags.FLAGS, "input")


def test_from_tables_to_an_export(call, folder, tmp_path):
    workdir = tmp_path / "run"
    place = (f"--workdir={workdir}", f"--data_dir={folder}")
    output = call("--task=tagging", *TINY, *place)
    assert "classes: hum, rest, run\n" in output
    result = json.loads((workdir / "result.json").read_text())
    assert result["summary"] == calls.summary(output)
    score = result["scores"]["test"]["exact"]
    matrix = np.array(score["confusion"])
    assert matrix.sum() == score["steps"] and score["steps"] % 44 == 0
    assert score["accuracy"] == pytest.approx(100 * np.trace(matrix) / matrix.sum())
    by_class = [score.get(f"{name}_f1") for name in ("hum", "rest", "run")]
    assert by_class == pytest.approx(f1_scores(matrix))
    assert score["f1"] == pytest.approx(np.mean(by_class)) and score["f1"] > 60
    assert (workdir / "confusion.png").exists()
    # Evaluation, predictions and the export know the kind by the task alone.
    lines = call(*place, program=evaluate).splitlines()
    assert calls.summary(output).split(": ", 1)[1] == "; ".join(lines)
    assert (
        f"test f1: {score['f1']:.2f} % ({score['steps']:,} steps), accuracy "
        in lines[1]
    )
    table = tmp_path / "answers.csv"
    call("--mode=predict", place[0], f"--input={folder}", f"--output={table}")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16 * 48 and rows[0]["answer"] in ("hum", "rest", "run")
    served = tmp_path / "served"
    call(place[0], f"--output={served}", program=export_command)
    answer = tf.saved_model.load(str(served / "1")).signatures["serve"]
    with (folder / "m00.csv").open() as file:
        values = [[float(row["a"])] for row in csv.DictReader(file)]
    sequences = tf.constant([values], tf.float32)
    served = answer(sequences=sequences, lengths=tf.constant([48]))
    expected = [float(row["probability_run"]) for row in rows[:48]]
    np.testing.assert_allclose(served["probabilities"][0, :, 2], expected, atol=1e-4)


@pytest.mark.parametrize(
    "matrix, expected",
    [
        ([[3, 0], [0, 5]], [100.0, 100.0]),
        ([[2, 2], [1, 5]], [400 / 7, 1000 / 13]),
        ([[0, 4], [0, 4]], [0.0, 800 / 12]),
        ([[0, 0], [0, 4]], [None, 100.0]),  # it is nowhere
    ],
)
def test_f1(matrix, expected):
    assert f1_scores(np.array(matrix)) == pytest.approx(expected)


def test_it_is_csv_with_an_answer_for_each_step():
    """The same settings but for the field that has no choice, and a score that sees rare tags."""
    tagging, tables = (
        configs.load(task, "small").to_dict() for task in ("tagging", "csv")
    )
    assert tables["data"].pop("answer") == "series"
    assert tables["data"].pop("crop") == 0.5  # of answers for whole series
    assert {**tagging, "task": "csv"} == tables
    assert NO_CLASS < 0 and "f1" in Tags.shares


def test_it_is_one_folder_and_two_lines_of_the_trainers():
    lines = [
        f"{path.relative_to(ROOT / 'trainers')}: {line}"
        for path in sorted((ROOT / "trainers").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "tagging" in line.lower() and "tagging/" not in path.as_posix()
    ]
    assert lines == [
        "tasks/registry.py: from trainers.tagging.tasks import TAGGING",
        "tasks/registry.py:     TAGGING,",
    ]
