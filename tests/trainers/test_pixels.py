"""`python -m trainers.pixels` from end to end, on images of its own."""

import errno
import io
import json
import re

import numpy as np
import pytest
from etils import epath
from matplotlib import figure

from tests import pictures
from tests.trainers import calls, mnist_files
from trainers import evaluate, pixels, report
from trainers import export as export_command
from trainers.data import files
from trainers.sequences import experiment as sequence_runs
from trainers.sequences import modeling
from trainers.tasks import run_folders

SMALL = calls.flags("""
    --preset=small model.units=12 model.output_units=10 data.batch_size=10
    data.validation=20 evaluation.batch_size=10 optimizer.learning_rate=1e-2
    schedule.epochs=(100,) training.epochs=15 training.log_every_steps=2
    training.jit_compile=False
""")
TWO_LEVELS = ("--config.model.depth=2", "--config.model.dilation_rate=1,4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    mnist_files.write_rows(folder, 255)
    return folder


@pytest.fixture
def call(own_settings, capsys):
    """Runs a command line in this process, whose generators are left as they are."""
    return calls.in_process(pixels, capsys)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory, forks):
    workdir = tmp_path_factory.mktemp("runs") / "trained"
    command = ["-m", "trainers.pixels", "--task=permuted_mnist", *SMALL]
    done = forks.run(*command, f"--data_dir={folder}", f"--workdir={workdir}")
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir, done.stdout


def scores_of(output):
    """The lines of an evaluation without those of classes."""
    return [line for line in output.splitlines() if not line.startswith("  ")]


def test_training_tells_its_size_and_its_result(trained):
    workdir, output = trained
    assert "40 training sequences of 784 steps; receptive field 1,024" in output
    assert "warning" not in output
    assert re.search(
        r"epoch 1/15, step 2/60: accuracy [\d.]+, loss [\d.]+, lr 0.01", output
    )
    result = json.loads((workdir / "result.json").read_text())
    summary = calls.summary(output)
    assert result["summary"] == summary
    score = result["scores"]["test"]["exact"]
    assert re.match(
        r"best of epoch \d+: validation accuracy: .* \(20 images\); ", summary
    )
    assert summary.endswith(f"test accuracy: {score['accuracy']:.2f} % (20 images)")
    assert score["accuracy"] > 30  # of ten classes
    confusion = np.array(score["confusion"])
    assert confusion.sum(axis=1).tolist() == [2] * 10  # two images of each class
    assert 100 * np.trace(confusion) / 20 == score["accuracy"]
    assert result["parameters"] == 2750
    assert {"confusion.png", "curves.png"} < {path.name for path in workdir.iterdir()}
    plot, content = sequence_runs.draw_confusion(confusion, "0123456789"), io.BytesIO()
    pictures.savefig(plot, content, format="png")
    assert content.getvalue().startswith(b"\x89PNG")


def test_names_of_classes_are_drawn_as_they_are():
    names = ("$x_{$", "\x1b[31mred\n")  # mathematics, and a command to a terminal
    plot = sequence_runs.draw_confusion(np.eye(2, dtype=int), names)
    pictures.savefig(plot, io.BytesIO(), format="png")
    axes = plot.axes[0]
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        shown = [tick.get_text() for tick in ticks]
        assert shown == [r"\$x_{\$", r"\x1b[31mred\n"]


def test_the_most_frequent_errors_are_told():
    matrix = np.array([[9, 0, 1], [0, 5, 5], [2, 0, 0]])
    right, wrong = sequence_runs.error_lines(matrix, "abc")
    assert right == "right by class: a: 90.00%, b: 50.00%, c: 0.00%"
    told = "b taken for c: 5, c taken for a: 2, a taken for c: 1"
    assert wrong == f"most frequent errors: {told}"
    assert len(sequence_runs.error_lines(np.eye(3), "abc")) == 1


def test_the_report_has_the_run(trained, tmp_path, forks):
    workdir, _ = trained
    done = forks.run("-m", "trainers.report", workdir, f"--output={tmp_path}")
    assert "## permuted_mnist: accuracy" in done.stdout, done.stderr
    assert re.search(
        r"\| trained \| small \| 2,750 \| [\d.]+ % \(20 images\) \| - \| 15",
        done.stdout,
    )
    assert "98.13 %" in done.stdout


