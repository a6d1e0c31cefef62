"""The start of a command: nothing of TensorFlow's, and nothing else lost."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTICES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795344675.432738   14301 cudart_stub.cc:31] Could not find cuda drivers.",
    "E0000 00:00:1795344677.936072   14301 cuda_platform.cc:52] failed call to cuInit",
]


def environment(**values):
    """This process's, as a user has it who knows nothing of TensorFlow's variables."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TF_CPP_MIN_LOG_LEVEL",)}
    return {**kept, "PYTHONPATH": str(ROOT), **values}


def test_a_command_prints_what_it_runs_on_and_nothing_of_tensorflow_s_start():
    line = [
        sys.executable,
        "-m",
        "trainers.verify",
        "--task=ptb",
        "--reference_dir=nowhere",
    ]
    # Another value than -1 hides no GPU, and has TensorFlow complain where there is none.
    visible = environment(CUDA_VISIBLE_DEVICES="0")
    done = subprocess.run(line, env=visible, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("", 2)
    device, error = done.stderr.splitlines()
    assert re.fullmatch(r"running on .+, TensorFlow 2\.\d+\.\d+", device)
    assert error.startswith("error: --reference_dir must be")


def start(folder, body, **kwargs):
    """Starts a command with another module in TensorFlow's place."""
    (folder / "tensorflow.py").write_text(f"import os, sys, time\n{body}")
    path = environment(PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        **kwargs,
    }
    return subprocess.Popen([sys.executable, "-m", "trainers.lm"], env=path, **pipes)


def written(*lines):
    return f"os.write(2, {chr(10).join([*lines, '']).encode()!r})\n"


def test_what_is_no_notice_is_shown_after_the_import(tmp_path):
    body = (
        written("before", *NOTICES, "after") + "print('a warning', file=sys.stderr)\n"
    )
    body += "class config:\n    list_physical_devices = lambda: " + written(*NOTICES)
    process = start(tmp_path, body)
    output, errors = process.communicate(timeout=60)
    assert output == "" and errors.startswith("before\nafter\na warning\n")
    assert "Traceback" in errors  # the module in TensorFlow's place lacks the rest
    assert not any(notice in errors for notice in NOTICES)


def test_an_import_that_fails_shows_all(tmp_path):
    process = start(
        tmp_path, written(*NOTICES) + "raise ImportError('no such library')"
    )
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == ("", 1)
    assert (
        errors.splitlines()[:3] == NOTICES and "ImportError: no such library" in errors
    )


def test_an_import_that_crashes_says_where(tmp_path):
    process = start(tmp_path, "os.abort()")
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == ("", -signal.SIGABRT)
    assert (
        errors.startswith("Fatal Python error: Aborted") and "tensorflow.py" in errors
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_import_is_a_line_and_its_status(tmp_path, number):
    wait = "print('ready', flush=True)\nwhile True: time.sleep(0.01)"
    process = start(tmp_path, written(*NOTICES) + wait)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", f"stopped by {number.name}\n")
    assert process.returncode == 128 + number


def test_a_closed_stderr_is_no_error(tmp_path):
    line = f"exec {sys.executable} -m trainers.lm --task=nothing 2>&-"
    (tmp_path / "tensorflow.py").write_text(
        "import os\nprint('imported', flush=True)\nos._exit(7)\n"
    )
    path = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    done = subprocess.run(["sh", "-c", line], env=path, capture_output=True, timeout=60)
    assert (done.stdout, done.returncode) == (b"imported\n", 7)


def test_a_command_says_which_backend_it_needs():
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-m", "trainers.lm", "--task=pydoc"],
        env=environment(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: KERAS_BACKEND must be tensorflow for the trainers")
    assert "Received: jax." in line
