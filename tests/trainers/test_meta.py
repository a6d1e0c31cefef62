"""`python -m trainers.meta` from end to end, and the evaluation of its runs."""

import json
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tests.trainers import calls, mnist_files
from trainers import evaluate, meta, meta_evaluate
from trainers import report as comparison
from trainers.learned_optimizers import (
    evaluation,
    experiment,
    modeling,
    report,
    rules,
)
from trainers.learned_optimizers.optimizer import RecurrentOptimizer
from trainers.tasks import config as configs
from trainers.tasks import run_folders
from trainers.training import variables

SMALL = calls.flags("""
    --preset=small model.units=4 model.layers=1 data.batch_size=4 data.steps=6
    data.unroll=3 data.episodes=3 data.evaluated=5 training.epochs=3
    training.checkpoint_every_steps=3
""")
QUADRATIC = ("--task=quadratic", "--config.data.dimensions=3", *SMALL)
WHOLE = """
from trainers import meta
from trainers.cli import command
command.start(meta.main, meta.parse_flags)
"""
KILLED = """
import os, signal
from trainers import evaluate, meta, meta_evaluate
from trainers import report as comparison
from trainers.cli import command
from trainers.training import checkpoints
start_saving = checkpoints.Checkpoints.start_saving

def save_or_die(self, step, arrays):
    if step == 12:
        self.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    start_saving(self, step, arrays)

checkpoints.Checkpoints.start_saving = save_or_die
command.start(meta.main, meta.parse_flags)
"""


