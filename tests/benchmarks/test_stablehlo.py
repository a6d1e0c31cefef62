"""The compiled step: written, and run by JAX."""

import json

import numpy as np
import pytest

from benchmarks import stablehlo
from benchmarks.sizes import Sizes

SIZES = Sizes(2, 9, 3, 4, 5, dilation_rate=(1, 2), discard=4)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "step"
    stablehlo.write(folder, Sizes(**{**vars(SIZES), "dtype": request.param}))
    return folder


def test_the_folder_says_what_it_holds(written):
    about = json.loads((written / "step.json").read_text())
    sizes = Sizes(**about["sizes"])
    arrays = stablehlo.inputs(sizes)
    assert [each.shape for each in arrays] == [(2, 9, 3), (2, 3, 16), (2, 4, 16), (16,)]
    assert about["inputs"] == stablehlo.fingerprint(arrays)
    assert about["facts"]["flops"] < about["facts"]["flops_everywhere"]
    assert (written / "step.stablehlo").stat().st_size > 1000
    with np.load(written / "expected.npz") as expected:
        outputs = [expected[name] for name in expected.files]
    assert [each.size for each in outputs] == [1, *(each.size for each in arrays)]
    assert all(np.abs(each).max() > 0 for each in outputs)


def test_a_device_returns_what_is_expected(written):
    found = stablehlo.run(written, rounds=1)
    assert max(found["errors"].values()) <= found["tolerance"] and len(found["seconds"]) == 1


def test_inputs_are_the_same_again_and_told_apart():
    first, again = stablehlo.inputs(SIZES), stablehlo.inputs(SIZES)
    assert stablehlo.fingerprint(first) == stablehlo.fingerprint(again)
    again[3][0] += 1
    assert stablehlo.fingerprint(first) != stablehlo.fingerprint(again)


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 1_000_000])
def test_samples_are_few(size):
    found = stablehlo.samples(np.arange(size))
    assert found[0] == 0 and min(size, 30_000) <= len(found) <= stablehlo.SAMPLES


def test_errors_are_relative_to_the_norm():
    assert stablehlo.relative_errors([np.array([3.0, 4.4])], [np.array([3.0, 4.0])]) == [
        pytest.approx(0.08)
    ]


def test_presets_are_the_authors_sizes():
    ptb = stablehlo.PRESETS["word_ptb"]
    assert (ptb.batch_size, ptb.time_steps, ptb.discard) == (16, 110, 58)
    assert ptb.receptive_field() == 59
