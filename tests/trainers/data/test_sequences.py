"""Images as a task's data: what is set aside, the order of steps, and what a folder is bound to."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.trainers import mnist_files
from trainers.data import images
from trainers.tasks import config as configs
from trainers.tasks import registry


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for split, count in (("train", 30), ("test", 6)):
        pixels = generator.integers(0, 256, (count, 28, 28))
        mnist_files.write(tmp_path, split, pixels, generator.integers(0, 10, count))
    return tmp_path


def load(task, folder, seed=1111, **arguments):
    config = configs.load(task, "small")
    config.seed = seed
    config.data.validation = 7
    return registry.get(task).load(config, folder, **arguments)


def test_images(folder):
    data, found = load("seq_mnist", folder), images.load(images.MNIST, folder)
    assert data.train.inputs.shape == (23, 784, 1) and data.validation.inputs.shape == (
        7,
        784,
        1,
    )
    assert np.array_equal(data.test.inputs, found.test.pixels)
    assert (
        data.permutation is None
        and data.outputs == 10
        and data.classes == tuple("0123456789")
    )
    normal = np.asarray(data.normalise(data.test.inputs))
    assert_allclose(normal, (found.test.pixels / 255 - 0.1307) / 0.3081, rtol=1e-5)


def test_the_order_of_steps_is_drawn_from_the_seed_once(folder):
    first, again = load("permuted_mnist", folder), load("permuted_mnist", folder)
    assert first.permutation == again.permutation
    assert sorted(first.permutation) == list(range(784)) and first.permutation != tuple(
        range(784)
    )
    assert load("permuted_mnist", folder, seed=3).permutation != first.permutation
    kept = load("permuted_mnist", folder, permutation=[*range(784)])
    assert kept.permutation == tuple(range(784))
    # The images themselves are as they are: the model reads them in that order.
    assert np.array_equal(first.test.inputs, load("seq_mnist", folder).test.inputs)


def test_the_checksums_tell_what_has_been_set_aside(folder):
    first = load("seq_mnist", folder).checksums()
    other = load("seq_mnist", folder, 3).checksums()
    assert load("permuted_mnist", folder).checksums() == first
    assert first["test"] == other["test"] and first["validation"] != other["validation"]
