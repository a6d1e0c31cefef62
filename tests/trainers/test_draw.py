"""`python -m trainers.draw` from end to end, on images of its own."""

import errno
import functools
import json
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from etils import epath

from tests.trainers import calls, mnist_files
from trainers import draw, evaluate
from trainers.drawing import experiment, pictures
from trainers.studies import search
from trainers.tasks import config as configs

SMALL = calls.flags("""
    --task=mnist --preset=small model.steps=3 model.units=8 data.batch_size=10
    data.validation=20 evaluation.batch_size=10 training.epochs=3
    training.checkpoint_every_steps=2
""")
# `python -m trainers.draw`, with pictures of two images, which take less time.
PROGRAM = """
from trainers import draw
from trainers.cli import command
from trainers.drawing import pictures
pictures.ROWS = 2
command.start(draw.main, draw.parse_flags)
"""
KILLED = """
import os, signal
from trainers.training import checkpoints
start_saving = checkpoints.Checkpoints.start_saving

def save_or_die(self, step, arrays):
    if step == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    start_saving(self, step, arrays)

checkpoints.Checkpoints.start_saving = save_or_die
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    mnist_files.write_rows(folder, 128)
    return folder


def places(folder, workdir):
    return (f"--data_dir={folder}", f"--workdir={workdir}")


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory, forks):
    workdir = tmp_path_factory.mktemp("runs") / "trained"
    done = forks.run("-c", PROGRAM, *SMALL, *places(folder, workdir))
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir, done.stdout


@pytest.fixture
def call(own_settings, capsys):
    """Runs a command line in this process, whose generators are left as they are."""
    return calls.in_process(draw, capsys)


def test_a_run_tells_its_bound_and_draws(trained):
    workdir, output = trained
    assert "DRAW: 3 steps, LSTM decoder of 8 units; 3,747 parameters\n" in output
    assert "40 training images of 28 x 28 x 1; the decoder has 928 of the" in output
    result = json.loads((workdir / "result.json").read_text())
    score = result["scores"]["test"]["exact"]
    assert score["nats"] == score["reconstruction"] + score["kl"]
    assert score["images"] == 20 and result["parameters"] == 3747
    assert f"test nats: {score['nats']:.2f} (20 images)" in calls.summary(output)
    names = sorted(path.name for path in (workdir / "drawings").iterdir())
    assert names == [f"epoch_{number:04d}.png" for number in range(1, 4)]
    assert (workdir / "curves.png").exists()
    for name in names:
        assert (workdir / "drawings" / name).read_bytes().startswith(b"\x89PNG")
    assert (workdir / "drawing.gif").read_bytes().startswith(b"GIF89a")
    assert len(list((workdir / "tensorboard" / "drawings").iterdir())) == 3


def test_it_goes_on_bit_for_bit_after_a_kill(trained, folder, tmp_path, forks):
    workdir, _ = trained
    arguments = (*SMALL, *places(folder, tmp_path / "run"))
    killed = forks.run("-c", KILLED + PROGRAM, *arguments)
    assert killed.returncode == -9, killed.stderr[-3000:]
    done = forks.run("-c", PROGRAM, *arguments)
    assert "going on from step" in done.stdout, done.stderr[-3000:]
    for place in ("checkpoints/best.npz", "checkpoints/step-00000012.npz"):
        one, other = (np.load(path / place) for path in (workdir, tmp_path / "run"))
        names = [name for name in one.files if not name.startswith(("cost/", "run_id"))]
        names.remove("checksum") if "checksum" in names else None
        assert set(one.files) == set(other.files) and len(names) > 10
        for name in names:
            np.testing.assert_array_equal(one[name], other[name], name)
    for name in ("epoch_0002.png", "epoch_0003.png"):
        pictures = [(path / "drawings" / name) for path in (workdir, tmp_path / "run")]
        assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_evaluation_is_that_of_the_end(trained, folder, call):
    workdir, output = trained
    place = (f"--workdir={workdir}", f"--data_dir={folder}")
    lines = call("--mode=evaluate", *place).splitlines()
    assert calls.summary(output).split(": ", 1)[1] == "; ".join(lines)
    assert "holds a finished run" in call(*SMALL, *place)
    error = call(*place, status=2, program=evaluate)
    assert "which python -m trainers.draw --mode=evaluate scores" in error


def test_the_report_has_the_run(trained, tmp_path, forks):
    workdir, _ = trained
    done = forks.run("-m", "trainers.report", workdir, f"--output={tmp_path}")
    assert "## mnist: nats" in done.stdout, done.stderr
    assert "| trained | small | 3,747 |" in done.stdout and "80.97" in done.stdout


def test_pictures_that_cannot_be_written_cost_no_result(
    folder, call, tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pictures, "ROWS", 2)
    monkeypatch.setattr(pictures, "write_atomically", full)
    place = (f"--workdir={tmp_path}/run", f"--data_dir={folder}")
    output = call(*SMALL, "--config.training.epochs=1", *place)
    assert "drawings/epoch_0001.png cannot be written (" in output
    assert "drawing.gif cannot be written (" in output
    assert (tmp_path / "run" / "result.json").exists()


def test_other_images_are_refused(trained, call, tmp_path):
    workdir, _ = trained
    for split, count in (("train", 60), ("test", 20)):
        images = np.zeros((count, 28, 28))
        mnist_files.write(tmp_path, split, images, np.arange(count) % 10)
    copied = shutil.copytree(workdir, tmp_path / "run")
    place = (f"--workdir={copied}", f"--data_dir={tmp_path}")
    error = call("--mode=evaluate", *place, status=2)
    assert f"{copied} belongs to a run on other images" in error


def test_its_tasks_cannot_be_searched():
    with pytest.raises(ValueError, match="--task=mnist cannot be searched"):
        search.space(configs.load("mnist"))


@pytest.fixture
def observer(tmp_path, monkeypatch):
    """What observes the epochs of a run whose pictures are black."""
    monkeypatch.setattr(pictures, "sheet", lambda *_: np.zeros([4, 4, 3], "uint8"))
    task = types.SimpleNamespace(examples=lambda _: None, model=None)
    config = types.SimpleNamespace(seed=1)
    run = types.SimpleNamespace(_path=epath.Path(tmp_path), _task=task, _config=config)
    return functools.partial(experiment.DrawingExperiment.observe, run)


def test_a_picture_that_tensorboard_lost_is_told_and_stays_in_the_folder(
    observer, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(tf.summary, "image", lambda *_, **__: None)
    observer([1.0])
    assert "tensorboard/drawings cannot be written" in capsys.readouterr().out
    assert (tmp_path / "drawings/epoch_0001.png").exists()


def test_a_process_that_ended_before_its_picture_was_there_gives_tensorboard_one(
    observer, tmp_path
):
    observer([1.0])
    (tmp_path / "drawings/epoch_0001.png").unlink()
    observer([1.0])
    observer([1.0, 0.9])
    assert (tmp_path / "drawings/epoch_0001.png").exists()
    assert len([*(tmp_path / "tensorboard/drawings").iterdir()]) == 2