def test_evaluation_is_that_of_the_end_and_a_finished_run_is_told(
    trained, folder, call
):
    workdir, output = trained
    place = (f"--workdir={workdir}", f"--data_dir={folder}")
    evaluated = call("--mode=evaluate", *place)
    assert calls.summary(output).split(": ", 1)[1] == "; ".join(scores_of(evaluated))
    assert call(*place, program=evaluate) == evaluated
    lines = [line for line in evaluated.splitlines() if line.startswith("  right")]
    result = json.loads((workdir / "result.json").read_text())
    for line, scores in zip(lines, result["scores"].values(), strict=True):
        confusion = np.array(scores["exact"]["confusion"])
        rows = enumerate(zip(confusion, confusion.sum(axis=1), strict=True))
        shares = [f"{n}: {row[n] / count:.2%}" for n, (row, count) in rows if count]
        expected = ", ".join(shares)
        assert line == f"  right by class: {expected}"
    assert f"\ntest, right by class: {expected}\n" in output
    assert "holds a finished run" in call("--task=permuted_mnist", *SMALL, *place)


def test_the_order_of_steps_is_the_folders(trained, folder, tmp_path):
    """Not that which the seed would give: NumPy may draw another one some day."""
    workdir, _ = trained
    kept = files.read_json(workdir / "data.json")
    assert sorted(kept["permutation"]) == list(range(784))
    kept["permutation"] = kept["permutation"][::-1]
    (tmp_path / "data.json").write_text(json.dumps(kept))
    config = run_folders.load_config(epath.Path(workdir))
    experiment = sequence_runs.SequenceExperiment(
        config, str(folder), epath.Path(tmp_path)
    )
    assert list(experiment.build().permutation) == kept["permutation"]


PERMUTED = '{"sha256": {}, "permutation": %s}'


@pytest.mark.parametrize(
    "damage, problem",
    [
        (lambda kept: "", "it is empty"),
        (lambda kept: json.dumps(kept)[:-5], "it is cut off"),
        (lambda kept: "[]", "it holds a list, not fields"),
        (
            lambda kept: json.dumps(kept | {"permutation": None}),
            "do not fit its `checksum`",
        ),
        (
            lambda kept: json.dumps(kept | {"sha256": "a"}),
            "`sha256` is a text, not fields",
        ),
        (lambda kept: json.dumps({"sha256": {}}), "`permutation` is neither"),
        (lambda kept: PERMUTED % "7", "`permutation` is neither"),
        (lambda kept: PERMUTED % "[0, [1]]", "`permutation` is neither"),
        (lambda kept: PERMUTED % "[0, 2]", "`permutation` is neither"),
    ],
)
def test_a_damaged_record_of_the_data_is_named(
    trained, folder, call, tmp_path, damage, problem
):
    workdir, _ = trained
    file = workdir / "data.json"
    place = (f"--workdir={workdir}", f"--data_dir={folder}")
    whole = file.read_text()
    export = (f"--workdir={workdir}", f"--output={tmp_path}/served")
    try:
        file.write_text(damage(json.loads(whole)))
        errors = [
            call("--task=permuted_mnist", *SMALL, *place, status=2),
            call("--mode=evaluate", *place, status=2),
            call(*export, status=2, program=export_command),
        ]
    finally:
        file.write_text(whole)
    for error in errors:
        (line,) = error.splitlines()
        assert line.startswith(f"error: {file} is damaged: ") and problem in line


def test_a_gru_is_trained_evaluated_and_exported(folder, call, tmp_path):
    """The run leaves the test data to the evaluation."""
    place = (f"--workdir={tmp_path}/run", f"--data_dir={folder}")
    chosen = calls.flags("model.layer=gru training.epochs=1 evaluation.test=False")
    output = call("--task=seq_mnist", *SMALL, *chosen, *place)
    assert (
        output.startswith("GRU: 1 layer of 10 units; ")
        and " of 784 steps\n" in output
        and "warning" not in output
    )
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert list(result["scores"]) == ["validation"]
    validation, test = scores_of(call("--mode=evaluate", *place))
    assert calls.summary(output).endswith(f": {validation}")
    assert "\nvalidation, right by class: " in output
    assert test.startswith("test accuracy: ")
    export = (place[0], f"--output={tmp_path}/served")
    assert "model_card" in call(*export, program=export_command)


