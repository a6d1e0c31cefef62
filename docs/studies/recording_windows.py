"""Writes the windows of a task on recordings, for programs without TensorFlow.

    python -m docs.studies.recording_windows --task=watch --fold=0 --output=watch-0.npz

The file has of each split `SPLIT_inputs` [N, W, p], scaled as the models' inputs are,
`SPLIT_targets` [N], and `SPLIT_owners` [N], the recording of each window; `classes` has the names.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags

from trainers.data.sequences import SPLITS
from trainers.tasks import config as configs
from trainers.tasks import registry

FLAGS = flags.FLAGS
flags.DEFINE_string("task", "watch", "A task with one class for each recording.")
flags.DEFINE_string("preset", "small", "Its preset, which has window and hop.")
flags.DEFINE_integer("fold", 0, "The fold.", 0, 4)
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")
flags.DEFINE_string("output", None, "The file, a new one.", required=True)


def arrays() -> dict[str, np.ndarray]:
    """Returns what the file has."""
    config: Any = configs.load(FLAGS.task, FLAGS.preset)
    config.data.fold = FLAGS.fold
    task: Any = registry.get(FLAGS.task)
    data = task.load(config, FLAGS.data_dir)
    mean, deviation = np.array(data.facts.mean), np.array(data.facts.deviation)
    result = {"classes": np.array(data.classes)}
    for split in SPLITS:
        inputs, targets = getattr(data, split)
        result[f"{split}_inputs"] = ((inputs - mean) / deviation).astype("float32")
        result[f"{split}_targets"] = targets
        result[f"{split}_owners"] = data.owners[split]
    return result


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
