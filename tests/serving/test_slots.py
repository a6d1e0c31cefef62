"""Rows that share slots have the answers that each has alone, however they come and go."""

import threading
import time

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.serving import runtime
from keras_trellis.serving.failures import Failures
from keras_trellis.serving.rows import Outcome, Row
from keras_trellis.serving.slots import Slots
from keras_trellis.serving.worker import ClosedError, FullError, Worker


@pytest.fixture(scope="module", params=["tied", "stack"])
def model(request, exports):
    return runtime.load(exports[request.param])


@pytest.fixture(scope="module")
def tied(exports):
    return runtime.load(exports["tied"])


SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.0]),
        "top_k": st.sampled_from([0, 1, 3]),
        "top_p": st.sampled_from([0.6, 1.0]),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "max_length": st.integers(1, 24),
        "alternatives": st.sampled_from([0, 0, 2]),
        "stop_ids": st.lists(st.integers(-1, 3), max_size=2),
        "stop": st.lists(st.sampled_from(["a", "b c", "d\n", "a a"]), max_size=2),
        "forbidden_ids": st.sampled_from([[-1], [-2], [0, 3]]),
    }
)
# When a row comes, in steps after the one before; when it is cancelled, if it is.
PLAN = st.fixed_dictionaries(
    {
        "length": st.sampled_from([1, 2, 4, 5, 17, 18, 40, 70]),
        "kind": st.sampled_from(["write", "write", "score", "next", "both"]),
        "settings": SETTINGS,
        "after": st.integers(0, 6),
        "cancelled": st.none() | st.integers(0, 20),
    }
)


def make(model, plan, number):
    random = np.random.default_rng(number)
    ids = random.integers(model.vocabulary_size, size=plan["length"]).astype(np.int32)
    settings, kind = plan["settings"], plan["kind"]
    (how,) = model.vocabulary.settings(1, **settings)
    return Row(
        ids,
        model.tokenizer,
        how if kind in ("write", "both") else None,
        scored=kind in ("score", "both"),
        alternatives=settings["alternatives"],
        count=3 if kind == "next" else 0,
        streams=bool(number % 2),
    )


def check(model, row, plan):
    """Asserts that a row has its answer of the runtime, all of it or the beginning."""
    ids, count, settings = row.ids[None], [len(row.ids)], plan["settings"]
    cancelled = row.outcome is Outcome.CANCELLED
    if plan["kind"] in ("score", "both") and not cancelled:
        expected = model.score_ids(ids, count, row.alternatives)
        compared = row.all_compared()
        assert_allclose(-compared.log_probs, expected.nll[0, 1:], atol=1e-5)
        assert_array_equal(compared.ranks, expected.ranks[0, 1:])
        alternatives = expected.likeliest_ids[0, 1:]
        assert_array_equal(compared.likeliest_ids, alternatives)
    if plan["kind"] == "next" and not cancelled:
        log_probs = model.prefill(ids, count).log_probs[0]
        assert row.after[0] == np.argsort(-log_probs, kind="stable")[:3].tolist()
    if row.continued is None:
        return
    expected = model.generate(ids, count, model.empty_cache(1), **settings)
    written = [token.token_id for token in row.written]
    assert written == expected.ids[0, : len(written)].tolist()
    assert_allclose(
        [token.log_prob for token in row.written],
        expected.log_probs[0, : len(written)],
        atol=1e-5,
    )
    if cancelled:
        assert expected.text[0].startswith(row.text)
        return
    assert len(written) == expected.lengths[0] and row.text == expected.text[0]
    assert (row.outcome is Outcome.STOP) == expected.stopped[0]
    alternatives = [list(token.likeliest_ids) for token in row.written]
    assert alternatives == expected.likeliest_ids[0, : len(written)].tolist()