@pytest.fixture(scope="module")
def in_process():
    """Leaves this process's kernels as they are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
        yield


@pytest.fixture
def call(in_process, capsys):
    return calls.in_process(meta, capsys)


def train(*flags):
    """Trains in this process, for a fixture of the module."""
    output = types.SimpleNamespace(readouterr=lambda: types.SimpleNamespace(out=""))
    calls.in_process(meta, output)(*flags)


@pytest.fixture(scope="module")
def trained(in_process, tmp_path_factory):
    """The folder of a finished run."""
    workdir = tmp_path_factory.mktemp("runs") / "trained"
    train(*QUADRATIC, f"--workdir={workdir}")
    return workdir


def test_a_run_tells_its_losses_and_writes_the_optimizer(trained, call):
    output = call(*QUADRATIC, f"--workdir={trained}")
    result = json.loads((trained / "result.json").read_text())
    score = result["scores"]["test"]["exact"]
    assert score["optimizations"] == 5 and score["last_loss"] > 0
    told = f"test mean_loss: {score['mean_loss']:.4f} (5 optimizations), last"
    assert told in calls.summary(output)
    network = RecurrentOptimizer.load(trained / "optimizer.npz").network
    assert result["parameters"] == variables.parameters(network)
    best = np.load(trained / "checkpoints/best.npz")
    kept = [name for name in best.files if name.startswith("model/")]
    kept = [best[name] for name in kept if "seed_generator" not in name]
    for one, other in zip(kept, network.get_weights(), strict=True):
        assert_array_equal(one, other)


def test_it_goes_on_bit_for_bit_after_a_kill(tmp_path, forks):
    """The last checkpoint is in the middle of an optimization.

    All three are processes of their own: this one has other kernels.
    """
    whole = forks.run("-c", WHOLE, *QUADRATIC, f"--workdir={tmp_path}/whole")
    assert whole.returncode == 0, whole.stderr[-3000:]
    killed = forks.run("-c", KILLED, *QUADRATIC, f"--workdir={tmp_path}/run")
    assert killed.returncode == -9, killed.stderr[-3000:]
    again = forks.run("-c", WHOLE, *QUADRATIC, f"--workdir={tmp_path}/run")
    assert "going on from step 9, epoch 2" in again.stdout + again.stderr
    for place in ("checkpoints/best.npz", "checkpoints/step-00000018.npz"):
        one, other = (np.load(tmp_path / run / place) for run in ("whole", "run"))
        names = [name for name in one.files if not name.startswith(("cost/", "run_id"))]
        assert set(one.files) == set(other.files) and len(names) > 8
        for name in names:
            assert_array_equal(one[name], other[name], name)


def config_of(trained):
    return run_folders.load_config(trained)


def test_truncations_are_parts_of_one_optimization(trained):
    config = config_of(trained)
    made = experiment.MetaExperiment(config, None, trained)
    network = made.build()
    task, state, found = made.task(network), None, []
    for number in (4, 5):  # the third optimization
        state = state or task.initial_state()
        total, count, state, _ = task.loss(tf.constant([number]), state)
        found.append(total / count)
    family = experiment.split_optimizees(config, None)["train"]
    draw = family.draw(tf.constant([config.seed, 2], tf.int64), 4)
    whole = rules.losses(rules.learned(network), draw, 6)[1:]
    expected = tf.reduce_mean(tf.reshape(whole, [2, 3, 4]), -1)
    assert_allclose(found, tf.reduce_sum(expected, 1), rtol=1e-5)
    assert state[0].shape == (4, 3) and state[1][0][0].shape == (12, 4)


def test_the_optimizer_is_written_when_it_is_the_best(trained, tmp_path):
    copied = shutil.copytree(trained, tmp_path / "run")
    (copied / "optimizer.npz").unlink()
    made = experiment.MetaExperiment(config_of(copied), None, copied)
    made.observe([1.0, 2.0])
    assert not (copied / "optimizer.npz").exists()
    made.observe([2.0, 1.0])
    files = [folder / "optimizer.npz" for folder in (trained, copied)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_losses_that_are_not_finite_end_the_run(call, tmp_path):
    flags = (*QUADRATIC, "--config.model.scale=1e30", f"--workdir={tmp_path}/run")
    error = call(*flags, status=3)
    assert "error: loss " in error and "at step 1; checkpoints from" in error


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    mnist_files.write_rows(folder, 128)
    return folder


@pytest.fixture(scope="module")
def of_digits(in_process, digits, tmp_path_factory):
    """The folder of a finished run on images."""
    workdir = tmp_path_factory.mktemp("runs") / "digits"
    flags = ("--task=mnist_mlp", *SMALL, "--config.data.validation=20")
    flags += ("--config.data.evaluated=1", "--config.training.epochs=1")
    train(*flags, f"--data_dir={digits}", f"--workdir={workdir}")
    return workdir, flags


def test_images_are_those_of_the_run(of_digits, digits, call, tmp_path):
    workdir, flags = of_digits
    place = (f"--workdir={workdir}", f"--data_dir={tmp_path}")
    mnist_files.write_rows(tmp_path, 0)
    error = call(*flags, *place, status=2)
    assert f"{workdir} belongs to a run on other images" in error
    output = call(*flags, place[0], f"--data_dir={digits}")
    assert "holds a finished run" in output


def test_the_report_has_the_run(trained):
    (section,) = comparison.table(comparison.read_runs([str(trained)])).split("##")[1:]
    assert section.startswith(" quadratic: mean_loss")
    score = json.loads((trained / "result.json").read_text())["scores"]["test"]
    told = f"{score['exact']['mean_loss']:.4f} (5 optimizations)"
    assert "| trained | small |" in section and told in section


@pytest.mark.parametrize(
    "task, layers, update",
    [
        ("quadratic", 2, "added"),
        ("mnist_mlp", 2, "added"),
        ("cifar10_cnn", 2, "added"),
        ("cifar10_resnet", 1, "gated"),
    ],
)
def test_a_preset_has_the_cells_of_kuo(task, layers, update):
    sizes = {}
    for cell in ("lstm", "ihc_lstm"):
        config = configs.load(task)
        config.model.cell = cell
        network = experiment.build(config)
        sizes[cell] = [each.count_params() for each in network.cells]
        assert network.update == update
    assert sizes == {"lstm": [3280] * layers, "ihc_lstm": [2820] * layers}


@pytest.mark.parametrize(
    "preset, sizes", [("small", (5_000, 20_000)), ("paper", (21_282_122,) * 2)]
)
def test_a_residual_network_has_the_preset_s_depth_and_channels(preset, sizes):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, 1024, 3), np.uint8)
    part = pixels, np.arange(20, dtype=np.int32) % 10
    data = types.SimpleNamespace(
        train=part, validation=part, test=part, classes=tuple("abcdefghij")
    )
    config = configs.load("cifar10_resnet", preset)
    least, most = sizes
    assert least <= experiment.split_optimizees(config, data)["train"].size <= most


@pytest.fixture
def few_trials(monkeypatch):
    """Two optimizers, three rates, two settings."""
    tuned = {name: rules.TUNED[name] for name in ("SGD", "Adam")}
    monkeypatch.setattr(rules, "TUNED", tuned)
    monkeypatch.setattr(evaluation, "RATES", (10.0, 0.1, 0.001))
    every = evaluation.settings
    monkeypatch.setattr(evaluation, "settings", lambda config: every(config)[-2:])


def evaluated(paths, tmp_path, **values):
    values = {"output": f"{tmp_path}/found", "draws": 3, "data_dir": None, **values}
    meta_evaluate.run(paths, types.SimpleNamespace(**values))
    return tmp_path / "found"


@pytest.mark.usefixtures("pictures")
def test_an_evaluation_has_a_table_a_picture_and_all_points(
    trained, few_trials, capsys, tmp_path
):
    found = evaluated([f"{trained}"], tmp_path)
    output = capsys.readouterr().out
    assert "10 times the steps, SGD: " in output
    table = (found / report.TABLE).read_text()
    assert table.count("\n| 10 times the steps |") == 3
    assert table.count("\n| 5 dimensions |") == 3
    assert "| 10 times the steps | trained |  | " in table
    for picture in (report.PICTURE, report.MEANS):
        assert (found / picture).read_bytes().startswith(b"\x89PNG")
    lines = (found / report.POINTS).read_text().splitlines()
    assert lines[0] == "setting,optimizer,draw,step,loss"
    assert len(lines) == 1 + 3 * 3 * (61 + 7)


def test_rates_are_tuned_on_draws_of_their_own(trained, few_trials):
    config = config_of(trained)
    networks = {"learned": experiment.build(config)}
    setting = evaluation.settings(config)[-1]
    assert setting.steps == 60
    outcomes = list(evaluation.evaluate(setting, networks, config, None, 4))
    family = experiment.split_optimizees(config, None)
    for name in rules.TUNED:
        (found,) = [each for each in outcomes if each.optimizer == name]
        finals = {}
        for rate in evaluation.RATES:
            rule = rules.TUNED[name](tf.constant(rate))
            seed = tf.constant([config.seed, modeling.SPLITS["tuning"]], tf.int64)
            draw = family["tuning"].draw(seed, evaluation.TUNING_DRAWS)
            finals[rate] = np.nan_to_num(rules.losses(rule, draw, 60), nan=np.inf)[-1]
        best = min(finals, key=lambda rate: finals[rate].mean())
        assert found.rate == best and found.losses.shape == (61, 4)
        starts = outcomes[0].losses[0]
        assert_array_equal(found.losses[0], starts)  # the same draws


def test_an_evaluation_says_what_diverges():
    def outcome(optimizer, rate, *last):
        losses = np.array([[4.0, 5.0, 6.0], last])
        return evaluation.Outcome("any", optimizer, rate, losses)

    good, bad = outcome("good", None, 1, 2, 3), outcome("bad", None, 7, np.inf, np.inf)
    tuned = [outcome("Adam", 0.1, 2, 2.5, 3), outcome("SGD", 0.1, 3, 3, 3)]
    (line,) = evaluation.failures([good, bad, *tuned])
    assert line.startswith("bad falls short on: any. Its median last loss is inf, and")
    assert "not below the start; Adam's is 2.5" in line
    assert "| any | bad |  | inf | 7 | inf | inf | 3 | 2 |" in report.markdown(
        [bad, *tuned]
    )
    assert "No learned optimizer falls short" in report.markdown([good, *tuned])


def test_images_of_an_evaluation_are_read(of_digits, digits, few_trials, tmp_path):
    workdir, _ = of_digits
    found = evaluated([f"{workdir}"], tmp_path, data_dir=str(digits), draws=1)
    assert "| relu | digits |" in (found / report.TABLE).read_text()


def test_other_commands_name_this_one(trained, call):
    error = call(f"--workdir={trained}", status=2, program=evaluate)
    assert "which python -m trainers.meta_evaluate scores" in error
