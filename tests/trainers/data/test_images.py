"""Tests of images by name, of the files that they are read from, and of a validation part."""

import gzip
import hashlib
import shutil
import time

import numpy as np
import pytest
import scipy.io
import tensorflow_datasets as tfds
from absl import logging
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.refusals import refuses
from tests.trainers import mnist_files
from tests.trainers.data import shared_data
from trainers.data import downloads, images, prepared
from trainers.data.image_files import SPLITS, Images

SIZES = {"train": 5, "test": 3}
MNIST = mnist_files.NAMES


def _drawn(split, *shape):
    generator = np.random.default_rng(len(split))
    pixels = generator.integers(0, 256, (SIZES[split], *shape), dtype=np.uint8)
    return pixels, generator.integers(0, 10, SIZES[split], dtype=np.uint8)


@pytest.fixture
def mnist(tmp_path):
    """A folder of MNIST's files, without gzip."""
    for split in MNIST:
        mnist_files.write(tmp_path, split, *_drawn(split, 28, 28))
    return tmp_path


def _cifar10_bytes(pixels, labels):
    """Images [N, 32, 32, 3] in CIFAR-10's binary format."""
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


@pytest.fixture
def cifar10(tmp_path):
    """A folder of CIFAR-10's files, with one image in each training file."""
    pixels, labels = _drawn("train", 32, 32, 3)
    for index in range(5):
        one = slice(index, index + 1)
        batch = _cifar10_bytes(pixels[one], labels[one])
        (tmp_path / f"data_batch_{index + 1}.bin").write_bytes(batch)
    (tmp_path / "test_batch.bin").write_bytes(
        _cifar10_bytes(*_drawn("test", 32, 32, 3))
    )
    return tmp_path


def _save_svhn(folder, split, **changes):
    """Writes a file of SVHN, in which 10 is the digit 0."""
    pixels, labels = _drawn(split, 32, 32, 3)
    labels = np.where(labels == 0, 10, labels)[:, None]
    values = {"X": pixels.transpose(1, 2, 3, 0), "y": labels} | changes
    values = {name: value for name, value in values.items() if value is not None}
    scipy.io.savemat(folder / f"{split}_32x32.mat", values)


@pytest.fixture
def svhn(tmp_path):
    """A folder of SVHN's files."""
    for split in SIZES:
        _save_svhn(tmp_path, split)
    return tmp_path


def _assert_drawn(loaded, split, *shape):
    pixels, labels = _drawn(split, *shape)
    channels = 1 if len(shape) == 2 else shape[2]
    part = getattr(loaded, split)
    assert_array_equal(part.pixels, pixels.reshape(len(pixels), -1, channels))
    assert_array_equal(part.labels, labels)
    assert (part.pixels.dtype, part.labels.dtype) == (np.uint8, np.int32)


@pytest.mark.parametrize(
    "packed", [(), ("train-images", "t10k-labels"), ("train", "t10k")]
)
def test_mnist_with_gzip_and_without(mnist, packed):
    for path in [path for path in mnist.iterdir() if path.name.startswith(packed)]:
        path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    loaded = images.load(images.MNIST, mnist)
    _assert_drawn(loaded, "train", 28, 28)
    _assert_drawn(loaded, "test", 28, 28)
    assert loaded.classes[7] == "7"


def test_cifar10(cifar10):
    loaded = images.load(images.CIFAR10, cifar10)
    _assert_drawn(loaded, "train", 32, 32, 3)
    _assert_drawn(loaded, "test", 32, 32, 3)
    assert (len(loaded.classes), loaded.classes[:2]) == (10, ("airplane", "automobile"))


def test_cifar10_in_the_folder_of_its_archive(cifar10, tmp_path_factory):
    above = tmp_path_factory.mktemp("above")
    shutil.copytree(cifar10, above / "cifar-10-batches-bin")
    _assert_drawn(images.load(images.CIFAR10, above), "train", 32, 32, 3)


def test_a_part_of_cifar10(cifar10, caplog):
    for number in (1, 3, 4):
        (cifar10 / f"data_batch_{number}.bin").unlink()
    pixels, _ = _drawn("train", 32, 32, 3)
    loaded = images.load(images.CIFAR10, cifar10)
    assert_array_equal(loaded.train.pixels, pixels[[1, 4]].reshape(2, 1024, 3))
    assert (
        "no result on them stands beside another: there are 2 + 3; published"
        in caplog.text
    )


IMAGES, LABELS = MNIST["train"]


def _zeros(*shape):
    return mnist_files.idx(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    "name, damage, message",
    [
        (
            IMAGES,
            lambda _: _zeros(5),
            "03, of .* images. Received: 00 00 08 01",
        ),
        (
            LABELS,
            lambda _: _zeros(5, 28, 28),
            "labels. Received: 00 00 08 03",
        ),
        (
            IMAGES,
            lambda content: content[:10],
            "header of 16 bytes. Received: a file of 10 bytes",
        ),
        (LABELS, lambda content: content[:-5], "hold 5 bytes .*Received: 0 bytes"),
        (
            LABELS,
            lambda _: _zeros(0),
            "at least one item. Received: .* of none",
        ),
    ],
)
def test_files_of_mnist_that_are_not_sound(mnist, name, damage, message):
    path = mnist / name
    path.write_bytes(damage(path.read_bytes()))
    with refuses(f"{path} must .*{message}"):
        images.load(images.MNIST, mnist)


