"""Torch's files: what torch itself wrote, drawn views, damage, and pickles that mean harm."""

import io
import os
import pathlib
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.trainers import torch_pickles as torch
from trainers.authors.torch_files import read_state_dict

HERE = pathlib.Path(__file__).parents[1]
LEGACY, ZIP = HERE / "testdata/legacy.pkl", HERE / "testdata/zip.pkl"
FORMATS = {"legacy": torch.legacy, "zip": torch.zipped}


@pytest.fixture
def read(tmp_path):
    """Reads a file of these bytes."""

    def read(data):
        (tmp_path / "weights.pkl").write_bytes(data)
        return read_state_dict(tmp_path / "weights.pkl")

    return read


def assert_same(actual, expected):
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        np.testing.assert_array_equal(actual[name], array, strict=True, err_msg=name)


@pytest.mark.parametrize("path", [LEGACY, ZIP], ids=lambda path: path.name)
def test_what_torch_wrote(path):
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
    assert_same(arrays, expected)
    assert np.shares_memory(arrays["tied"], arrays["float"])
    assert not arrays["tied"].flags.writeable


@st.composite
def bases_and_views(draw):
    """An array, and a view of it such as slicing and transposing give."""
    dtype = draw(st.sampled_from(list(torch.KINDS)))
    base = draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=5)))
    step = st.integers(1, 3)
    view = base[
        tuple(slice(draw(st.integers(0, size)), None, draw(step)) for size in base.shape) or ...
    ]
    return base, view.transpose(draw(st.permutations(range(base.ndim))))


def numbers(array):
    """The numbers that an array stands for in a file."""
    if array.dtype != np.uint16:
        return array
    return (array.astype("<u4") << 16).view("<f4")


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
@given(arrays=st.dictionaries(st.text(st.characters(codec="utf-8")), bases_and_views(), max_size=3))
def test_drawn_views_come_back(tmp_path_factory, write, arrays):
    path = tmp_path_factory.getbasetemp() / "drawn.pkl"
    path.write_bytes(write(*torch.views(arrays)))
    expected = {name: numbers(view) for name, (_, view) in arrays.items()}
    assert_same(read_state_dict(path), expected)


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("dtype", torch.KINDS)
def test_names_of_one_storage_take_no_memory(read, write, dtype):
    """As tied weights are: whole, transposed, sliced, and of no size."""
    base = np.arange(1 << 14).astype(dtype).reshape(128, 128)
    kinds = [base, base.T, base[1:, ::2], base[:0]]
    data = write(*torch.views({f"name{i}": (base, kinds[i % 4]) for i in range(200)}))
    tracemalloc.start()
    try:
        arrays = read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(data) + (1 << 18)
    assert_same(arrays, {f"name{i}": numbers(kinds[i % 4]) for i in range(200)})
    first = arrays["name0"]
    assert all(np.shares_memory(first, array) for array in arrays.values() if array.size)
    assert not any(array.flags.writeable for array in arrays.values())


@pytest.mark.parametrize("path", [LEGACY, ZIP], ids=lambda path: path.name)
@given(data=st.data())
def test_a_file_that_is_cut_short_is_refused_wherever_it_ends(tmp_path_factory, path, data):
    part = tmp_path_factory.getbasetemp() / "part.pkl"
    whole = path.read_bytes()
    part.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match=r"part.pkl must be a state dict .* whole: "):
        read_state_dict(part)


@pytest.mark.parametrize("path", [LEGACY, ZIP], ids=lambda path: path.name)
@given(data=st.data())
def test_damage_raises_nothing_but_the_reader_s_own_error(tmp_path_factory, path, data):
    part = tmp_path_factory.getbasetemp() / "damaged.pkl"
    damaged = bytearray(path.read_bytes())
    for place, byte in data.draw(
        st.dictionaries(st.integers(0, len(damaged) - 1), st.integers(0, 255), max_size=3)
    ).items():
        damaged[place] = byte
    part.write_bytes(damaged)
    try:
        read_state_dict(part)  # what changes a number alone cannot be seen
    except ValueError as error:
        assert "damaged.pkl must be a state dict" in str(error)


def test_a_storage_that_is_cut_short_is_told_with_its_size(read):
    with pytest.raises(ValueError, match="cut short: storage .* takes 16 bytes, and there are 15"):
        read(torch.state_dict({"a": np.zeros(4, np.float32)})[:-1])


