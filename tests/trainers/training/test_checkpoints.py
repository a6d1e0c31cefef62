"""Checkpoints: whole or not there, and none lost that need not be."""

import errno
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainers.training import checkpoints, workdir


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
    assert store.restore()[0] == 10
    assert "step-00000020.npz cannot be read" in told[0]
    assert told[1] == "going on from step 10: 10 steps are lost"
    store.save(15, arrays(15))
    assert files(store) == ["step-00000010.npz", "step-00000015.npz"]


def test_what_a_killed_process_was_writing_is_removed(store):
    (store.folder / ".step-00000030.npz.part").write_bytes(b"half of it")
    checkpoints.Checkpoints(store.folder)
    assert not files(store)


@pytest.mark.parametrize("name", ["old", "00000009-copy", "²", "0000000٣", "9", "-0000009"])
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
    assert store.restore() is None
    assert told[-1] == "beginning anew: no checkpoint can be read, 10 steps are lost"


def test_a_full_disk_leaves_the_earlier_ones(store, told, monkeypatch):
    store.save(10, arrays(10))
    before = files(store)

    def full(file, **_):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        assert not store.save(20, arrays(20))
        assert not store.save_best(arrays(20))
    assert files(store) == before
    assert told[0].startswith("the disk is full: ")
    assert told[1] == "the checkpoint of step 20 is lost; the last checkpoint is that of step 10"
    assert store.save(30, arrays(30))


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
    with pytest.raises(TypeError, match="a mistake"):
        store.close()
    assert not files(store)


def test_variables_come_back_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 2))
    saved = [keras.Variable(values, dtype=dtype) for dtype in ("float32", "float64", "bfloat16")]
    saved.append(keras.random.SeedGenerator(7).state)
    store = checkpoints.Checkpoints(tmp_path)
    store.save(1, checkpoints.variable_arrays("model", saved))
    _, restored = store.restore()
    loaded = [keras.Variable(tf.zeros_like(v), dtype=v.dtype) for v in saved]
    checkpoints.assign_variables("model", loaded, restored)
    for a, b in zip(saved, loaded, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_weights_of_another_model_are_refused():
    variable = keras.Variable(np.zeros(3))
    with pytest.raises(ValueError, match=r"model/0 has shape \(2,\) .* expected \(3,\)"):
        checkpoints.assign_variables("model", [variable], {"model/0": np.zeros(2)})
    with pytest.raises(ValueError, match="2 arrays in the checkpoint, 1 variables"):
        two = {"model/0": np.zeros(3), "model/1": np.zeros(3)}
        checkpoints.assign_variables("model", [variable], two)


def test_the_best_weights(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(workdir.WorkdirError, match=r"no trained weights yet: .*best\.npz"):
        checkpoints.load_best(tmp_path, model)
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    weights = [v.numpy() for v in model.variables]
    store.save_best(checkpoints.variable_arrays("model", model.variables))
    model.set_weights([w + 1 for w in weights])
    checkpoints.load_best(tmp_path, model)
    np.testing.assert_array_equal(model.variables[0].numpy(), weights[0])
    cut_short(store.folder / checkpoints.BEST)
    with pytest.raises(workdir.WorkdirError, match="cannot be read"):
        checkpoints.load_best(tmp_path, model)
