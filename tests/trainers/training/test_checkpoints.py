"""Checkpoints: whole or not there, and none lost that need not be."""

import errno
import io
import os
import pathlib
import tempfile
import threading

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests.refusals import refuses
from trainers.training import checkpoints, variables, workdir


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(tmp_path, told):
    return checkpoints.Checkpoints(tmp_path / "checkpoints", announce=told.append)


def arrays(step):
    return {"model/0": np.full((64, 3), float(step)), "step": np.int64(step)}


def files(store):
    return sorted(path.name for path in store.folder.iterdir())


def cut_short(path):
    path.write_bytes(path.read_bytes()[:200])


def emptied(path):
    path.write_bytes(b"")


def with_a_byte_changed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_the_newest_two_are_kept(store):
    for step in (1, 2, 10):
        assert store.save(step, arrays(step))
    assert files(store) == ["step-00000002.npz", "step-00000010.npz"]
    step, restored = store.restore()
    assert step == 10
    np.testing.assert_array_equal(restored["model/0"], arrays(10)["model/0"])


def test_nothing_to_restore(store, told):
    assert store.restore() is None
    assert not told


@pytest.mark.parametrize("damage", [cut_short, emptied, with_a_byte_changed])
def test_a_damaged_checkpoint_costs_the_last_interval(store, told, damage):
    for step in (10, 20):
        store.save(step, arrays(step))
    damage(store.folder / "step-00000020.npz")
    content = (store.folder / "step-00000020.npz").read_bytes()
    assert store.restore()[0] == 10
    assert "step-00000020.npz cannot be read" in told[0]
    assert told[0].endswith("it is now step-00000020.npz.unreadable")
    assert told[1] == "going on from step 10: 10 steps are lost"
    store.save(15, arrays(15))
    assert files(store) == [
        "step-00000010.npz",
        "step-00000015.npz",
        "step-00000020.npz.unreadable",
    ]
    assert (store.folder / "step-00000020.npz.unreadable").read_bytes() == content


def test_a_second_damaged_checkpoint_replaces_no_first(store):
    for damage in (cut_short, emptied):
        for step in (10, 20):
            store.save(step, arrays(step))
        damage(store.folder / "step-00000020.npz")
        assert store.restore()[0] == 10
    first, second = (
        store.folder / f"step-00000020.npz.unreadable{n}" for n in ("", "-2")
    )
    assert len(first.read_bytes()) == 200 and not second.read_bytes()


def with_bits_changed(content, bits):
    changed = bytearray(content)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def content_of(write, *args):
    with tempfile.TemporaryDirectory() as folder:
        store = checkpoints.Checkpoints(folder)
        getattr(store, write)(*args)
        (path,) = store.folder.iterdir()
        return path.read_bytes()


def same(a, b):
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name])
        for name in a
    )


CONTENTS = {step: content_of("save", step, arrays(step)) for step in (10, 20)}
BITS = st.lists(
    st.integers(0, 8 * len(CONTENTS[20]) - 1), min_size=1, max_size=3, unique=True
)


@hypothesis.settings(max_examples=100)
@hypothesis.given(bits=BITS)
def test_changed_bits_cost_the_last_interval_and_change_no_value(bits):
    found = restored(with_bits_changed(CONTENTS[20], bits))
    assert found[0] == 10 and same(found[1], arrays(10))


@hypothesis.settings(max_examples=50)
@hypothesis.given(size=st.integers(0, len(CONTENTS[20]) - 1))
def test_a_checkpoint_of_any_length_is_the_whole_one_or_costs_the_last_interval(size):
    step, values = restored(CONTENTS[20][:size])
    assert same(values, arrays(step))


@hypothesis.settings(max_examples=60)
@hypothesis.given(bits=BITS)
def test_where_no_checkpoint_is_whole_nothing_is_begun_anew(bits):
    with refuses("step-00000020.npz", workdir.WorkdirError):
        restored(with_bits_changed(CONTENTS[20], bits), CONTENTS[10][:-100])


def restored(newest, former=CONTENTS[10]):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "step-00000010.npz").write_bytes(former)
        pathlib.Path(folder, "step-00000020.npz").write_bytes(newest)
        return checkpoints.Checkpoints(folder, announce=lambda line: None).restore()


def of_an_earlier_version(step):
    file = io.BytesIO()
    np.savez(file, **arrays(step))
    return file.getvalue()


