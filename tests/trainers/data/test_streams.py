"""Tests of streams and windows."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from trainers.data import datasets, streams


@st.composite
def _windows(draw):
    window = draw(st.integers(1, 12))
    discard = draw(st.integers(0, window - 1))
    return streams.Windows(draw(st.integers(discard + 2, 60)), window, discard)


@given(length=st.integers(2, 50), batch_size=st.integers(1, 10))
def test_streams_are_contiguous_views(length, batch_size):
    assume(length // batch_size >= 2)
    ids = np.arange(length, dtype=np.int32)
    cut = streams.contiguous_streams(ids, batch_size)
    assert cut.shape == (batch_size, length // batch_size)
    assert np.shares_memory(cut, ids)
    assert_array_equal(cut.ravel(), ids[: cut.size])


@given(windows=_windows())
def test_every_target_is_scored_once(windows):
    scored = np.zeros(windows.length, int)
    for index in range(windows.count):
        start, stop = windows.bounds(index)
        scored[start + 1 + windows.discard : stop + 1] += 1
    assert_array_equal(scored[: windows.discard + 1], 0)
    assert_array_equal(scored[windows.discard + 1 :], 1)


@given(windows=_windows())
def test_windows_are_those_of_a_plain_loop(windows):
    """The loop lays windows as the released word-level script does."""
    last = windows.length - 1
    expected = []
    start = 0
    while start < last:
        if last - start > windows.discard:
            expected.append((start, start + min(windows.window, last - start)))
        start += windows.window - windows.discard
    assert [windows.bounds(index) for index in range(windows.count)] == expected


@settings(max_examples=20)
@given(
    windows=_windows(),
    epochs=st.integers(1, 3),
    data=st.data(),
    offset=st.integers(0, 17),  # of ids before them in the file
    mapped=st.booleans(),
)
def test_dataset_goes_on_from_any_step(
    windows, epochs, data, offset, mapped, tmp_path_factory
):
    ids = np.arange(3 * windows.length, dtype=np.int32)
    if mapped:
        path = tmp_path_factory.mktemp("ids") / "file.ids"
        np.concatenate([np.full(offset, -1, np.int32), ids, ids[:1]]).tofile(path)
        ids = np.memmap(path, np.int32, "r")[offset:-1]
    cut = streams.contiguous_streams(ids, 3)
    total = epochs * windows.count
    first = data.draw(st.integers(0, total))
    dataset = datasets.windows_dataset(cut, windows, epochs=epochs, first_step=first)
    assert int(dataset.cardinality()) == total - first
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == total - first
    for step, (ids, targets) in enumerate(batches, first):
        start, stop = windows.bounds(step % windows.count)
        assert_array_equal(ids, cut[:, start:stop])
        assert_array_equal(targets, ids + 1)
        assert ids.dtype == targets.dtype == np.int32


def test_dataset_reads_a_memory_map_with_a_header(tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(20, dtype=np.int32))
    ids = np.load(tmp_path / "ids.npy", mmap_mode="r")
    cut = streams.contiguous_streams(ids, 1)
    dataset = datasets.windows_dataset(cut, streams.Windows(20, 8))
    assert [spec.shape.as_list() for spec in dataset.element_spec] == [[1, None]] * 2
    joined = np.concatenate([batch for batch, _ in dataset.as_numpy_iterator()], axis=1)
    assert_array_equal(joined, np.arange(19)[None])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_mapped_streams_are_not_read_as_a_whole(tmp_path, dtype):
    """Pages of the file are changed once the data set is there: the batches have the change."""
    np.arange(40_000, dtype=dtype).tofile(tmp_path / "file.ids")
    ids = np.memmap(tmp_path / "file.ids", dtype, "r")
    dataset = datasets.windows_dataset(
        ids[None], streams.Windows(40_000, 10_000), first_step=3
    )
    changed = np.memmap(tmp_path / "file.ids", dtype, "r+")
    changed[-1] = 7
    ((_, targets),) = dataset.as_numpy_iterator()
    assert targets[0, -1] == (7 if dtype is np.int32 else 39_999)


def _cuts(ids, windows, epochs, first=0):
    """The inputs of the batches of a run whose streams count up, as (start, stop)."""
    dataset = datasets.windows_dataset(
        ids[None], windows, epochs=epochs, first_step=first
    )
    assert int(dataset.cardinality()) == epochs * windows.count - first
    cuts = []
    for (inputs,), (targets,) in dataset.as_numpy_iterator():
        assert_array_equal(targets, inputs + 1)
        assert_array_equal(inputs, np.arange(inputs[0], targets[-1]))
        cuts.append((inputs[0], targets[-1]))
    return cuts


@settings(max_examples=15)
@given(
    length=st.integers(2, 400),
    window=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_drawn_windows_score_every_target_once_an_epoch(length, window, seed, data):
    ids = np.arange(length, dtype=np.int32)
    windows = streams.DrawnWindows(length, window, seed)
    cuts = _cuts(ids, windows, epochs=2)
    for epoch in (cuts[: windows.count], cuts[windows.count :]):
        starts, stops = zip(*epoch, strict=True)
        assert starts == (0, *stops[:-1])
        assert stops[-1] == length - 1
        lengths = np.subtract(stops, starts)
        assert sorted(lengths) == sorted(windows.lengths)
    first = data.draw(st.integers(0, 2 * windows.count))
    assert _cuts(ids, windows, epochs=2, first=first) == cuts[first:]


def test_drawn_windows_have_the_lengths_of_the_recipe():
    lengths = streams.DrawnWindows(500_000, 70, seed=1).lengths[:-1]
    usual = lengths[lengths > 52]
    assert lengths.min() >= 5
    assert_allclose(1 - len(usual) / len(lengths), 0.05, atol=0.01)
    # Cut to an integer, a draw loses half of one on average.
    assert_allclose(usual.mean(), 69.5, atol=0.3)
    assert_allclose(usual.std(), 5.0, atol=0.2)
    assert_allclose(lengths[lengths <= 52].mean(), 34.5, atol=1.0)


def test_epochs_cut_at_different_places():
    windows = streams.DrawnWindows(2_000, 50, seed=3)
    cuts = _cuts(np.arange(2_000, dtype=np.int32), windows, epochs=2)
    assert cuts[: windows.count] != cuts[windows.count :]
