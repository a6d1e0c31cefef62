"""A journal keeps every whole line, whatever happens to its last one."""

import errno
import os

import hypothesis
import pytest
from hypothesis import strategies as st

from trainers.studies import journal
from trainers.studies.places import Place

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
ENTRIES = st.lists(
    st.dictionaries(st.text().filter(lambda name: name != "checksum"), VALUES),
    min_size=1,
    max_size=4,
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "journal.jsonl"


@hypothesis.settings(
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(ENTRIES, st.data())
def test_of_any_beginning_the_whole_lines_count_and_grow(file, entries, data):
    file.write_bytes(b"")
    for entry in entries:
        journal.append(file, entry)
    content, kept = file.read_bytes(), journal.read(file)
    assert content == journal.text(entries) and len(kept) == len(entries)
    size = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:size])
    whole = content[:size].count(b"\n")
    assert journal.read(file) == kept[:whole]
    journal.append(file, {"last": 1})
    assert journal.read(file) == [*kept[:whole], {"last": 1}]


@hypothesis.settings(
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(ENTRIES, st.data())
def test_a_flipped_bit_is_named_with_its_line_or_costs_the_last_one(
    file, entries, data
):
    content = journal.text(entries)
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    file.write_bytes(changed)
    line = content[: bit // 8].count(b"\n") + 1
    if bit // 8 == len(content) - 1:  # the end of the last line
        assert len(journal.read(file)) == len(entries) - 1
        return
    with pytest.raises(journal.DamagedError, match=f"in line {line}$"):
        journal.read(file)


def test_where_no_line_fits_the_file_is_named_and_stays_as_it_is(file, monkeypatch):
    journal.append(file, {"trial": 0})
    before = file.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{file}'"):
        journal.append(file, {"trial": 1})
    assert file.read_bytes() == before


def test_no_file_is_no_entry(file):
    assert journal.read(file) == [] and not file.exists()


def test_a_trial_whose_first_line_was_not_written_has_not_begun(tmp_path):
    place = Place(tmp_path / "study")
    with place.locked(), place.hold(0):
        assert not place.has_trials()
    place.trial(0).mkdir()
    assert place.has_trials()
