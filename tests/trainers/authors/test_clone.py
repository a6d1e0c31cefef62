"""The authors' folder as it is imported, with a stand-in for their files."""

import sys

import pytest

from tests.refusals import refuses
from trainers.authors import clone as authors


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of which the network and the model say where their zeros are."""
    folder = tmp_path / "TrellisNet"
    folder.mkdir()
    (folder / "trellisnet.py").write_text(
        "def zeros(tensor):\n    return tensor.cuda()\n"
    )
    (folder / "stand_in.py").write_text("from trellisnet import zeros\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("trellisnet", "stand_in"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_the_network_stays_where_it_is(clone):
    tensor = object()
    assert authors.load(str(clone), "stand_in").zeros(tensor) is tensor


def test_the_model_of_pixels_has_a_name_of_its_own(clone):
    folder = clone / "TrellisNet/seq_MNIST_CIFAR"
    folder.mkdir()
    (folder / "model.py").write_text("from trellisnet import zeros\n")
    module = authors.load(str(clone), "seq_MNIST_CIFAR/model")
    assert module.zeros(module) is module
    assert sys.modules.get("model") is not module


def test_what_is_no_clone_is_told(clone, tmp_path):
    with refuses("it needs --reference_dir=DIR, a clone of https://github"):
        authors.load(None, "model")
    with refuses("--reference_dir=.* has no TrellisNet/model.py"):
        authors.load(str(clone), "model")


def test_another_version_of_their_network_is_not_run_unchanged(clone):
    (clone / "TrellisNet/trellisnet.py").write_text("zeros = None\n")
    with refuses(r"trellisnet.py is not the authors' version .* '.cuda\(\)'"):
        authors.load(str(clone), "stand_in")
