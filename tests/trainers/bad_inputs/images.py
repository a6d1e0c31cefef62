"""Files of images that are not what they should be."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

import gzip
import io

import numpy as np

from tests.trainers.bad_inputs.row import Row, fifo, folder, link, texts
from tests.trainers.mnist_files import NAMES, idx

TRAIN, TRAIN_LABELS = NAMES["train"]
TEST, TEST_LABELS = NAMES["test"]
MNIST = "--task=seq_mnist --preset=small --data_dir=digits"
CIFAR = "--task=seq_cifar10 --preset=small --data_dir=photos"
PIXELS, LABELS = np.zeros((20, 28, 28), "uint8"), np.arange(20, dtype="uint8") % 10
RECORD = bytes(3073)


def mnist(line: str, **files) -> Row:
    """Returns the row of MNIST's four files in the folder `digits`, some of them replaced."""
    good = {
        TRAIN: idx(PIXELS),
        TRAIN_LABELS: idx(LABELS),
        TEST: idx(PIXELS),
        TEST_LABELS: idx(LABELS),
    }
    files = {name.replace("_", "-"): content for name, content in files.items()}
    replaced = [name for name in good if name not in files and f"{name}.gz" not in files]
    kept = {name: good[name] for name in replaced} | files
    return Row("pixels", MNIST, line, {f"digits/{n}": c for n, c in kept.items() if c is not None})


def cifar(line: str, **files) -> Row:
    """Returns the row of CIFAR-10's files in the folder `photos`, some of them replaced."""
    kept = {"data_batch_1": 5 * RECORD, "test_batch": 5 * RECORD} | files
    return Row(
        "pixels", CIFAR, line, {f"photos/{n}.bin": c for n, c in kept.items() if c is not None}
    )


def packed(content: bytes) -> bytes:
    """Returns a file in gzip, the same each time."""
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as unpacked:
        unpacked.write(content)
    return file.getvalue()


ROWS = (
    Row("pixels", MNIST,
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which is no folder"),
    Row("pixels", MNIST,
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which is no folder", texts()),
    Row("pixels", "--task=seq_mnist --preset=small --data_dir=",
        "--data_dir must not be empty. Received: --data_dir="),
    Row("pixels", MNIST,
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which is no folder", {"digits": b"an archive"}),
    mnist(
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which lacks train-images-idx3-ubyte.gz", **{TRAIN: None}),
    mnist(
        "--data_dir must be a folder of train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which lacks t10k-labels-idx1-ubyte.gz", **{TEST_LABELS: None}),
    mnist("digits/train-images-idx3-ubyte must be a file. Received: a folder", **{TRAIN: folder}),
    mnist("digits/train-images-idx3-ubyte must be a file. Received: a pipe", **{TRAIN: fifo}),
    mnist(
        "digits/t10k-images-idx3-ubyte must be a file. Received: a link that leads nowhere", **{TEST: link("nowhere")}),
    mnist(
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: no bytes", **{TRAIN: b""}),
    mnist(
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: 3c 68 74 6d", **{TRAIN: b"<html>404</html>"}),
    mnist(
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: 1f 8b 08 00", **{TRAIN: packed(idx(PIXELS))}),
    mnist(
        "digits/train-images-idx3-ubyte.gz must be a whole gzip file. Received: BadGzipFile: Not a gzipped file (b'\\x00\\x00')", **{f"{TRAIN}.gz": idx(PIXELS)}),
    mnist(
        "digits/train-images-idx3-ubyte.gz must be a whole gzip file. Received: EOFError: Compressed file ended before the end-of-stream marker was reached", **{f"{TRAIN}.gz": packed(idx(PIXELS))[:40]}),
    mnist(
        "digits/t10k-images-idx3-ubyte.gz must be a whole gzip file. Received: BadGzipFile: CRC check failed 0x0 != 0x6902dc1a", **{f"{TEST}.gz": packed(idx(PIXELS))[:-8] + bytes(8)}),
    mnist(
        "digits/train-images-idx3-ubyte must hold 15,680 bytes after its header, which tells of 20 items. Received: 15,675 bytes", **{TRAIN: idx(PIXELS)[:-5]}),
    mnist(
        "digits/train-images-idx3-ubyte must hold 15,680 bytes after its header, which tells of 20 items. Received: 15,685 bytes", **{TRAIN: idx(PIXELS) + b"12345"}),
    mnist(
        "digits/train-images-idx3-ubyte must have a header of 16 bytes. Received: a file of 9 bytes", **{TRAIN: idx(PIXELS)[:9]}),
    mnist(
        "digits/train-images-idx3-ubyte must hold images of 28 x 28 pixels. Received: images of 14 x 28 pixels", **{TRAIN: idx(PIXELS[:, :14])}),
    mnist(
        "digits/train-images-idx3-ubyte must hold at least one item. Received: a header that tells of none", **{TRAIN: idx(PIXELS[:0])}),
    mnist(
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: 00 00 08 01", **{TRAIN: idx(LABELS), TRAIN_LABELS: idx(PIXELS)}),
    mnist(
        "digits/train-labels-idx1-ubyte must hold 20 labels, as train-images-idx3-ubyte holds images. Received: 19", **{TRAIN_LABELS: idx(LABELS[:-1])}),
    mnist(
        "digits/train-labels-idx1-ubyte must hold labels from 0 to 9. Received: 10, of image 9 counted from 0", **{TRAIN_LABELS: idx(LABELS + 1)}),
    mnist(
        "digits/t10k-labels-idx1-ubyte must hold labels from 0 to 9. Received: 100, of image 0 counted from 0", **{TEST_LABELS: idx(LABELS + 100)}),
    mnist(
        "`config.data.validation` must be at most 19, as there are 20 training images. Received: config.data.validation=5000")._replace(warning="MNIST: these are not all of the published images"),
    cifar(
        "--data_dir must be a folder of data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin, test_batch.bin (or no --data_dir, so that they are downloaded). Received: --data_dir=photos, which lacks data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin", data_batch_1=None),
    cifar(
        "--data_dir must be a folder of data_batch_1.bin, test_batch.bin (or no --data_dir, so that they are downloaded). Received: --data_dir=photos, which lacks test_batch.bin", test_batch=None),
    cifar(
        "photos/data_batch_1.bin must hold 3,073 bytes for each image, and at least one image. Received: 0 bytes", data_batch_1=b""),
    cifar(
        "photos/data_batch_1.bin must hold 3,073 bytes for each image, and at least one image. Received: 3,072 bytes", data_batch_1=RECORD[:-1]),
    cifar(
        "photos/data_batch_2.bin must hold 3,073 bytes for each image, and at least one image. Received: 3,074 bytes", data_batch_2=RECORD + b"1"),
    cifar(
        "photos/test_batch.bin must hold labels from 0 to 9. Received: 10, of image 0 counted from 0", test_batch=b"\x0a" + RECORD[1:]),
    cifar("photos/data_batch_3.bin must be a file. Received: a pipe", data_batch_3=fifo),
    cifar("photos/data_batch_3.bin must be a file. Received: a folder", data_batch_3=folder),
    cifar(
        "photos/test_batch.bin must hold 3,073 bytes for each image, and at least one image. Received: 5 bytes", test_batch=b"\x80\x02}q\x00"),
)
