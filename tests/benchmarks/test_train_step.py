"""The benchmark of the training step, at a tiny size."""

import functools
import importlib.util

import keras
import pytest

import keras_trellis
from benchmarks import contenders, report, train_step
from benchmarks.sizes import Sizes
from benchmarks.workers import LeftOutError, Reading, Result
from tests.benchmarks.commands import measured, run

TINY = (
    *("--batch_size=2", "--time_steps=5", "--input_units=3", "--units=4", "--depth=3"),
    *("--threads=1", "--warmup=1", "--rounds=2"),
)
WITHOUT_GPU = """
import torch

class TrellisNet(torch.nn.Module):
    def __init__(self, ninp, nhid, nout, nlevels, kernel_size, wnorm, dilation):
        super().__init__()
        self.full_conv = torch.nn.Module()
        self.full_conv.weight1 = torch.nn.Parameter(torch.ones(4 * nout, ninp, kernel_size))
        self.full_conv.weight2 = torch.nn.Parameter(torch.ones(4 * nout, nout, kernel_size))

    def forward(self, X, hc, aux):
        assert X.shape == (2, 3, 5) and hc[0].shape == (2, 4, 1) and not aux
        return X * torch.zeros(1).cuda() * self.full_conv.weight1.sum(), hc, None
"""


def needs(module):
    return pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"{module} is not installed"
    )


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory, forks):
    """One run, since each contender's process takes its time to start."""
    only = ("--only=lstm", "--only=authors")
    folder = tmp_path_factory.mktemp("run")
    return measured(forks, folder, "train_step", *TINY, *only, spawned=True)


def test_rows_and_reasons(measured_once):
    found, text = measured_once
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == ["trellis", "lstm"]
    assert all(len(row["seconds"]) == 2 for row in rows.values())
    assert rows["trellis"]["time_to_ours"] == {"min": 1.0, "median": 1.0, "max": 1.0}
    assert (
        rows["trellis"]["receptive_field"] == 4
        and rows["lstm"]["receptive_field"] is None
    )
    assert rows["lstm"]["parameters"] == 4 * (3 * 4 + 4 * 4 + 4)
    assert found["sizes"]["threads"] == 1 and "tensorflow" in found["versions"]
    assert "Left out: the authors' code: it needs --reference_dir=DIR" in text
    assert "| keras.layers.LSTM | " in text


@needs("tcn")
def test_keras_tcn():
    sizes = Sizes(2, 5, 3, 4, 3)
    tcn = contenders.CONTENDERS["tcn"][1](sizes)
    assert tcn.step() > 0
    field = contenders.trellis(sizes).facts["receptive_field"]
    assert tcn.facts["receptive_field"] >= field


@needs("torch")
def test_code_that_names_the_gpu_runs_from_its_clone(tmp_path, forks):
    (tmp_path / "TrellisNet").mkdir()
    (tmp_path / "TrellisNet" / "trellisnet.py").write_text(WITHOUT_GPU)
    flags = ("--only=authors", f"--reference_dir={tmp_path}")
    found, _ = measured(forks, tmp_path, "train_step", *TINY, *flags)
    assert [row["name"] for row in found["rows"]] == ["trellis", "authors"]
    # The stand-in has no bias: 4 * 4 numbers.
    assert found["rows"][0]["parameters"] == found["rows"][1]["parameters"] + 16


@pytest.mark.parametrize(
    "flag", ["--dilation_rate=0", "--dilation_rate=", "--threads=4096", "--discard=5"]
)
def test_bad_flags_are_named(flag, forks):
    done = run(forks, "train_step", *TINY, flag)
    assert done.returncode != 0
    assert flag in done.stdout + done.stderr


@pytest.mark.parametrize(
    "steps, dilations", [(1, [1]), (3, [1]), (4, [1, 2]), (21, [1, 2, 4, 8])]
)
def test_tcn_dilations(steps, dilations):
    assert contenders.tcn_dilations(steps) == dilations


@pytest.mark.parametrize("kernel_size", [2, 4])
def test_sizes_of_the_trellis_network_and_of_an_equal_lstm(kernel_size):
    sizes = Sizes(2, 5, 3, 40, 3, (1, 4), kernel_size=kernel_size)
    facts = contenders.trellis(sizes).facts
    assert facts == {
        "receptive_field": 1 + (kernel_size - 1) * (1 + 4 + 1),
        "parameters": sizes.parameters,
    }
    equal = contenders.equal_lstm(sizes).facts["parameters"]
    assert abs(equal / sizes.parameters - 1) < 0.03


@pytest.mark.parametrize("name", ["trellis", "lstm", "gru"])
@pytest.mark.parametrize("mode", ["train", "forward"])
def test_contenders_take_steps_in_bfloat16(name, mode):
    sizes = Sizes(2, 5, 3, 4, 3, discard=2, mode=mode, dtype="bfloat16")
    policy = keras.config.dtype_policy()
    try:
        contender = contenders.CONTENDERS[name][1](sizes)
        losses = [contender.step() for _ in range(2)]
    finally:
        keras.config.set_dtype_policy(policy)
    assert all(loss.dtype == "float32" and loss > 0 for loss in losses)


@pytest.mark.parametrize(
    "mode, before, within",
    [
        ("first", set(), {4}),
        # Keras then traces for all lengths.
        ("another_length", {4}, {None}),
        ("unknown_length", set(), set()),
        ("xla", set(), set()),
    ],
)
def test_what_a_step_traces(mode, before, within, monkeypatch):
    lengths = []
    call = keras_trellis.TrellisLayer.call

    @functools.wraps(call)
    def watched(layer, sequences, *arguments, **keywords):
        lengths.append(sequences.shape[1])
        return call(layer, sequences, *arguments, **keywords)

    monkeypatch.setattr(keras_trellis.TrellisLayer, "call", watched)
    contender = contenders.CONTENDERS["trellis"][1](Sizes(2, 4, 3, 4, 2, mode=mode))
    assert lengths == {"unknown_length": [None], "xla": [4]}.get(mode, [])
    for _ in range(2):
        lengths.clear()
        if contender.prepare is not None:
            contender.prepare()
        assert set(lengths) == before
        lengths.clear()
        losses = [contender.step() for _ in range(2)]
        assert 0 < losses[1] < losses[0]
        assert set(lengths) == within
    with pytest.raises(LeftOutError, match="traces nothing"):
        contenders.authors(Sizes(2, 4, 3, 4, 2, mode=mode))


def test_the_table_counts_kept_outputs():
    facts = {"receptive_field": None, "parameters": 1}
    results = {"trellis": Result(facts, [Reading(1.0, 0.5, 2**20)])}
    (row,) = report.rows(contenders.CONTENDERS, "trellis", results)
    rows = [row | {"mode": mode} for mode in ("train", "first")]
    text = train_step.table(
        {"sizes": vars(Sizes(2, 7, 3, 4, 3, discard=2)), "rows": rows}
    )
    equal = "1.00, **1.00**, 1.00"
    assert text.splitlines()[-2:] == [
        f"| keras_trellis.TrellisLayer | {start} | {equal} | {equal} | {rate} | 1 | no end | 1 |"
        for start, rate in (("train | 1,000.0", 10), ("first | 1,000.0", ""))
    ]