def own(pixels, labels):
    """A source of a user's own images, 2 x 3 pixels of two classes, that has read arrays."""
    read = Images(pixels, labels)
    return images.ImageSource(
        "leaves", lambda folder: dict.fromkeys(SPLITS, read), ("oak", "elm"), (2, 3)
    )


def test_images_of_the_users_own(tmp_path, caplog):
    source = own(np.full((4, 6, 1), 255, np.uint8), np.arange(4, dtype=np.int32) % 2)
    loaded = images.load(source, tmp_path)
    assert loaded.classes == ("oak", "elm") and loaded.train is loaded.test
    assert not caplog.records  # nobody has published their number
    normal = images.normalise(source, loaded.train.pixels)
    assert_array_equal(normal, np.ones((4, 6, 1)))
    message = (
        "--data_dir must be the folder with the files of leaves, .* Received: .*None"
    )
    with refuses(message):
        images.load(source)


@pytest.mark.parametrize(
    "pixels, labels, message",
    [
        (
            np.zeros((0, 6, 1), "uint8"),
            [],
            r"at least one, each of 2 x 3 .*\(0, 6, 1\)",
        ),
        (np.zeros((2, 5, 1), "uint8"), [0, 1], r"Received: .* \(2, 5, 1\), 2 labels"),
        (np.zeros((2, 6, 1)), [0, 1], "Received: pixels float64"),
        (np.zeros((2, 6, 1), "uint8"), [0], "Received: .* 1 labels"),
        (
            np.zeros((2, 6, 1), "uint8"),
            [0, 2],
            "from 0 to 1. Received: int32 from 0 to 2",
        ),
        (np.zeros((2, 6, 1), "uint8"), [-1, 0], "Received: int32 from -1 to 0"),
    ],
)
def test_images_that_are_not_what_their_source_says(pixels, labels, message):
    source = own(pixels, np.array(labels, np.int32))
    with refuses(f"of leaves must be .*{message}"):
        images.load(source, "folder")


