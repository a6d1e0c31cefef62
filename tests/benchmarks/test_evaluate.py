"""The benchmark of the evaluation, at a tiny size."""

import importlib.util

import numpy as np
import pytest
from absl import app

from benchmarks import authors, evaluate, report
from benchmarks.workers import Reading, Result
from trainers.data import streams

IDS = np.random.default_rng(0).integers(7, size=41, dtype=np.int32)
SETTING = evaluate.Setting(
    *(IDS, 7, 6, 4, 3),
    window=8,
    horizon=3,
    batch_size=2,
    check=10,
    threads=1,
    reference_dir=None,
)


@pytest.fixture(scope="module")
def ours():
    """Each protocol's contender after a step."""
    found = {
        name: evaluate.CONTENDERS[name][1](SETTING) for name in ("exact", "trellisnet")
    }
    for contender in found.values():
        contender.step()
    return {name: contender.facts for name, contender in found.items()}


def test_protocols_score_their_tokens(ours):
    assert ours["exact"]["tokens"] == len(IDS) - 1
    windows = streams.Windows(20, SETTING.window, SETTING.horizon)
    assert ours["trellisnet"]["tokens"] == 2 * sum(
        stop - start - windows.discard
        for start, stop in map(windows.bounds, range(windows.count))
    )
    assert len(ours["exact"]["first"]) == 10


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
def test_the_authors_loop_scores_each_window_behind_its_horizon(monkeypatch, ours):
    import torch

    class Bigrams:
        """Logits that depend on the last token alone."""

        def __call__(self, ids, hidden):
            return (None, None, torch.nn.functional.one_hot(ids, 7).float()), None, None

        def init_hidden(self, batch_size):
            return None

        def parameters(self):
            return iter(())

    monkeypatch.setattr(authors, "language_model", lambda *_: Bigrams())
    contender = evaluate.authors(SETTING)
    contender.step()
    found = contender.facts
    assert found["tokens"] == ours["trellisnet"]["tokens"]
    assert found["first"][:3] == [None] * 3
    expected = np.log(6 + np.e) - (IDS[3:19] == IDS[4:20])
    np.testing.assert_allclose(found["first"][3:], expected, rtol=1e-6)


def test_text_that_is_not_the_published_one_is_refused(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb.{split}.txt").write_text(" a b \n <unk> a\n")
    with pytest.raises(app.UsageError, match="is not the published file"):
        evaluate.read(tmp_path)


def test_differences_are_those_of_targets_that_both_score():
    readings = [Reading(1.0, 0.5, 2**20)]
    results = {
        "exact": Result({"tokens": 4, "nll": 8.0, "first": [1.0, 2.0, 3.0]}, readings),
        "authors": Result(
            {"tokens": 2, "nll": 5.0, "first": [None, 2.5, 3.25, 9.0]}, readings
        ),
    }
    rows = evaluate.compared(report.rows(evaluate.CONTENDERS, "exact", results))
    assert [each["difference"] for each in rows] == [None, 0.5] and rows[1][
        "compared"
    ] == 2
    text = evaluate.table({"rows": rows, "setting": {"tokens": 5}})
    assert "| 100.00% | 4 | 2.000000 |" in text and "5.0e-01 of 2" in text


def test_authors_arrays_are_a_language_model_s():
    shapes = {name: each.shape for name, each in SETTING.arrays().items()}
    assert shapes["full_conv.weight2"] == (24, 6, 2) and shapes["encoder.weight"] == (
        7,
        4,
    )
