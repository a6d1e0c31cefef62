"""The benchmark of the generation, at a tiny size."""

import importlib.util

import pytest

from benchmarks import authors, generate
from benchmarks.workers import Reading, Result

SETTING = generate.Setting(2, 5, 4, 11, 8, 6, 3, 1, None)


def continued(name, setting=SETTING):
    contender = generate.CONTENDERS[name][1](setting)
    contender.step()
    return contender.learn()["ids"]


@pytest.fixture(scope="module")
def ours():
    return continued("generate")


def test_token_by_token_is_the_same_text(ours):
    assert len(ours) == 2 and all(len(row) == 4 for row in ours)
    assert continued("step") == ours


def test_lstm_continues_each_prompt():
    ids = continued("lstm")
    assert len(ids) == 2 and all(0 <= each < 11 for row in ids for each in row)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_authors_window_is_the_receptive_field(monkeypatch):
    import torch

    windows = []

    class Successor:
        """The most probable token is the last one's successor."""

        def __call__(self, ids, hidden, decode):
            windows.append(ids.shape[1])
            return (None, torch.nn.functional.one_hot((ids + 1) % 11, 11).float(), None), None, None

        def init_hidden(self, batch_size):
            return None

        def decoder(self, features):
            return features

    monkeypatch.setattr(authors, "language_model", lambda *_: Successor())
    last = SETTING.prompts()[:, -1]
    expected = [[(each + step) % 11 for step in range(1, 5)] for each in last.tolist()]
    assert continued("authors") == expected
    assert windows == [4] * 4


def test_rows_count_tokens():
    results = {
        "generate": Result({"ids": [[1, 2, 3, 4]] * 2}, [Reading(2.0, None)]),
        "step": Result({"ids": [[1, 2, 3, 5]] * 2}, [Reading(4.0, None)]),
        "lstm": Result({"ids": [[0, 0, 0, 0]] * 2}, [Reading(1.0, None)]),
    }
    rows = [generate.row(name, SETTING, results) for name in results]
    assert [each["tokens_per_second"] for each in rows] == [4, 2, 8]
    assert [each["same"] for each in rows] == [1.0, 0.75, None]
    text = generate.table({"rows": rows, "setting": {"new_tokens": 4}})
    assert "| 2 | 5 | 2 | 1,000.00 | 2.00, **2.00**, 2.00 | 75.0% |" in text
