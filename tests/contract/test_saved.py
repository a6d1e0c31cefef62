"""The files of this release and of earlier ones, loaded by a process of its own.

They stand by themselves so that one worker waits for that process, not all of them.
"""

import pathlib
import subprocess
import sys

import filelock
import pytest

from tests.contract import saved, tensors
from tests.contract.registry import ENTRIES

# One fresh process, which imports only the package, loads the files of this and earlier releases.

LOADING = """
import pathlib, sys
import numpy as np
import keras
import keras_trellis

for path in map(pathlib.Path, sys.argv[1:]):
    arrays = np.load(path.with_suffix(".npz"))
    try:
        model = keras.models.load_model(path)
        answers = []
        # Of released files one answer is enough: they are compared with those of this version.
        if path.parent.name != "testdata" or keras.backend.backend() == "jax":
            answers.append(model.predict(arrays["inputs"], verbose=0))
        if keras.backend.backend() != "jax":  # it would compile each operation by itself
            answers.append(keras.ops.convert_to_numpy(model(arrays["inputs"])))
        difference = max(np.abs(answer - arrays["outputs"]).max() for answer in answers)
        print(path.name, "differs by", difference, flush=True)
    except Exception as error:
        print(path.name, "fails:", str(error).replace(chr(10), " "), flush=True)
"""
RELEASED = [
    path
    for path in sorted(pathlib.Path(__file__).parent.glob("testdata/*"))
    if path.suffix == ".keras"
]


@pytest.fixture(scope="module")
def loaded(shared_folder):
    """The name of each file -> what the fresh process said of it, once in a run of the tests."""
    folder = shared_folder / "contract"
    said = folder / "said.txt"
    with filelock.FileLock(shared_folder / "contract.lock"):
        if not said.exists():
            folder.mkdir(exist_ok=True)
            saved.save(folder)
            files = [*folder.glob("*.keras"), *RELEASED]
            command = [sys.executable, "-c", LOADING, *files]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert ".keras " in done.stdout, done.stderr[-2000:]
            said.write_text(done.stdout)
    lines = said.read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines if ".keras " in line)


def assert_loaded(said):
    assert said.startswith("differs by") and float(said.split()[-1]) < 1e-6, said


@tensors.not_in_float64_on_jax
@pytest.mark.parametrize("name", [name for name, e in ENTRIES.items() if e.as_model])
def test_a_fresh_process_loads_it(name, loaded):
    assert_loaded(loaded[f"{saved.stem(name)}.keras"])


@tensors.not_in_float64_on_jax
@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_a_fresh_process_loads_what_a_release_wrote(path, loaded):
    assert_loaded(loaded[path.name])


def test_every_release_has_written_its_files():
    written = {path.name.partition("-")[0] for path in RELEASED}
    assert saved.VERSION in written, "run `python -m tests.contract.saved`"