FLOATS = {"0": np.zeros(4, np.float32)}
PLACE = torch.storage("0", 4)


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    ("view", "message"),
    [
        ((1, (4,), (1,)), r"shape \(4,\), offset 1 .* beyond storage 0, which has 4 numbers"),
        ((0, (2, 2), (3, 1)), "beyond storage"),
        ((4, (), ()), "beyond storage"),
        ((0, (1 << 40, 1 << 40), (0, 0)), "beyond storage"),
        ((0, (8,), (0,)), "beyond storage"),
        ((0, (4,), (1, 1)), "malformed tensor"),
        ((3, (4,), (-1,)), "malformed tensor"),
        ((-1, (4,), (1,)), "malformed tensor"),
        ((0, (1,) * 33, (1,) * 33), "malformed tensor"),
        ((0, (True,), (1,)), "malformed tensor"),
    ],
)
def test_a_view_beyond_its_storage_is_refused(read, write, view, message):
    with pytest.raises(ValueError, match=message):
        read(write(torch.mapping({"a": torch.tensor(PLACE, *view)}), FLOATS))


VIEW = (0, (4,), (1,))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"some text\n", "malformed pickle"),
        (b"\x80\x02", "no pickle, or is cut short, at byte 2"),
        (b"\x80\x02\0 no opcode", "no pickle, or is cut short, at byte 3"),
        (b"\x80\x02s.", "malformed pickle"),
        (pickle.dumps(3, 2), "magic number"),
        (pickle.dumps(torch.MAGIC, 2) + pickle.dumps(1002, 2), "version is not 1001"),
        (torch.legacy(pickle.dumps([1], 2), {}), "holds a list; expected a mapping"),
        (torch.legacy(pickle.dumps({"a": {}}, 2), {}), "'a' is a dict; expected a tensor"),
        (torch.legacy(pickle.dumps({1: 2}, 2), {}), "keys are not all strings"),
        (torch.legacy(b"\x80\x02}}}s.", {}), "keys are not all strings"),
        (torch.legacy(torch.mapping({}), FLOATS), "lists a storage that no tensor has"),
        (
            torch.legacy(torch.mapping({"a": torch.tensor(PLACE, *VIEW)}), {}),
            "no storage 0",
        ),
        (
            torch.zipped(torch.mapping({"a": torch.tensor(PLACE, *VIEW)}), {}),
            "no storage 0",
        ),
        (
            torch.legacy(
                torch.mapping({"a": torch.tensor(torch.storage("0", 3), 0, (3,), (1,))}), FLOATS
            ),
            "storage 0 has 4 numbers; its tensors say 3",
        ),
        (
            torch.legacy(
                torch.mapping(
                    {
                        "a": torch.tensor(PLACE, *VIEW),
                        "b": torch.tensor(torch.storage("0", 4, "HalfStorage"), *VIEW),
                    }
                ),
                FLOATS,
            ),
            "two things of storage 0",
        ),
        (
            torch.legacy(
                torch.mapping({"a": torch.tensor(torch.storage("0", 4, "LongStorage"), *VIEW)}),
                FLOATS,
            ),
            "'torch.LongStorage'",
        ),
        (torch.zipped(torch.mapping({}), {}, byteorder="big"), "big-endian"),
        (torch.zipped(torch.mapping({}), {}, compression=zipfile.ZIP_DEFLATED), "compressed"),
        (b"PK\x03\x04" + bytes(40), "not a zip file"),
    ],
)
def test_what_is_no_state_dict_is_told(read, data, message):
    with pytest.raises(ValueError, match=message):
        read(data)


