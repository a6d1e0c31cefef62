"""Ring buffers of delay lines: what is read is what was pushed so many steps before."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from keras_trellis.core import lines
from keras_trellis.formats.rings import Line, Rings, Table, new
from tests.refusals import refuses

ROWS = 3


@st.composite
def drawn_lines(draw):
    """Some lines, for chunks of the same number of steps."""
    steps = draw(st.integers(1, 5))
    made = []
    for number in range(draw(st.integers(1, 4))):
        delays = draw(st.sets(st.integers(1, 9), min_size=1))
        shape = draw(st.sampled_from([(), (2,), (3, 1)]))
        initial = draw(st.none() | st.integers(1, 3))
        declared = lines.Line(shape, tuple(sorted(delays)), "float32")
        made.append(
            Line(
                name=f"line_{number}",
                shape=shape,
                dtype=draw(st.sampled_from(["float32", "int32"])),
                length=declared.length,
                places=declared.places(steps),
                pushed=steps,
                initial=None if initial is None else np.full(shape, initial).tolist(),
            )
        )
    return made


def parts(table, pool, sizes):
    """The entries of each line of a pool, along their axis."""
    ends = np.cumsum([sizes(table.lines[number]) for number in pool.lines])
    return zip(pool.lines, np.split(np.arange(ends[-1]), ends[:-1]), strict=True)


@hypothesis.given(
    made=drawn_lines(),
    turns=st.lists(
        st.tuples(
            st.sets(st.integers(0, ROWS - 1), min_size=1), st.booleans() | st.just(True)
        ),
        min_size=1,
        max_size=8,
    ),
    seed=st.integers(0, 99),
)
def test_rows_read_what_they_pushed(made, turns, seed):
    """Some rows go on at each turn, or begin anew."""
    rng = np.random.default_rng(seed)
    table = Table.from_json(Table(made).to_json())
    rings = Rings(table, ROWS)
    begun = [0 if line.initial is None else np.array(line.initial) for line in made]
    history = [[[] for _ in made] for _ in range(ROWS)]
    for chosen, goes_on in turns:
        rows = sorted(chosen)
        if not goes_on:
            rings.reset(rows)
            for row in rows:
                history[row] = [[] for _ in made]
            continue
        read = rings.read(rows)
        outputs = {}
        for pool in table.pools:
            for number, where in parts(table, pool, lambda line: len(line.places)):
                line = table.lines[number]
                for place, row in enumerate(rows):
                    past = history[row][number]
                    for entry, back in zip(where, line.places, strict=True):
                        known = len(past) >= back
                        expected = past[-back] if known else begun[number]
                        actual = read[pool.name][place, entry]
                        np.testing.assert_array_equal(actual, expected)
            kept = sum(table.lines[number].kept for number in pool.lines)
            outputs[new(pool.name)] = np.zeros(
                [len(rows), kept, *pool.shape], pool.dtype
            )
        for pool in table.pools:
            for number, where in parts(table, pool, lambda line: line.kept):
                line = table.lines[number]
                for place, row in enumerate(rows):
                    entries = rng.integers(10, 99, [line.pushed, *line.shape])
                    history[row][number] += list(entries)
                    outputs[new(pool.name)][place, where] = entries[-line.kept :]
        rings.push(outputs, rows)


LINES = [Line("a", (2,), "float32", 3, (3,), 1), Line("b", (), "int32", 2, (1,), 1)]
TEXT = Table(LINES).to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        TEXT.replace('"format": 1', '"format": 2'),
        '{"lines": 1}',
        TEXT.replace('"length": 3', '"length": 7'),
    ],
)
def test_what_is_no_table_is_refused(text):
    with refuses("a table of delay lines of format 1"):
        Table.from_json(text)


def test_entries_of_another_export_are_refused():
    rings = Rings(Table.from_json(TEXT), ROWS)
    entries = {
        new("lines_0"): np.zeros([ROWS, 1, 2]),
        new("lines_1"): np.ones([ROWS, 1]),
    }
    for wrong in (
        {new("lines_0"): entries[new("lines_0")]},
        entries | {new("lines_0"): np.ones([1, 1, 2])},
        entries | {new("lines_1"): np.ones([ROWS, 2])},
    ):
        with refuses("`entries` must have 'new_lines_[01]' of"):
            rings.push(wrong)
    rings.push(entries)