@hypothesis.settings(max_examples=60)
@hypothesis.given(bits=BITS)
def test_whatever_reading_a_checkpoint_of_an_earlier_version_raises_is_damage(bits):
    """Its checksums are those of the arrays alone."""
    content = of_an_earlier_version(20)
    assert same(restored(content)[1], arrays(20))
    restored(with_bits_changed(content, [bit % (8 * len(content)) for bit in bits]))


def test_an_array_that_no_memory_holds_is_damage():
    content = of_an_earlier_version(20).replace(b"(64, 3)", b"(9e9,)")
    assert restored(content)[0] == 10


def forever(path):
    """A file that no one can open, not even root: what it holds is not known."""
    path.unlink()
    os.symlink(path.name, path)


def test_a_failure_of_the_file_system_is_no_damage(store, told):
    for step in (10, 20):
        store.save(step, arrays(step))
    forever(store.folder / "step-00000020.npz")
    with refuses(r"step-00000020\.npz cannot be read, .*symbol", workdir.WorkdirError):
        store.restore()
    assert files(store) == ["step-00000010.npz", "step-00000020.npz"] and not told


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_folder_that_cannot_be_read_is_not_an_empty_one(store, monkeypatch, code):
    store.save(10, arrays(10))

    def fail(path):
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(os, "listdir", fail)
    with refuses(str(store.folder), OSError) as error:
        store.restore()
    assert error.value.errno == code


def test_what_cannot_be_opened_is_not_removed(store):
    """Such as that of another owner."""
    store.save(10, arrays(10))
    forever(store.folder / "step-00000010.npz")
    for step in (20, 30, 40):
        store.save(step, arrays(step))
    assert files(store) == [f"step-000000{step}.npz" for step in (10, 30, 40)]


def test_a_later_checkpoint_that_is_not_ours_costs_none_of_ours(store):
    for step in (80, 90):
        (store.folder / f"step-000000{step}.npz").write_text("mine")
    for step in (10, 20, 30):
        assert store.save(step, arrays(step))
    assert store.steps() == [20, 30, 80, 90]


def test_a_folder_is_no_checkpoint(store):
    store.save(10, arrays(10))
    (store.folder / "step-00000099.npz").mkdir()
    (store.folder / ".step-00000099.npz.part").mkdir()
    assert checkpoints.Checkpoints(store.folder).restore()[0] == 10


def test_checkpoints_that_no_folder_can_be_made_for(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    with refuses(f"{tmp_path}/checkpoints .*File exists", workdir.WorkdirError):
        checkpoints.Checkpoints(tmp_path / "checkpoints")


def test_what_a_killed_process_was_writing_is_removed(store):
    (store.folder / ".step-00000030.npz.part").write_bytes(b"half of it")
    checkpoints.Checkpoints(store.folder)
    assert not files(store)


@pytest.mark.parametrize(
    "name", ["old", "00000009-copy", "²", "0000000٣", "9", "-0000009"]
)
def test_other_files_are_no_checkpoints(store, name):
    store.save(3, arrays(3))
    other = store.folder / f"step-{name}.npz"
    other.write_text("mine")
    assert store.restore()[0] == 3
    for step in (4, 5):
        store.save(step, arrays(step))
    assert store.steps() == [4, 5] and other.read_text() == "mine"


def test_nothing_but_damaged_checkpoints(store, told):
    store.save(10, arrays(10))
    cut_short(store.folder / "step-00000010.npz")
    before = (store.folder / "step-00000010.npz").read_bytes()
    for _ in range(2):
        with refuses(r"no checkpoint .*step-00000010\.npz", workdir.WorkdirError):
            store.restore()
    assert files(store) == ["step-00000010.npz"] and not told
    assert (store.folder / "step-00000010.npz").read_bytes() == before
    os.rename(
        *(store.folder / f"step-00000010.npz{end}" for end in ("", ".unreadable"))
    )
    with refuses(r"step-00000010\.npz\.unreadable", workdir.WorkdirError):
        store.restore()


def test_a_damaged_checkpoint_that_cannot_be_renamed_is_not_overwritten(
    store, monkeypatch
):
    for step in (10, 20):
        store.save(step, arrays(step))
    cut_short(store.folder / "step-00000020.npz")

    def fail(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", fail)
    with refuses(r"step-00000020\.npz .*Read-only", workdir.WorkdirError):
        store.restore()


CODES = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.EACCES]


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(code, os.strerror(code)) for code in CODES),
        tf.errors.PermissionDeniedError(None, None, "no access"),
    ],
    ids=repr,
)
def test_what_cannot_be_written_leaves_the_earlier_ones(
    store, told, monkeypatch, error
):
    store.save(10, arrays(10))
    before = files(store)

    def fail(file, **_):
        file.write(b"half of it")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", fail)
        assert not store.save(20, arrays(20))
    assert files(store) == before
    assert "step-00000020.npz not written" in told[0]
    assert told[0].startswith("the disk is full: ") == ("No space" in str(error))
    assert (
        told[1]
        == "the checkpoint of step 20 is lost; the last checkpoint is that of step 10"
    )
    assert store.save(30, arrays(30))