class Call:
    """What pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile(path):
    """Pickled calls that would make a file, with the name of what each would have called."""
    touch = f"touch {path}"
    make = f"open({str(path)!r}, 'w')"
    system = pickle.dumps(Call(os.system, touch), 2)
    return {
        "system": (system, f"'{os.system.__module__}.system'"),
        "protocol 0": (pickle.dumps(Call(os.system, touch), 0), "system'"),
        "protocol 4": (pickle.dumps(Call(os.system, touch), 4), "instruction FRAME"),
        "eval": (pickle.dumps(Call(eval, make), 2), "'__builtin__.eval'"),
        "nested in arguments": (
            pickle.dumps({"a": Call(list, [Call(eval, make)])}, 2),
            "'__builtin__.list'",
        ),
        "instance": (b"(S'%b'\nios\nsystem\n." % touch.encode(), "instruction STRING"),
        "object": (b"(cos\nsystem\n" + torch.text(touch) + b"o.", "'os.system'"),
        "below an allowed name": (
            b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
            "_rebuild_tensor_v2.__globals__'",
        ),
        "among torch's": (b"ctorch.hub\nload\n(" + torch.text(touch) + b"tR.", "'torch.hub.load'"),
        "attributes of an allowed name": (
            b"\x80\x02ccollections\nOrderedDict\n}" + torch.text("a") + system[2:-1] + b"sb.",
            "system'",
        ),
        "extension registry": (b"\x80\x02\x82\x01.", "instruction EXT1"),
        "reduction of a string": (
            b"\x80\x02" + torch.text("os.system") + torch.text(touch) + b"\x85R.",
            "malformed",
        ),
    }


PLACES = {
    "value": lambda harm: torch.legacy(harm, {}),
    "zip": lambda harm: torch.zipped(harm, {}),
    "first": lambda harm: harm,
    "machine": lambda harm: b"".join([*map(pickle.dumps, (torch.MAGIC, 1001), (2, 2)), harm]),
    "keys": lambda harm: torch.legacy(torch.mapping({}), {})[: -len(pickle.dumps([], 2))] + harm,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("name", hostile("unused"))
def test_no_pickled_call_is_made(read, tmp_path, place, name):
    made = tmp_path / "made"
    harm, message = hostile(made)[name]
    with pytest.raises(ValueError, match=message):
        read(place(harm))
    assert not made.exists()


@pytest.mark.parametrize("name", ["system", "protocol 0", "protocol 4", "eval", "object"])
def test_python_s_own_reader_would_have_made_the_call(tmp_path, name):
    harm, _ = hostile(tmp_path / "made")[name]
    pickle.loads(harm)
    assert (tmp_path / "made").exists()


def test_a_whole_model_is_refused_by_the_name_of_its_class(read):
    with pytest.raises(ValueError, match="refers to 'model.TrellisNetModel', which is not run"):
        read(torch.legacy(b"\x80\x02cmodel\nTrellisNetModel\n.", {}))


def crowded():
    """An archive whose directory has one member a hundred times."""
    data = torch.zipped(torch.mapping({}), {"0": np.zeros(2500)})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    directory = 100 * data[start:-22]
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[100 * count] * 2, len(directory), start, 0)
    return data[:start] + directory + end


HUGE = 1 << 60
BOMBS = {
    "memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "no memo": b"\x80\x02j\xff\xff\xff\xff.",
    "string": b"\x80\x02X\xff\xff\xff\xffa.",
    "long string": b"\x80\x02\x8d" + struct.pack("<Q", HUGE) + b"a.",
    "bytes": b"\x80\x02\x8e" + struct.pack("<Q", HUGE) + b"a.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", HUGE) + b".",
    "number": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "storage": torch.mapping({"a": torch.tensor(torch.storage("0", HUGE), 0, (HUGE,), (1,))}),
    "deep key": b"\x80\x02})" + 100_000 * b"\x85" + b"Ns.",
    "endless list": b"\x80\x02]q\x00h\x00a.",
    "laughs": b"\x80\x02)" + b"".join(b"q%c(%bt" % (i, 9 * (b"h%c" % i)) for i in range(30)) + b".",
    "underflow": b"\x80\x02R.",
    "marks": b"\x80\x02t.",
}


LARGE = np.zeros(1 << 17)


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_takes_no_memory(read, bomb):
    check_is_refused_cheaply(read, torch.legacy(bomb, {}), "weights.pkl must be a state dict")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.zipped(BOMBS["storage"], FLOATS), "cut short: storage 0 takes 4611686018427387904"),
        (torch.zipped(b"", {"0": LARGE}, compression=zipfile.ZIP_DEFLATED), "compressed"),
        (crowded(), "its members claim"),
    ],
    ids=["storage", "compressed", "crowded"],
)
def test_a_zip_bomb_takes_no_memory(read, data, message):
    check_is_refused_cheaply(read, data, message)


def check_is_refused_cheaply(read, data, message):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message):
            read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * len(data) + (1 << 18)
