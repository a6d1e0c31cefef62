"""Exercises of the shoulder, recorded by a smartwatch: 140 recordings of 10 people.

D. Burns et al. (2018), "Shoulder Physiotherapy Exercise Recognition: Machine Learning the Inertial
Signals from a Smartwatch", https://arxiv.org/abs/1802.01489. The recordings are a pickle in the
package seglearn (BSD), which is of 2022: it is read, and the package is not imported.
"""

import hashlib
import importlib.metadata
import io
import os
import zipfile
from typing import NamedTuple

import numpy as np
from etils import epath

from trainers.data.files import check_regular, read_bytes
from trainers.data.stores import to_path

PACKAGE = "seglearn"
CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")  # of the accelerometer and gyroscope
EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
PERIOD = 0.02  # seconds between two steps
PEOPLE = range(1, 11)
FOLDS = 5
_FILE = "watch_dataset.npy"
_MEMBER = f"{PACKAGE}/data/{_FILE}"
_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
_SIDES = ("left", "right")


class Exercise(NamedTuple):
    """One recording: a person does an exercise twenty times with one arm.

    Attributes:
        person: from 1 to 10.
        exercise: one of `EXERCISES`.
        side: the arm with the watch.
        values: `[T, 6]`, float32, at 50 Hz.
    """

    person: int
    exercise: str
    side: str
    values: np.ndarray

    @property
    def name(self) -> str:
        """A name that no other recording has."""
        return f"{self.person}-{self.exercise}-{self.side}"


def people(fold: int) -> dict[str, tuple[int, ...]]:
    """Returns the people of each split: two test a fold, and those of the next fold validate it."""
    pairs = [tuple(PEOPLE[2 * pair : 2 * pair + 2]) for pair in range(FOLDS)]
    test, validation = pairs[fold], pairs[(fold + 1) % FOLDS]
    train = tuple(person for person in PEOPLE if person not in test + validation)
    return {"train": train, "validation": validation, "test": test}


def read(data_dir: epath.PathLike | None = None) -> list[Exercise]:
    """Reads the recordings, in the order of their names.

    Args:
        data_dir: a folder with watch_dataset.npy or with a wheel of seglearn; None: the installed
            package.

    Raises:
        ValueError: the recordings are not there, or are others.
        OSError: they cannot be read.
    """
    name, content = _installed() if data_dir is None else _in_folder(data_dir)
    return parse(name, content)


def parse(name: str, content: bytes, sha256: str = _SHA256) -> list[Exercise]:
    """Returns the recordings of a file.

    Args:
        name: what errors call the file.
        content: its bytes.
        sha256: their checksum.

    Raises:
        ValueError: the file is another one.
    """
    if (received := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(
            f"{name} must have the SHA-256 {sha256}, as in seglearn 1.2.5. Received: {received}"
        )
    # A pickle may run anything; this one is known by its checksum.
    fields = np.load(io.BytesIO(content), allow_pickle=True).item()
    exercises = [
        Exercise(
            int(person),
            EXERCISES[int(exercise)],
            _SIDES[int(side)],
            np.asarray(values, "float32"),
        )
        for person, exercise, side, values in zip(
            *(fields[column] for column in ("subject", "y", "side", "X")),
            strict=True,
        )
    ]
    return sorted(exercises, key=lambda recorded: recorded.name)


def _installed() -> tuple[str, bytes]:
    """Returns the path of the installed package's file, and its content."""
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError(
            f"--task=watch and --task=anomaly read the data of the package {PACKAGE}, which is not "
            f"installed: pip install '.[series]'; or --data_dir=DIR with {_FILE} or with a wheel "
            f"of {PACKAGE}"
        ) from error
    path = os.fspath(distribution.locate_file(_MEMBER))  # type: ignore[call-overload]
    return path, read_bytes(path)


def _in_folder(data_dir: epath.PathLike) -> tuple[str, bytes]:
    folder = to_path(data_dir)
    if folder.is_dir():
        if (path := folder / _FILE).exists():
            check_regular(path)
            return os.fspath(path), read_bytes(path)
        for path in sorted(folder.iterdir()):
            if path.name.startswith(f"{PACKAGE}-") and path.suffix == ".whl":
                return f"{os.fspath(path)}/{_MEMBER}", _member(path)
    raise ValueError(
        f"--data_dir must be a folder with {_FILE} or with a wheel of {PACKAGE} (or no --data_dir, "
        f"for the installed package). Received: --data_dir={data_dir}"
    )


def _member(path: epath.Path) -> bytes:
    """Returns the recordings in a wheel, which is a zip file."""
    check_regular(path)
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as wheel:
            return wheel.read(_MEMBER)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(
            f"{os.fspath(path)} must be a wheel with {_MEMBER}. Received: {error}"
        ) from error
