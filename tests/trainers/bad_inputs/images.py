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


def mnist(name: str, line: str, **files) -> Row:
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
    return Row(name, "pixels", MNIST, line, {f"digits/{n}": c for n, c in kept.items() if c is not None})


def cifar(name: str, line: str, **files) -> Row:
    """Returns the row of CIFAR-10's files in the folder `photos`, some of them replaced."""
    kept = {"data_batch_1": 5 * RECORD, "test_batch": 5 * RECORD} | files
    return Row(
        name, "pixels", CIFAR, line, {f"photos/{n}.bin": c for n, c in kept.items() if c is not None}
    )


def packed(content: bytes) -> bytes:
    """Returns a file in gzip, the same each time."""
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as unpacked:
        unpacked.write(content)
    return file.getvalue()


ROWS = (
    Row("digits_folder_missing", "pixels", MNIST,
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which is no folder"),
    Row("digits_folder_elsewhere", "pixels", MNIST,
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which is no folder", texts()),
    Row("digits_data_dir_empty", "pixels", "--task=seq_mnist --preset=small --data_dir=",
        "--data_dir must not be empty. Received: --data_dir="),
    Row("digits_archive_for_folder", "pixels", MNIST,
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which is no folder", {"digits": b"an archive"}),
    mnist("digits_lack_train_images",
        "--data_dir must be a folder of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which lacks train-images-idx3-ubyte.gz", **{TRAIN: None}),
    mnist("digits_lack_test_labels",
        "--data_dir must be a folder of train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte.gz (or no --data_dir, so that they are downloaded). Received: --data_dir=digits, which lacks t10k-labels-idx1-ubyte.gz", **{TEST_LABELS: None}),
    mnist("train_images_are_a_folder", "digits/train-images-idx3-ubyte must be a file. Received: a folder", **{TRAIN: folder}),
    mnist("train_images_are_a_pipe", "digits/train-images-idx3-ubyte must be a file. Received: a pipe", **{TRAIN: fifo}),
    mnist("test_images_link_to_nowhere",
        "digits/t10k-images-idx3-ubyte must be a file. Received: a link that leads nowhere", **{TEST: link("nowhere")}),
    mnist("train_images_empty",
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: no bytes", **{TRAIN: b""}),
    mnist("train_images_html",
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: 3c 68 74 6d", **{TRAIN: b"<html>404</html>"}),
    mnist("train_images_packed_without_gz",
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: 1f 8b 08 00", **{TRAIN: packed(idx(PIXELS))}),
    mnist("train_images_unpacked_with_gz",
        "digits/train-images-idx3-ubyte.gz must be a whole gzip file. Received: BadGzipFile: Not a gzipped file (b'\\x00\\x00')", **{f"{TRAIN}.gz": idx(PIXELS)}),
    mnist("train_images_gzip_cut_short",
        "digits/train-images-idx3-ubyte.gz must be a whole gzip file. Received: EOFError: Compressed file ended before the end-of-stream marker was reached", **{f"{TRAIN}.gz": packed(idx(PIXELS))[:40]}),
    mnist("test_images_gzip_bad_crc",
        "digits/t10k-images-idx3-ubyte.gz must be a whole gzip file. Received: BadGzipFile: CRC check failed 0x0 != 0x6902dc1a", **{f"{TEST}.gz": packed(idx(PIXELS))[:-8] + bytes(8)}),
    mnist("train_images_cut_short",
        "digits/train-images-idx3-ubyte must hold 15,680 bytes after its header, which tells of 20 items. Received: 15,675 bytes", **{TRAIN: idx(PIXELS)[:-5]}),
    mnist("train_images_too_long",
        "digits/train-images-idx3-ubyte must hold 15,680 bytes after its header, which tells of 20 items. Received: 15,685 bytes", **{TRAIN: idx(PIXELS) + b"12345"}),
    mnist("train_images_header_cut_short",
        "digits/train-images-idx3-ubyte must have a header of 16 bytes. Received: a file of 9 bytes", **{TRAIN: idx(PIXELS)[:9]}),
    mnist("train_images_half_height",
        "digits/train-images-idx3-ubyte must hold images of 28 x 28 pixels. Received: images of 14 x 28 pixels", **{TRAIN: idx(PIXELS[:, :14])}),
    mnist("no_train_images",
        "digits/train-images-idx3-ubyte must hold at least one item. Received: a header that tells of none", **{TRAIN: idx(PIXELS[:0])}),
    mnist("images_and_labels_swapped",
        "digits/train-images-idx3-ubyte must begin with the bytes 00 00 08 03, of an IDX file of images. Received: 00 00 08 01", **{TRAIN: idx(LABELS), TRAIN_LABELS: idx(PIXELS)}),
    mnist("one_label_too_few",
        "digits/train-labels-idx1-ubyte must hold 20 labels, as train-images-idx3-ubyte holds images. Received: 19", **{TRAIN_LABELS: idx(LABELS[:-1])}),
    mnist("train_label_ten",
        "digits/train-labels-idx1-ubyte must hold labels from 0 to 9. Received: 10, of image 9 counted from 0", **{TRAIN_LABELS: idx(LABELS + 1)}),
    mnist("test_label_hundred",
        "digits/t10k-labels-idx1-ubyte must hold labels from 0 to 9. Received: 100, of image 0 counted from 0", **{TEST_LABELS: idx(LABELS + 100)}),
    mnist("validation_larger_than_digits",
        "`config.data.validation` must be at most 19, as there are 20 training images. Received: config.data.validation=5000")._replace(warning="MNIST: these are not all of the published images"),
    cifar("photos_lack_training_batches",
        "--data_dir must be a folder of data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin, test_batch.bin (or no --data_dir, so that they are downloaded). Received: --data_dir=photos, which lacks data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin", data_batch_1=None),
    cifar("photos_lack_test_batch",
        "--data_dir must be a folder of data_batch_1.bin, test_batch.bin (or no --data_dir, so that they are downloaded). Received: --data_dir=photos, which lacks test_batch.bin", test_batch=None),
    cifar("photos_batch_empty",
        "photos/data_batch_1.bin must hold 3,073 bytes for each image, and at least one image. Received: 0 bytes", data_batch_1=b""),
    cifar("photos_batch_byte_short",
        "photos/data_batch_1.bin must hold 3,073 bytes for each image, and at least one image. Received: 3,072 bytes", data_batch_1=RECORD[:-1]),
    cifar("photos_batch_byte_long",
        "photos/data_batch_2.bin must hold 3,073 bytes for each image, and at least one image. Received: 3,074 bytes", data_batch_2=RECORD + b"1"),
    cifar("photo_label_ten",
        "photos/test_batch.bin must hold labels from 0 to 9. Received: 10, of image 0 counted from 0", test_batch=b"\x0a" + RECORD[1:]),
    cifar("photos_batch_is_a_pipe", "photos/data_batch_3.bin must be a file. Received: a pipe", data_batch_3=fifo),
    cifar("photos_batch_is_a_folder", "photos/data_batch_3.bin must be a file. Received: a folder", data_batch_3=folder),
    cifar("photos_batch_pickled",
        "photos/test_batch.bin must hold 3,073 bytes for each image, and at least one image. Received: 5 bytes", test_batch=b"\x80\x02}q\x00"),
)