class _Tiny(tfds.core.GeneratorBasedBuilder):
    """A builder such as that of MNIST, of images that are counted: 300 to train on, 20 to test."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        ((url, _),) = self.url_infos.items()
        dl_manager.download(url)
        return {
            "train": self._generate_examples(300),
            "test": self._generate_examples(20),
        }

    def _generate_examples(self, count):
        for index in range(count):
            image = np.full([28, 28, 1], index % 256, np.uint8)
            image[0, 1] = index // 256
            yield index, {"image": image, "label": index % 10}


class TinyInOrder(prepared.InOrder, _Tiny):
    """Like the builder of `images.MNIST`."""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """An MNIST that is downloaded from a file of this machine."""
    path = tmp_path / "published"
    path.write_bytes(b"published")
    checksum = hashlib.sha256(b"published").hexdigest()
    info = tfds.download.checksums.UrlInfo(
        size=9, checksum=checksum, filename=path.name
    )
    monkeypatch.setattr(TinyInOrder, "url_infos", {path.as_uri(): info})
    monkeypatch.setattr(prepared, "in_order", lambda published: TinyInOrder)
    return path


def test_downloads_once_and_keeps_the_order(tiny, tmp_path):
    for _ in range(2):
        loaded = images.load(images.MNIST, cache_dir=tmp_path / "cache")
        pixels, labels = loaded.train
        assert (pixels.shape, pixels.dtype, labels.dtype) == (
            (300, 784, 1),
            np.uint8,
            np.int32,
        )
        numbers = pixels[:, :2, 0].astype(int) @ [1, 256]
        assert_array_equal(numbers, np.arange(300))
        assert_array_equal(labels, np.arange(300) % 10)
        assert_array_equal(loaded.test.labels, np.arange(20) % 10)
        tiny.unlink(missing_ok=True)


def test_download_that_is_another_file(tiny, tmp_path):
    tiny.write_bytes(b"log in!!!")
    with refuses("(?s)MNIST cannot be downloaded.*wrong checksum.*Ways out", OSError):
        images.load(images.MNIST, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("source", [images.MNIST, images.CIFAR10])
def test_features_of_the_builders(source, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "_probe", lambda url: None)
    with tfds.testing.mock_data(num_examples=4):
        loaded = images.load(source, cache_dir=tmp_path)
    assert (
        loaded.train.pixels.shape
        == loaded.test.pixels.shape
        == (4, *source.sequence_shape)
    )
    assert (loaded.train.pixels.dtype, loaded.train.labels.dtype) == (
        np.uint8,
        np.int32,
    )


@pytest.mark.parametrize(
    "source, url, files",
    [
        (
            images.MNIST,
            "https://storage.googleapis.com/cvdf",
            "train-images-idx3-ubyte.gz, train-lab",
        ),
        (
            images.CIFAR10,
            "https://www.cs.toronto.edu/.*-binary.tar.gz",
            "data_batch_1.bin, ",
        ),
    ],
)
def test_no_network(tmp_path, source, url, files):
    start = time.monotonic()
    with refuses(f"from {url}.*HTTPS_PROXY.*{files}.*--task=copy_memory", OSError):
        images.load(source, cache_dir=tmp_path)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "source, mean, deviation",
    [(images.MNIST, 0.1307, 0.3081), (images.CIFAR10, 0.5, 0.5)],
)
def test_normalise(source, mean, deviation):
    """(pixels / 255 - mean) / deviation."""
    pixels = np.arange(256, dtype=np.uint8).reshape(2, 128, 1)
    normal = images.normalise(source, pixels).numpy()
    assert normal.dtype == np.float32
    expected = (pixels.astype(float) / 255 - mean) / deviation
    assert_allclose(normal, expected, atol=1e-6)


@given(count=st.integers(2, 40), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_split_is_disjoint_complete_and_of_the_seed_alone(count, seed, data):
    validation = data.draw(st.integers(1, count - 1))
    labels = np.arange(count, dtype=np.int32)
    numbered = images.Images(
        np.repeat(labels.astype(np.uint8), 6).reshape(count, 3, 2), labels
    )
    parts = images.split(numbered, validation, seed)
    assert [len(part.labels) for part in parts] == [count - validation, validation]
    for part in parts:
        assert_array_equal(part.pixels, numbered.pixels[part.labels])
        assert (np.diff(part.labels) > 0).all()
    together = np.concatenate([part.labels for part in parts])
    assert_array_equal(np.sort(together), labels)
    np.random.random()  # a state that must not matter
    again = images.split(numbered, validation, seed)
    assert_array_equal(again[1].labels, parts[1].labels)


def test_split_differs_from_seed_to_seed():
    numbered = images.Images(
        np.zeros([100, 1, 1], np.uint8), np.arange(100, dtype=np.int32)
    )
    chosen = [images.split(numbered, 20, seed)[1].labels for seed in range(200)]
    assert len({tuple(labels) for labels in chosen}) == 200
    # 40 each; standard deviation 5.7
    counts = np.bincount(np.concatenate(chosen), minlength=100)
    assert 15 < counts.min() and counts.max() < 65


@pytest.mark.parametrize("validation", [5, 6])
def test_split_out_of_range(validation):
    five = images.Images(np.zeros([5, 1, 1], np.uint8), np.zeros(5, np.int32))
    with refuses(f"at most 4, .*Received: .*validation={validation}"):
        images.split(five, validation, 0)


@shared_data.needs("mnist")
def test_published_mnist(caplog):
    caplog.set_level(logging.WARNING)
    loaded = images.load(images.MNIST, shared_data.FOLDER / "mnist")
    assert (loaded.train.pixels.shape, loaded.test.pixels.shape) == (
        (60000, 784, 1),
        (10000, 784, 1),
    )
    assert loaded.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(loaded.test.labels)[1] == 1135
    normal = images.normalise(images.MNIST, loaded.train.pixels).numpy()
    assert abs(normal.mean()) < 1e-3 and abs(normal.std() - 1) < 1e-3
    assert not caplog.records


@shared_data.needs("cifar-10-batches-bin")
def test_published_cifar10():
    loaded = images.load(images.CIFAR10, shared_data.FOLDER)
    classes = [loaded.classes[label] for label in loaded.train.labels[:5]]
    assert classes == ["frog", "truck", "truck", "deer", "automobile"]
    assert loaded.train.pixels[0, 0].tolist() == [59, 62, 63]


def test_svhn_is_read_in_the_files_order(svhn):
    loaded = images.load(images.SVHN, svhn)
    for split in SIZES:
        _assert_drawn(loaded, split, 32, 32, 3)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": None}, "must hold X and y. Received: a file without X"),
        ({"y": np.ones(2)}, "must hold as many labels as images, .* 3 images and 2"),
        ({"y": np.full(3, 11)}, "must hold labels from 1 to 10.*from 11 to 11"),
        (
            {"X": np.zeros((32, 30, 3, 3), "uint8")},
            "X of shape 32 x 32 x 3 x N.*32 x 30",
        ),
        ({"X": np.zeros((32, 32, 3, 3))}, "uint8. Received: X of shape .*, float64"),
    ],
)
def test_an_unsound_file_of_svhn_is_named(svhn, changes, message):
    _save_svhn(svhn, "test", **changes)
    with refuses(f"test_32x32.mat must.*{message.removeprefix('must ')}"):
        images.load(images.SVHN, svhn)


def test_svhn_is_that_of_tensorflow_datasets(tmp_path):
    info = prepared.in_order("svhn_cropped")(data_dir=tmp_path).url_infos
    assert any(url.endswith("train_32x32.mat") for url in info)
