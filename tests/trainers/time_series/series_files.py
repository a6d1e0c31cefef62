"""Recordings of the tests' own: tables of series, and the watch's pickle in small."""

import csv
import hashlib
import io
import pickle

import numpy as np
from numpy.lib import format as array_format

from trainers.data import watch


def write_tables(folder, count=12, seed=0):
    """Writes a file for each of some series: a low or a high wave, with a few empty cells."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        high = number % 2
        rows = [["id", "t", "a", "b", "kind", "level"]]
        for step in range(int(generator.integers(12, 20))):
            wave = np.sin(step + number) + 3 * high
            cell = "" if generator.random() < 0.05 else f"{wave:.4f}"
            noise = f"{generator.normal():.4f}"
            kind = ["low", "high"][high]
            rows.append([f"s{number:02}", 0.5 * step, cell, noise, kind, 5 + high])
        with (folder / f"s{number:02}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)


def watch_pickle(steps=40, seed=0):
    """Returns the bytes of a file as the package's: each person does each exercise on each side.

    Args:
        steps: of the shortest recording.
        seed: of the numbers.
    """
    generator = np.random.default_rng(seed)
    rows = [(p, e, s) for p in watch.PEOPLE for e in range(7) for s in range(2)]
    order = generator.permutation(len(rows))
    people, exercises, sides = np.array(rows)[order].T
    fields = {
        "X": [
            generator.normal(e, 1 + p, (steps + int(p), 6))
            for p, e in zip(people, exercises, strict=True)
        ],
        "y": exercises,
        "subject": people,
        "side": sides.astype(float),
    }
    file, array = io.BytesIO(), np.array(fields, object)
    header = array_format.header_data_from_array_1_0(array)
    array_format.write_array_header_1_0(file, header)
    pickle.dump(array, file, protocol=2)
    # The name that NumPy 1 wrote, and NumPy 2 reads.
    content = file.getvalue().replace(
        b"numpy._core.multiarray", b"numpy.core.multiarray"
    )
    return content


def checksum(content):
    """Returns the SHA-256 of a file's bytes."""
    return hashlib.sha256(content).hexdigest()
