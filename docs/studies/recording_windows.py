"""Writes the windows of a task on recordings, for programs without TensorFlow.

    python -m docs.studies.recording_windows --task=watch --fold=0 --output=watch-0.npz
    python -m docs.studies.recording_windows --task=anomaly --fold=0 --output=anomaly-0.npz

The file has of each split `SPLIT_inputs` [N, W, p], scaled as the models' inputs are,
`SPLIT_targets`, and `SPLIT_owners` [N], the recording of each window. Targets that are classes are
[N], and `classes` has their names. Of `anomaly` a window is a past of 256 steps, and its target
[N, p] the step that the network would predict from it: every 32nd step of a recording.
`SPLIT_anomalies` [N] says whether the recording is an anomaly, and `SPLIT_scored` [N] has the
number of the window, of those by which the network is scored, in which the step lies.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags

from trainers.data.recordings import SeriesData
from trainers.data.sequences import SPLITS
from trainers.tasks import config as configs
from trainers.tasks import registry

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "task", "watch", "`anomaly`, or one with a class for each recording."
)
flags.DEFINE_string("preset", "small", "Its preset, which has window and hop.")
flags.DEFINE_integer("fold", 0, "The fold.", 0, 4)
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")
flags.DEFINE_string("output", None, "The file, a new one.", required=True)

_PAST, _EVERY = 256, 32  # steps
_MOST_WINDOWS = 1_000  # of a recording


def arrays() -> dict[str, np.ndarray]:
    """Returns what the file has."""
    config: Any = configs.load(FLAGS.task, FLAGS.preset)
    config.data.fold = FLAGS.fold
    task: Any = registry.get(FLAGS.task)
    data = task.load(config, FLAGS.data_dir)
    result = {"classes": np.array(data.classes)}
    for split in SPLITS:
        if data.classes:
            columns = _windows(data, split)
        else:
            columns = _pasts(data, split, config.data.ahead)
        result |= {f"{split}_{name}": column for name, column in columns.items()}
    return result


def _scaled(data: SeriesData, values: np.ndarray) -> np.ndarray:
    mean, deviation = np.array(data.facts.mean), np.array(data.facts.deviation)
    return ((values - mean) / deviation).astype("float32")


def _windows(data: SeriesData, split: str) -> dict[str, np.ndarray]:
    """Returns the windows of a split, each with a class."""
    inputs, targets = getattr(data, split)
    owners = data.owners[split]
    return {"inputs": _scaled(data, inputs), "targets": targets, "owners": owners}


def _pasts(data: SeriesData, split: str, ahead: int) -> dict[str, np.ndarray]:
    """Returns parts of a split's recordings, each with a step to predict."""
    rows = []
    for owner, recording in enumerate(data.recordings[split]):
        values = _scaled(data, recording.values)
        for step in range(_PAST - 1 + ahead, len(values), _EVERY):
            end = step - ahead + 1
            window = _MOST_WINDOWS * owner + step // data.facts.window
            past = values[end - _PAST : end]
            rows.append((past, values[step], owner, recording.target, window))
    names = ("inputs", "targets", "owners", "anomalies", "scored")
    columns = map(np.array, zip(*rows, strict=True))
    return dict(zip(names, columns, strict=True))


def main(argv: Sequence[str]) -> None:
    """Writes the file."""
    del argv
    output = pathlib.Path(FLAGS.output)
    if output.exists():
        raise app.UsageError(f"--output={output} is there already")
    with output.open("xb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays())


if __name__ == "__main__":
    app.run(main)