def test_all_images_train_and_the_weights_are_those_of_the_end(folder, call, tmp_path):
    place = (f"--workdir={tmp_path}/run", f"--data_dir={folder}")
    chosen = (
        *TWO_LEVELS,
        *calls.flags("data.validation=0 training.epochs=2 schedule.average_after=1"),
        "--config.training.label_smoothing=0.1",
    )
    output = call("--task=seq_mnist", *SMALL, *chosen, *place)
    assert "60 training sequences of 784 steps" in output
    assert "no validation images, so that the last epoch is kept" in output
    (line,) = [line for line in output.splitlines() if line.startswith("last of")]
    said, _, scores = line.partition(": ")
    assert said == "last of epoch 2, without validation data"
    assert scores_of(call("--mode=evaluate", *place)) == [scores]
    assert "holds a finished run" in call("--task=seq_mnist", *SMALL, *chosen, *place)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (list(result["scores"]), result["best_epoch"]) == (["test"], 2)
    table = report.table(report.read_runs([f"{tmp_path}/run"]))
    assert "run trained on all training data, without validation." in table
    rounded = (place[0], f"--output={tmp_path}/served", "--precision=float16")
    error = call(*rounded, status=2, program=export_command)
    assert "--precision must be float32" in error


def test_an_algorithm_is_learned_from_examples_that_are_new(call, tmp_path):
    small = calls.flags("""
        model.layer=lstm model.units=8 data.symbols=2 data.kinds=101 data.batch_size=32
        data.train=160 data.validation=40 training.epochs=2 training.log_every_steps=5
    """)
    place = f"--workdir={tmp_path}/run"
    output = call("--task=memorization", "--preset=small", *small, place)
    assert "160 new training sequences an epoch of 8 steps" in output
    assert re.search(r"step 5/10: accuracy [\d.]+, right_answers [\d.]+, loss", output)
    summary = calls.summary(output)
    assert re.search(
        r"validation accuracy: [\d.]+ % \(80 symbols\), [\d.]+% of the answers right; test",
        summary,
    )
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert {"accuracy", "right_answers"} < result["scores"]["test"]["exact"].keys()
    assert summary.split(": ", 1)[1] == "; ".join(
        call("--mode=evaluate", place).splitlines()
    )
    (drawn,) = report.read_runs([f"{tmp_path}/run"])
    assert [place for place, _ in drawn.curve] == [160, 320]  # samples


def test_a_run_ends_when_all_answers_are_right_and_stays_so(
    call, tmp_path, monkeypatch
):
    small = calls.flags(f"""
        --preset=small_grid_lstm model.units=4 model.layers=2 data.symbols=2 data.kinds=51
        data.train=64 data.validation=20 data.test=20 training.epochs=4
        schedule.stop_at=1 --workdir={tmp_path}/run
    """)
    shares = iter([0.95, 1.0, 0.5])

    def evaluate(self):
        return {"loss": 1.0, "accuracy": 0.9, "right_answers": next(shares)}

    monkeypatch.setattr(modeling.SequenceModeling, "evaluate", evaluate)
    output = call("--task=memorization", *small)
    line = "at least 100% of the validation answers are right: the run ends"
    assert output.count(line) == 1
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["solved"], result["epochs"]) == (True, 2)
    output = call("--task=memorization", *small)
    assert "a finished run; at least 100% of its validation answers are" in output
    (drawn,) = report.read_runs([f"{tmp_path}/run"])
    assert [place for place, _ in drawn.curve] == [64, 128] and drawn.result


def test_other_images_are_refused(trained, folder, call, tmp_path):
    workdir, _ = trained
    for split, count in (("train", 60), ("test", 20)):
        mnist_files.write(
            tmp_path, split, np.zeros((count, 28, 28)), np.arange(count) % 10
        )
    place = (f"--workdir={workdir}", f"--data_dir={tmp_path}")
    for command in (("--mode=evaluate",), ("--task=permuted_mnist", *SMALL)):
        error = call(*command, *place, status=2)
        assert (
            "other data (train, validation, test);" in error and str(workdir) in error
        )


def test_of_a_network_that_cannot_see_all_steps_and_a_picture_that_cannot_be_written(
    folder, call, tmp_path, monkeypatch
):
    """Both are told; the test set is read once, and the picture costs no result."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(figure.Figure, "savefig", full)
    splits = []
    score = modeling.SequenceModeling.score
    monkeypatch.setattr(
        modeling.SequenceModeling,
        "score",
        lambda self, split: (splits.append(split), score(self, split))[1],
    )
    arguments = (*SMALL, *TWO_LEVELS, "--config.training.epochs=1")
    output = call(
        "--task=seq_mnist",
        *arguments,
        f"--data_dir={folder}",
        f"--workdir={tmp_path}/a",
    )
    assert "warning: of the 784 steps the network sees the last 16 alone" in output
    assert splits == ["validation", "validation", "test"]
    assert output.count(f"{tmp_path}/a/confusion.png cannot be written (") == 1
    assert (tmp_path / "a" / "result.json").exists()
