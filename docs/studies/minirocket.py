"""Ridge regression on MiniRocket features of windows, beside the networks of docs/series.md.

    python -m venv rocket && rocket/bin/pip install aeon
    rocket/bin/python docs/studies/minirocket.py watch-0.npz watch-1.npz --seeds=3

The files are those of docs/studies/recording_windows.py. aeon needs other versions of NumPy and
numba than TensorFlow may, so that it has an environment of its own, and nothing here imports ours.

Each row has the accuracy by window and by recording, in percent; a recording's class is that of the
greatest mean of the regression's decisions over its windows. The seconds are those of the
processor, of the transformation of all windows and of the fit; numba's compiling is not among them.

Source: A. Dempster, D. Schmidt, G. Webb (2021), "MiniRocket", https://arxiv.org/abs/2012.08791; the
regression and its penalties are those of its authors' code.
"""

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from aeon.transformations.collection.convolution_based import MiniRocket
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

_PENALTIES = np.logspace(-3, 3, 10)
_COLUMNS = (
    *("file", "seed", "features", "seconds", "validation_windows"),
    *("validation_recordings", "test_windows", "test_recordings"),
)


def channels_first(windows: np.ndarray) -> np.ndarray:
    """Returns windows `[N, W, p]` as aeon reads them: `[N, p, W]`."""
    return np.ascontiguousarray(windows.transpose(0, 2, 1))


def accuracies(
    decisions: np.ndarray, targets: np.ndarray, owners: np.ndarray
) -> tuple[float, float]:
    """Returns the shares of right windows and of right recordings, in percent.

    Args:
        decisions: `[N, classes]`.
        targets: `[N]`, the class of each window.
        owners: `[N]`, the recording of each window.
    """
    places, first = np.unique(owners, return_index=True)
    means = np.array([decisions[owners == place].mean(0) for place in places])
    windows = np.mean(decisions.argmax(1) == targets)
    recordings = np.mean(means.argmax(1) == targets[first])
    return round(100 * float(windows), 2), round(100 * float(recordings), 2)


def measure(data: Any, features: int, seed: int) -> dict[str, Any]:
    """Fits one regression; returns its row of the table."""
    rocket = MiniRocket(n_kernels=features, random_state=seed, n_jobs=1)
    rocket.fit_transform(channels_first(data["train_inputs"][:8]))  # compiles
    ridge = make_pipeline(
        StandardScaler(with_mean=False), RidgeClassifierCV(alphas=_PENALTIES)
    )
    began = time.process_time()
    train = rocket.fit_transform(channels_first(data["train_inputs"]))
    ridge.fit(train, data["train_targets"])
    row = {"seed": seed, "features": train.shape[1]}
    for split in ("validation", "test"):
        read = rocket.transform(channels_first(data[f"{split}_inputs"]))
        shares = accuracies(
            ridge.decision_function(read),
            data[f"{split}_targets"],
            data[f"{split}_owners"],
        )
        row[f"{split}_windows"], row[f"{split}_recordings"] = shares
    return row | {"seconds": round(time.process_time() - began, 1)}


def main(argv: Sequence[str]) -> None:
    """Prints a table in CSV: a row for each file and seed."""
    parser = argparse.ArgumentParser(description="Ridge on MiniRocket features.")
    parser.add_argument("files", nargs="+", help="of recording_windows.py")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--features", type=int, default=10_000)
    given = parser.parse_args(argv)
    writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for file in given.files:
        with np.load(file) as data:
            arrays = dict(data)
        for seed in range(given.seeds):
            writer.writerow({"file": file, **measure(arrays, given.features, seed)})
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
