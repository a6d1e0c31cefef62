"""Writes a run of `small` that was stopped half-way, and what it comes to without the stop.

    python -m tests.trainers.training.stopped_run

wrote `testdata/small_before_stacked_lstm`, where it stays: every later version has to go on with
it. The code was that before `StackedLSTM`, and the preset that is `small_stacked_lstm` now.
"""

import functools
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import ml_collections
import numpy as np
from etils import epath

from tests.trainers.calls import config_of
from trainers.data.files import read_json
from trainers.language import experiment
from trainers.tasks import config as configs
from trainers.training import runs, stopping
from trainers.training.trainer import Trainer

FOLDER = pathlib.Path(__file__).parent / "testdata/small_before_stacked_lstm"
CORPUS, RUN, EXPECTED = "corpus", "run", "expected.npz"
OF_THE_MACHINE = ("cost/", "run_id")  # seconds, bytes, and what is drawn


def config() -> ml_collections.ConfigDict:
    """Returns the preset `small` of `text` as it was, of a few units and steps."""
    loaded = configs.load("text", "small_stacked_lstm")
    loaded.preset = "small"
    loaded.model.update(units=6, output_units=3, embedding_units=3)
    loaded.data.update(batch_size=2, window=8)
    loaded.evaluation.update(batch_size=2, exact_batch_size=2, exact_chunk=8)
    loaded.schedule.update(epochs=(2,))
    loaded.training.update(epochs=3, checkpoint_every_steps=5)
    return loaded


def named(run: pathlib.Path) -> ml_collections.ConfigDict:
    """Returns the config of the command line that began the run: the default preset."""
    return config_of("--task=text", f"--workdir={run}")


def train(
    run: pathlib.Path, corpus: pathlib.Path, recipe: ml_collections.ConfigDict
) -> None:
    """Begins the run, or goes on with it."""
    load = functools.partial(experiment.LanguageExperiment, recipe, str(corpus))
    runs.train(load, recipe, epath.Path(run), "none", rules=configs)


def arrays(run: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the last checkpoint and the scores of a run that has finished."""
    with np.load(max((run / "checkpoints").glob("step-*.npz"))) as file:
        found = {name: file[name] for name in file.files}
    for split, protocols in read_json(epath.Path(run / "result.json"))[
        "scores"
    ].items():
        for protocol, score in protocols.items():
            found[f"scores/{split}/{protocol}"] = np.array(score["nll"])
    return {
        name: value
        for name, value in found.items()
        if not name.startswith(OF_THE_MACHINE)
    }


def _write_corpus(folder: pathlib.Path) -> None:
    """Writes sentences in which a word depends on the two before it."""
    generator = np.random.default_rng(0)
    for name, lines in (("train", 30), ("valid", 8), ("test", 8)):
        text = []
        for _ in range(lines):
            words = [*generator.integers(0, 9, 2)]
            for _ in range(4):
                words.append((2 * words[-1] + words[-2] + generator.integers(0, 2)) % 9)
            text.append(" ".join("abcdefghi"[word] for word in words))
        (folder / f"{name}.txt").write_text("\n".join(text) + "\n")


def _stop_at(calls: int) -> None:
    """Has a signal come at a call of steps."""
    steps, left = Trainer.steps, [calls]

    def interrupted(*args):
        left[0] -= 1
        if not left[0]:
            signal.raise_signal(signal.SIGTERM)
        return steps(*args)

    Trainer.steps = interrupted


def main() -> None:
    """Writes the folder."""
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists, and stays as it is")
    (FOLDER / CORPUS).mkdir(parents=True)
    _write_corpus(FOLDER / CORPUS)
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home  # where encoded ids are kept
        whole = pathlib.Path(home) / RUN
        train(whole, FOLDER / CORPUS, config())
        np.savez_compressed(FOLDER / EXPECTED, **arrays(whole))
        stopping.listen()
        _stop_at(10)
        try:
            train(FOLDER / RUN, FOLDER / CORPUS, config())
        except stopping.StoppedError as stopped:
            print(stopped)
    for name in ("tensorboard", "curves.png", "lock"):
        path = FOLDER / RUN / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
