"""One recording as it comes in: the model's answer after each sample, and a picture of them."""

import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from etils import epath
from matplotlib import figure

from keras_trellis import StreamedModel
from trainers.data.names import unknown
from trainers.data.recordings import Facts, Recording, whole
from trainers.tasks import run_folders
from trainers.time_series import experiment
from trainers.training.progress import literal, save_picture


def follow(
    path: epath.Path, data_dir: str | None, name: str | None, output: epath.Path
) -> str:
    """Streams a test recording through a run's best model; returns lines about it.

    Args:
        path: the run's folder.
        data_dir: the folder of the data's files.
        name: the recording's; None: the first one.
        output: the picture, a PNG file.

    Raises:
        ValueError, OSError, WorkdirError: something cannot be used.
    """
    config, (facts, _) = run_folders.load_config(path), experiment.saved_record(path)
    if facts.every_step or not facts.classes:
        raise ValueError(
            "--mode=follow needs a run with one class for each recording. "
            f"Received: a run of --task={config.task}"
        )
    loaded = experiment.SeriesExperiment(config, data_dir)
    loaded.check(path)
    recording = _chosen(loaded.data.recordings["test"], name)
    model = experiment.load_model(path, config, facts)
    stack = [keras.Input(model.input_shape[1:]), *model.layers, keras.layers.Softmax()]
    streamed = StreamedModel(keras.Sequential(stack))
    samples = recording.values[whole(recording.values)]
    probabilities, seconds = answers(streamed, samples)
    save_picture(
        drawn(samples, probabilities, streamed.stride, recording, facts), output
    )
    truth = facts.classes[int(recording.target)]
    right = np.mean(probabilities.argmax(-1) == recording.target)
    return (
        f"{recording.name}, {len(samples):,} samples: {truth} is the most probable class after "
        f"{right:.0%} of them; {1e6 * seconds / len(samples):.0f} microseconds a sample in "
        f"Python\n{output}"
    )


def answers(streamed: StreamedModel, samples: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the outputs after each chunk, `[N, outputs]`, and the seconds that they took.

    Args:
        streamed: the model; a chunk has `streamed.stride` samples.
        samples: `[T, p]`, of which the last may make no chunk.
    """
    stride, made = streamed.stride, []
    streamed.start(batch_size=1).advance(samples[None, :stride])  # traces
    running = streamed.start(batch_size=1)
    began = time.perf_counter()
    for start in range(0, len(samples) - stride + 1, stride):
        outputs: Any = running.advance(samples[None, start : start + stride])
        made.append(np.asarray(outputs)[0])
    return np.array(made), time.perf_counter() - began


def drawn(
    samples: np.ndarray,
    probabilities: np.ndarray,
    stride: int,
    recording: Recording,
    facts: Facts,
) -> figure.Figure:
    """Draws the channels of a recording, and below the probability of each class over time."""
    picture = figure.Figure(figsize=(10, 6), layout="constrained")
    above, below = picture.subplots(2, 1, sharex=True)
    period = facts.period or 1.0
    for channel, values in zip(facts.channels, samples.T, strict=True):
        times = period * np.arange(len(values))
        above.plot(times, values, linewidth=0.7, label=literal(channel))
    times = period * stride * np.arange(1, 1 + len(probabilities))
    for place, name in enumerate(facts.classes):
        width = 2.5 if place == recording.target else 1.0
        below.plot(times, probabilities[:, place], linewidth=width, label=literal(name))
    for axes in (above, below):
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    truth = facts.classes[int(recording.target)]
    above.set_title(literal(f"{recording.name}, class {truth}"))
    below.set(
        ylabel="probability",
        xlabel="seconds" if facts.period else "samples",
        ylim=(0, 1),
    )
    return picture


def _chosen(recordings: Sequence[Recording], name: str | None) -> Recording:
    by_name = {recording.name: recording for recording in recordings}
    if name is None:
        return recordings[0]
    if name not in by_name:
        raise ValueError(unknown("--recording", name, by_name))
    return by_name[name]
