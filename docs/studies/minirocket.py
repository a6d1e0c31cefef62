"""Ridge regression on MiniRocket features of windows, beside the networks of docs/notes/series.md.

    python -m venv rocket && rocket/bin/pip install aeon
    rocket/bin/python docs/studies/minirocket.py watch-0.npz watch-1.npz --seeds=3

The files are those of docs/studies/recording_windows.py. aeon needs other versions of NumPy and
numba than TensorFlow may, so that it has an environment of its own, and nothing here imports ours.

Each row has the accuracy by window and by recording, in percent; a recording's class is that of the
greatest mean of the regression's decisions over its windows. With the files of `anomaly` the
regression predicts a later step of each channel, and the numbers are average precisions of its
squared error, in units of that of normal validation recordings. The seconds are those of the
processor, of the transformation of all windows and of the fit; numba's compiling is not among them.
A last line, on stderr, has mean and standard deviation over the files, each the mean of its seeds.

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
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

_PENALTIES = np.logspace(-3, 3, 10)
_SCORES = tuple(
    f"{split}_{unit}"
    for split in ("validation", "test")
    for unit in ("windows", "recordings")
)
_COLUMNS = ("file", "seed", "features", "seconds", *_SCORES)


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


def precisions(
    errors: np.ndarray, anomalies: np.ndarray, groups: Sequence[np.ndarray]
) -> tuple[float, ...]:
    """Returns the average precision of mean errors, in percent, for each grouping of them.

    Args:
        errors: `[N]`.
        anomalies: `[N]`, whether each is of an anomaly.
        groups: numbers `[N]` of what each error belongs to: of windows, of recordings.
    """
    result = []
    for group in groups:
        _, first, index = np.unique(group, return_index=True, return_inverse=True)
        means = np.bincount(index, errors) / np.bincount(index)
        share = average_precision_score(anomalies[first], means)
        result.append(round(100 * float(share), 2))
    return tuple(result)


def scores(data: Any, predicted: Any) -> dict[str, float]:
    """Returns the scores of both splits.

    Args:
        data: the arrays of the file.
        predicted: by split, the decisions for classes or the predicted steps.
    """
    pairs: list[float] = []
    for split in ("validation", "test"):
        targets, owners = data[f"{split}_targets"], data[f"{split}_owners"]
        if targets.ndim == 1:
            pairs += accuracies(predicted[split], targets, owners)
            continue
        squares = np.square(predicted[split] - targets)
        if split == "validation":
            scale = squares[data["validation_anomalies"] == 0].mean(0)
        groups = (data[f"{split}_scored"], owners)
        errors = (squares / scale).mean(1)
        pairs += precisions(errors, data[f"{split}_anomalies"], groups)
    return dict(zip(_SCORES, pairs, strict=True))


def measure(data: Any, features: int, seed: int) -> dict[str, Any]:
    """Fits one regression; returns its row of the table."""
    rocket = MiniRocket(n_kernels=features, random_state=seed, n_jobs=1)
    rocket.fit_transform(channels_first(data["train_inputs"][:8]))  # compiles
    ridge = RidgeClassifierCV if data["train_targets"].ndim == 1 else RidgeCV
    model = make_pipeline(StandardScaler(with_mean=False), ridge(alphas=_PENALTIES))
    began = time.process_time()
    train = rocket.fit_transform(channels_first(data["train_inputs"]))
    model.fit(train, data["train_targets"])
    answer = getattr(model, "decision_function", model.predict)
    predicted = {
        split: answer(rocket.transform(channels_first(data[f"{split}_inputs"])))
        for split in ("validation", "test")
    }
    row = {"seed": seed, "features": train.shape[1], **scores(data, predicted)}
    return row | {"seconds": round(time.process_time() - began, 1)}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Returns mean and standard deviation of each score over the files."""
    files = dict.fromkeys(row["file"] for row in rows)
    parts = []
    for name in _SCORES:
        means = [
            np.mean([r[name] for r in rows if r["file"] == file]) for file in files
        ]
        spread = f" ± {np.std(means, ddof=1):.2g}" if len(means) > 1 else ""
        parts.append(f"{name} {np.mean(means):.2f}{spread}")
    return ", ".join(parts)


def main(argv: Sequence[str]) -> None:
    """Prints a table in CSV: a row for each file and seed."""
    parser = argparse.ArgumentParser(description="Ridge on MiniRocket features.")
    parser.add_argument("files", nargs="+", help="of recording_windows.py")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--features", type=int, default=10_000)
    given = parser.parse_args(argv)
    writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = []
    for file in given.files:
        with np.load(file) as data:
            arrays = dict(data)
        for seed in range(given.seeds):
            rows.append({"file": file, **measure(arrays, given.features, seed)})
            writer.writerow(rows[-1])
            sys.stdout.flush()
    print(summary(rows), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