def test_no_checkpoint_is_written_before_the_best_weights_of_its_past(
    store, told, monkeypatch
):
    store.save(10, arrays(10))
    best, write = store.folder / checkpoints.BEST, np.savez

    def full(file, **arrays):
        if "epoch" in arrays:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        assert not store.save_best(arrays(20), 2)
        assert not store.save(20, arrays(20))
        store.start_saving(20, arrays(20))
        store.wait()
    assert store.steps() == [10] and not best.exists()
    assert "the checkpoint of step 20 waits for the best weights" in told[2]
    assert told[2].endswith("the last checkpoint is that of step 10")
    assert store.save(30, arrays(30))
    assert store.unwritten_best is None
    assert checkpoints.load_arrays(best)["epoch"] == 2


def test_one_after_the_other_is_written_beside_what_goes_on(store, monkeypatch):
    write, go_on = np.savez, threading.Event()

    def waiting(file, **arrays):
        assert go_on.wait(60)
        write(file, **arrays)

    monkeypatch.setattr(np, "savez", waiting)
    store.start_saving(10, arrays(10))
    assert not store.steps()
    go_on.set()
    store.start_saving(20, arrays(20))
    assert 10 in store.steps()
    store.close()
    assert store.steps() == [10, 20]
    assert store.saved == 20


def test_an_error_of_the_thread_is_not_lost(store, monkeypatch):
    def wrong(file, **_):
        raise TypeError("a mistake")

    monkeypatch.setattr(np, "savez", wrong)
    store.start_saving(10, arrays(10))
    with refuses("a mistake", TypeError):
        store.close()
    assert not files(store)


def test_the_best_weights(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with refuses(r"no trained weights yet: .*best\.npz", workdir.WorkdirError):
        checkpoints.load_best(tmp_path, model)
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    weights = [v.numpy() for v in model.variables]
    store.save_best(variables.arrays(variables.model_variables(model)))
    model.set_weights([w + 1 for w in weights])
    checkpoints.load_best(tmp_path, model)
    np.testing.assert_array_equal(model.variables[0].numpy(), weights[0])
    cut_short(store.folder / checkpoints.BEST)
    with refuses("cannot be read", workdir.WorkdirError):
        checkpoints.load_best(tmp_path, model)


def test_the_best_weights_say_their_epoch(store, told):
    assert store.best_epoch() == 0
    store.save_best(arrays(1), 3)
    assert store.best_epoch() == 3
    (store.folder / checkpoints.BEST).write_bytes(of_an_earlier_version(1))
    assert store.best_epoch(unsaid=7) == 7
    cut_short(store.folder / checkpoints.BEST)
    assert not told
    assert store.best_epoch(unsaid=7) == 0
    assert "best.npz cannot be read" in told[0]
    assert files(store) == ["best.npz.unreadable"]
    forever_best = store.folder / checkpoints.BEST
    forever_best.write_text("")
    forever(forever_best)
    with refuses("best.npz cannot be read", workdir.WorkdirError):
        store.best_epoch()


def test_a_whole_file_that_finds_no_memory_is_not_damaged(tmp_path, monkeypatch):
    path = tmp_path / "arrays.npz"
    with path.open("wb") as file:
        checkpoints._write_sealed(file, {"x": np.zeros(3)})
    assert checkpoints.load_arrays(path).keys() == {"x"}

    def no_memory(*given, **named):
        raise MemoryError

    monkeypatch.setattr(checkpoints.np, "load", no_memory)
    with pytest.raises(MemoryError):
        checkpoints.load_arrays(path)