@hypothesis.given(plans=st.lists(PLAN, min_size=1, max_size=12), size=st.integers(1, 5))
@hypothesis.settings(max_examples=25)
def test_every_answer_is_the_single_one(model, plans, size):
    slots, rows, news = Slots(model, size), [], []
    comes = np.cumsum([plan["after"] for plan in plans])
    waiting = [make(model, plan, number) for number, plan in enumerate(plans)]
    everything, step = list(waiting), 0
    while len(news) < len(everything):
        ready = [row for row in waiting if comes[everything.index(row)] <= step][
            : slots.free
        ]
        waiting = [row for row in waiting if row not in ready]
        slots.add(ready)
        rows += ready
        for row in rows:
            at = plans[everything.index(row)]["cancelled"]
            row.cancelled = row.cancelled or (at is not None and step >= at)
        news += [row for row in slots.step() if row.outcome]
        step += 1
        assert step < 5_000, "rows that never end"
    assert slots.free == size
    assert {*map(id, news)} == {*map(id, everything)}  # each one is told once
    for row, plan in zip(everything, plans, strict=True):
        check(model, row, plan)


class Told:
    """An observer, and what is told of news."""

    def __init__(self):
        self.news, self.rows, self.ends = threading.Event(), [], []
        self.failures = []
        self.tokens = np.zeros(2, int)

    def report(self, rows):
        self.rows += rows
        self.news.set()

    def step(self, seconds, rows, read, written):
        assert seconds >= 0 and rows > 0
        self.tokens += np.array([read, written])

    def ended(self, row):
        self.ends.append(row)

    def failed(self, error):
        self.failures.append(error)

    def wait_for(self, rows):
        end = time.monotonic() + 30
        while not all(row.outcome for row in rows):
            assert time.monotonic() < end, "rows that never end"
            self.news.wait(0.05)
            self.news.clear()


def endless(model, deadline=np.inf):
    """A row that writes until it is made to end."""
    (how,) = model.vocabulary.settings(1, max_length=65_536, seed=1)
    row = Row(np.array([1], np.int32), model.tokenizer, how)
    row.deadline = deadline
    return row


@pytest.fixture
def worker(tied):
    """A worker of two slots before which one row may wait, and what it tells."""
    told = Told()
    made = Worker(Slots(tied, 2), 1, told.report, told)
    yield made, told
    made.give_up()
    made.join(30)
    assert not made.is_alive()


def test_a_full_queue_takes_all_rows_of_a_request_or_none(tied, worker):
    made, told = worker
    rows = [endless(tied) for _ in range(3)]
    with pytest.raises(FullError, match="0 rows wait"):
        made.submit([*rows, endless(tied)])
    made.submit(rows)
    with pytest.raises(FullError):
        made.submit([endless(tied)])
    for row in rows:
        row.cancelled = True
    told.wait_for(rows)
    assert {row.outcome for row in rows} == {Outcome.CANCELLED}
    assert told.ends == told.rows and len(told.ends) == 3
    made.submit([endless(tied)])


def test_tokens_are_counted_as_they_are_read_and_written(tied, worker):
    made, told = worker
    (how,) = tied.vocabulary.settings(1, max_length=7, seed=1)
    rows = [Row(np.arange(9, dtype=np.int32), tied.tokenizer, how)]
    rows += [Row(np.resize(np.arange(9, dtype=np.int32), 900), tied.tokenizer, count=2)]
    made.submit(rows)
    told.wait_for(rows)
    made.close()
    made.join(30)
    assert told.tokens.tolist() == [909, 7]
    assert (
        told.tokens.tolist()
        == np.sum([(r.place, len(r.written)) for r in rows], 0).tolist()
    )


def test_a_deadline_ends_rows_at_work_and_rows_that_wait(tied, worker):
    made, told = worker
    deadline = time.monotonic() + 0.2
    rows = [endless(tied, deadline=deadline) for _ in range(3)]
    made.submit(rows)
    told.wait_for(rows)
    assert {row.outcome for row in rows} == {Outcome.LATE}
    assert [len(row.written) > 0 for row in rows] == [True, True, False]


def test_a_closed_worker_ends_its_rows_and_takes_no_more(tied, worker):
    made, told = worker
    row = Row(np.arange(9, dtype=np.int32), tied.tokenizer, count=2)
    made.submit([row])
    made.close()
    with pytest.raises(ClosedError):
        made.submit([row])
    made.join(30)
    assert row.outcome is Outcome.READ and not made.is_alive()


