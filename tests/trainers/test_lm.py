"""`python -m trainers.lm` from end to end, on a tiny corpus of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from absl.testing import flagsaver

from trainers import lm

SMALL = (
    "--config.model.units=12",
    "--config.model.output_units=8",
    "--config.model.embedding_units=8",
    "--config.model.depth=3",
    "--config.model.auxiliary_every=2",
    "--config.data.batch_size=4",
    "--config.data.window=10",
    "--config.data.horizon=0",
    "--config.data.history=carried",
    "--config.evaluation.batch_size=2",
    "--config.evaluation.exact_batch_size=2",
    "--config.training.epochs=2",
    "--config.training.log_every_steps=5",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    words = np.random.default_rng(0).integers(0, 30, 5600)
    lines = [" ".join(f"w{word}" for word in row) for row in words.reshape(-1, 10)]
    for name, part in (("train", lines[:460]), ("valid", lines[460:510]), ("test", lines[510:])):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in part))
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}


def command(*arguments):
    return [sys.executable, "-m", "trainers.lm", *map(str, arguments)]


def run(environment, *arguments, status=0):
    done = subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def checkpoint(workdir):
    """The arrays of the newest checkpoint of a run."""
    newest = max((workdir / "checkpoints").glob("step-*.npz"))
    with np.load(newest) as file:
        return newest.name, {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def trained(corpus, environment, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "trained"
    output = run(environment, "--task=text", f"--data_dir={corpus}", f"--workdir={workdir}", *SMALL)
    return workdir, output


def test_training_tells_its_size_and_its_result(trained):
    workdir, output = trained
    assert re.search(r"5,060 training tokens, 32 words; [\d,]+ parameters; .* of memory", output)
    assert "the end of epoch 2" in output
    # 550 validation tokens: all but the first; 2 streams of 275, all but the first of each.
    assert re.search(r"validation perplexity: exact [\d.]+ \(549 tokens\), ", output)
    assert re.search(r"trellisnet [\d.]+ \(548 tokens\); test perplexity", output)
    result = json.loads((workdir / "result.json").read_text())
    assert result["scores"]["test"]["exact"]["tokens"] == 549
    assert result["summary"] == output.splitlines()[-1]
    assert (workdir / "curves.png").exists()
    assert (workdir / "metrics.csv").exists()


def test_killed_and_resumed_is_bit_for_bit_the_run_that_was_not(
    trained, corpus, environment, tmp_path
):
    arguments = (
        "--task=text",
        f"--data_dir={corpus}",
        f"--workdir={tmp_path / 'killed'}",
        *SMALL,
        "--config.training.checkpoint_every_steps=7",
    )
    process = subprocess.Popen(command(*arguments), env=environment, stdout=subprocess.DEVNULL)
    found, deadline = [], time.monotonic() + 120
    while not found and time.monotonic() < deadline and process.poll() is None:
        found = list((tmp_path / "killed").glob("checkpoints/step-*.npz"))
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "result.json").exists()
    assert "going on from step" in run(environment, *arguments)
    expected_name, expected = checkpoint(trained[0])
    name, actual = checkpoint(tmp_path / "killed")
    assert name == expected_name
    assert set(actual) == set(expected)
    for key in expected:
        np.testing.assert_array_equal(actual[key], expected[key], err_msg=key)


def test_evaluate_and_generate_take_the_workdirs_config(trained, corpus, environment):
    workdir, output = trained
    evaluated = run(environment, "--mode=evaluate", f"--workdir={workdir}", f"--data_dir={corpus}")
    assert "; ".join(evaluated.splitlines()) in output
    sampling = ("--mode=generate", f"--workdir={workdir}", "--seed=3", "--max_length=12")
    text = run(environment, *sampling, "--prompt=w1 w2")
    assert text.startswith("w1 w2 ")
    assert set(text.split()) <= {f"w{word}" for word in range(30)} | {"<unk>"}


def test_a_finished_run_says_so_and_another_recipe_is_refused(trained, corpus, environment):
    workdir, output = trained
    arguments = ("--task=text", f"--data_dir={corpus}", f"--workdir={workdir}", *SMALL)
    again = run(environment, *arguments)
    assert "holds a finished run" in again
    assert output.splitlines()[-1] in again
    refused = run(environment, *arguments, "--config.model.depth=4", status=2)
    assert "model.depth: 3 there, 4 here" in refused
    assert "Traceback" not in refused


def test_a_loss_that_is_not_finite_exits_1_and_names_the_step(corpus, environment, tmp_path):
    message = run(
        environment,
        "--task=text",
        f"--data_dir={corpus}",
        f"--workdir={tmp_path / 'nan'}",
        *SMALL,
        "--config.optimizer.name=sgd",
        "--config.optimizer.learning_rate=1e38",
        "--config.optimizer.clip_norm=1e38",
        status=1,
    )
    assert re.search(r"error: .*at step \d+; the last good checkpoint", message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--task is missing; expected one of ptb, pydoc, text"),
        (("--task=ptbx",), "unknown --task 'ptbx'; did you mean 'ptb'?"),
        (("--task=ptb", "--mode=trian"), "trian"),
        (("--task=ptb", "--protocol=exact"), "--protocol has no use in --mode=train"),
        (("--task=ptb", "--prompt=a"), "--prompt has no use in --mode=train, only in generate"),
        (("--task=ptb", "--config.model.depht=3"), "did you mean 'model.depth'?"),
        (
            ("--task=ptb", "--mode=evaluate", "--config.model.depth=3"),
            "--config.model.depth has no use in --mode=evaluate",
        ),
        (("--mode=generate",), "--task is missing"),
        (("--tsk=ptb",), "Unknown command line flag 'tsk'"),
    ],
)
def test_a_command_line_that_is_not_valid_exits_2_with_one_line(arguments, message, capsys):
    saved = flagsaver.save_flag_values()
    try:
        with pytest.raises(SystemExit) as exit_:
            lm.parse_flags(["lm", *arguments])
    finally:
        flagsaver.restore_flag_values(saved)
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1


def test_two_replicas_end_with_the_weights_of_one(environment):
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainers.replicas"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for one, two in json.loads(done.stdout.splitlines()[-1]).values():
        assert (one["replicas"], two["replicas"]) == (1, 2)
        assert one["steps_per_epoch"] == 6
        np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-10)
        for first, second in zip(one["weights"], two["weights"], strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-8, atol=1e-10)
