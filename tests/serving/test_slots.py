"""Rows that share slots have the answers that each has alone, however they come and go."""

import threading
import time

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from keras_trellis.serving import runtime
from keras_trellis.serving.rows import Asked, Outcome, Row, continuations
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
    (how,) = continuations(model.vocabulary.settings(1, **settings))
    asked = Asked(
        ids,
        how if kind in ("write", "both") else None,
        scored=kind in ("score", "both"),
        alternatives=settings["alternatives"],
        after=3 if kind == "next" else 0,
    )
    return Row(asked, model.tokenizer, streams=bool(number % 2))


def check(model, row, settings):
    """Asserts that a row has its answer of the runtime, all of it or the beginning."""
    ids, count = row.asked.ids[None], [len(row.asked.ids)]
    cancelled = row.outcome is Outcome.CANCELLED
    if row.asked.scored and not cancelled:
        expected = model.score_ids(ids, count, row.asked.alternatives)
        compared = row.all_compared()
        np.testing.assert_allclose(-compared.log_probs, expected.nll[0, 1:], atol=1e-5)
        np.testing.assert_array_equal(compared.ranks, expected.ranks[0, 1:])
        alternatives = expected.likeliest_ids[0, 1:]
        np.testing.assert_array_equal(compared.likeliest_ids, alternatives)
    if row.asked.after and not cancelled:
        log_probs = model.prefill(ids, count).log_probs[0]
        assert row.after[0] == np.argsort(-log_probs, kind="stable")[:3].tolist()
    if row.asked.continued is None:
        return
    expected = model.generate(ids, count, model.empty_cache(1), **settings)
    written = [token.token_id for token in row.written]
    assert written == expected.ids[0, : len(written)].tolist()
    np.testing.assert_allclose(
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
        check(model, row, plan["settings"])


class Told:
    """An observer, and what is told of news."""

    def __init__(self):
        self.news, self.rows, self.ends = threading.Event(), [], []

    def report(self, rows):
        self.rows += rows
        self.news.set()

    def step(self, seconds, rows):
        assert seconds >= 0 and rows > 0

    def ended(self, row):
        self.ends.append(row)

    def wait_for(self, rows):
        end = time.monotonic() + 30
        while not all(row.outcome for row in rows):
            assert time.monotonic() < end, "rows that never end"
            self.news.wait(0.05)
            self.news.clear()


def endless(model, **asked):
    """A row that writes until it is made to end."""
    settings = model.vocabulary.settings(
        1,
        max_length=65_536,
        seed=1,
    )
    (how,) = continuations(settings)
    return Row(Asked(np.array([1], np.int32), how, **asked), model.tokenizer)


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
    row = Row(Asked(np.arange(9, dtype=np.int32), after=2), tied.tokenizer)
    made.submit([row])
    made.close()
    with pytest.raises(ClosedError):
        made.submit([row])
    made.join(30)
    assert row.outcome is Outcome.READ and not made.is_alive()


def test_a_worker_that_fails_says_so(tied, worker, monkeypatch):
    made, told = worker
    rows = [endless(tied) for _ in range(3)]
    made.submit(rows)
    told.news.wait(0.1)

    def fail(ids, cache):
        raise MemoryError("no more")

    monkeypatch.setattr(tied.reader, "step", fail)
    told.wait_for(rows)
    assert {row.outcome for row in rows} == {Outcome.FAILED}
    assert isinstance(made.error, MemoryError) and not made.is_alive()
    with pytest.raises(ClosedError, match="has ended"):
        made.submit([endless(tied)])