def failing(error):
    def step(ids, cache):
        raise error

    return step


def test_a_step_that_fails_ends_its_rows_and_no_others(tied, worker, monkeypatch):
    """The rows at work fail; the one that waits is read, and so is the next."""
    made, told = worker
    rows = [endless(tied), endless(tied)]
    waits = Row(np.arange(9, dtype=np.int32), tied.tokenizer, count=2)
    made.submit([*rows, waits])
    told.news.wait(0.1)
    step = tied.reader.step

    def fail_once(ids, cache):
        monkeypatch.setattr(tied.reader, "step", step)
        raise MemoryError

    monkeypatch.setattr(tied.reader, "step", fail_once)
    told.wait_for([*rows, waits])
    assert {row.outcome for row in rows} == {Outcome.FAILED}
    assert waits.outcome is Outcome.READ
    assert len(told.failures) == 1 and made.problem() is None
    assert {*told.ends} == {*rows, waits} and len(told.ends) == 3
    after = Row(np.arange(9, dtype=np.int32), tied.tokenizer, count=2)
    made.submit([after])
    told.wait_for([after])
    assert after.after == waits.after


def test_a_model_that_does_not_work_is_tried_until_it_does(tied, worker, monkeypatch):
    monkeypatch.setattr("keras_trellis.serving.worker._PAUSE", 0.01)
    made, told = worker
    late = time.monotonic() + 0.5
    rows = [endless(tied), endless(tied), endless(tied, deadline=late)]
    with monkeypatch.context() as patch:
        patch.setattr(tied.reader, "step", failing(RuntimeError("cannot\nmultiply")))
        made.submit(rows)
        told.wait_for(rows)
        outcomes = [row.outcome for row in rows]
        assert outcomes == [Outcome.FAILED, Outcome.FAILED, Outcome.LATE]
        assert "in a row have failed: RuntimeError: cannot" in made.problem()
        assert "multiply" not in made.problem()
        with pytest.raises(ClosedError, match="steps in a row have failed"):
            made.submit([endless(tied)])
    end = time.monotonic() + 30
    while made.problem():
        assert time.monotonic() < end
        time.sleep(0.01)
    row = Row(np.arange(9, dtype=np.int32), tied.tokenizer, count=2)
    made.submit([row])
    told.wait_for([row])
    assert row.outcome is Outcome.READ


def test_rows_that_find_no_memory_for_a_slot_fail(tied, worker, monkeypatch):
    made, told = worker
    row = Row(np.arange(9, dtype=np.int32), tied.tokenizer, count=2)
    empty = tied.empty_cache

    def fail_once(rows):
        monkeypatch.setattr(tied, "empty_cache", empty)
        raise MemoryError

    monkeypatch.setattr(tied, "empty_cache", fail_once)
    made.submit([row])
    told.wait_for([row])
    assert row.outcome is Outcome.FAILED and told.ends == [row]


def test_a_model_that_fails_can_be_closed(tied, monkeypatch):
    monkeypatch.setattr("keras_trellis.serving.worker._PAUSE", 30)
    monkeypatch.setattr(tied.reader, "step", failing(MemoryError()))
    told = Told()
    made = Worker(Slots(tied, 1), 1, told.report, told)
    made.submit([endless(tied), endless(tied)])
    while not made.problem():
        time.sleep(0.01)
    made.give_up()
    made.join(20)
    assert not made.is_alive() and made.problem() == "the worker has ended"


def test_a_failure_is_counted_and_traced_where_it_first_happens():
    lines = []
    failures = Failures(lines.append)

    def fail(error):
        raise error

    for error in (MemoryError(), MemoryError(), ValueError("of\ntwo lines")):
        try:
            fail(error)
        except Exception as raised:
            failures.add("step", "a step has failed", raised)
    assert failures.count("step") == 3 and failures.count("poll") == 0
    told = [line for line in lines if not line.startswith("Traceback")]
    assert told == ["a step has failed: MemoryError"] * 2 + [
        "a step has failed: ValueError: of"
    ]
    assert sum("in fail" in line for line in lines) == 2
