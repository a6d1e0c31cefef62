"""Torch's files: what torch itself wrote, damage, and pickles that mean harm."""

import os
import pathlib
import pickle
import sys

import numpy as np
import pytest

from tests.refusals import refuses
from trainers.authors import torch_files
from trainers.authors.torch_files import read_state_dict

HERE = pathlib.Path(__file__).parents[1]
LEGACY, ZIP = HERE / "testdata/legacy.pkl", HERE / "testdata/zip.pkl"


@pytest.fixture
def torch():
    return pytest.importorskip(
        "torch", reason="the extra `verify`, which the tests do without"
    )


@pytest.fixture
def read(torch, tmp_path):
    """Reads a file of these bytes."""

    def read(data):
        (tmp_path / "weights.pkl").write_bytes(data)
        return read_state_dict(tmp_path / "weights.pkl")

    return read


@pytest.mark.parametrize("path", [LEGACY, ZIP], ids=lambda path: path.name)
def test_what_torch_wrote(torch, path):
    base = np.arange(24, dtype=np.float32).reshape(4, 6) - np.float32(7.5)
    expected = {
        "double": base.astype(np.float64) / 3,
        "float": base,
        "half": (base / 2).astype(np.float16),
        "bfloat16": base / 4,
        "tied": base,
        "transposed": base.T,
        "strided": base[1::2, 2:5],
        "parameter": base[:, 1],
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }
    arrays = read_state_dict(path)
    assert list(arrays) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True, err_msg=name)


@pytest.mark.parametrize("path", [LEGACY, ZIP], ids=lambda path: path.name)
def test_a_file_that_is_cut_short_is_refused_in_a_line(read, path):
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        with refuses("must be a state dict that torch saved") as error:
            read(whole[:length])
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "it is empty"),
        (b"weights", "cannot be read: .+"),
        (b"PK\x03\x04" + bytes(60), "cannot be read: .+"),
        (pickle.dumps(3, 2), "cannot be read: .+"),
    ],
)
def test_what_is_no_file_of_torch_is_told(read, content, message):
    with refuses(message):
        read(content)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda torch: [torch.zeros(1)], "it holds a list; expected a mapping"),
        (lambda torch: {1: torch.zeros(1)}, "keys are not all strings"),
        (lambda torch: {"a": 1}, "'a' is not a tensor of floating-point numbers"),
        (
            lambda torch: {"a": torch.arange(3)},
            "'a' is not a tensor of floating-point numbers",
        ),
    ],
)
def test_what_is_no_state_dict_is_told(torch, tmp_path, make, message):
    torch.save(make(torch), tmp_path / "weights.pkl")
    with refuses(message):
        read_state_dict(tmp_path / "weights.pkl")


class Call:
    """What pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda path: Call(os.system, f"touch {path}"),
        lambda path: Call(open, str(path), "w"),
    ],
    ids=["system", "open"],
)
def test_no_pickled_call_is_made(torch, tmp_path, zipped, call):
    made, file = tmp_path / "made", tmp_path / "weights.pkl"
    torch.save({"a": call(made)}, file, _use_new_zipfile_serialization=zipped)
    with refuses("it refers to '[a-z_]+.[a-z]+', which is not run$"):
        read_state_dict(file)
    assert not made.exists()
    pickle.loads(pickle.dumps(call(made)))  # Python's own reader makes it
    assert made.exists()


def test_a_whole_model_is_refused_with_what_to_do(torch, tmp_path, monkeypatch):
    package = type(sys)("model")
    network = package.TrellisNetModel = type("TrellisNetModel", (torch.nn.Linear,), {})
    network.__module__ = "model"
    monkeypatch.setitem(sys.modules, "model", package)
    torch.save(network(2, 3), tmp_path / "weights.pt")
    with refuses("refers to 'model.TrellisNetModel'.*make a state dict"):
        read_state_dict(tmp_path / "weights.pt")


def test_without_torch_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with refuses(r"needs torch: pip install '.\[verify\]'"):
        torch_files.read_state_dict(ZIP)
