"""The experiment of `trainers.draw`, and the evaluation of its runs."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from etils import epath
from ml_collections import ConfigDict

from trainers.data import files, images
from trainers.data.long_memory import Examples
from trainers.data.sequences import SequenceData
from trainers.data.stores import on_this_machine
from trainers.drawing import models, pictures
from trainers.drawing.model import DRAW
from trainers.drawing.modeling import DrawingImages, Score
from trainers.tasks import registry
from trainers.tasks.measures import NATS
from trainers.training import checkpoints, examples, memory, runs
from trainers.training.events import EVENTS, LackingError, recorded

ANIMATION, DRAWINGS = "drawing.gif", "drawings"
_TAG = "samples, then copies"  # of the pictures in TensorBoard
PROTOCOL = "exact"


class DrawingExperiment:
    """The `runs.Experiment` of DRAW.

    Args:
        config: The run's config.
        data_dir: The folder of the published files.
        path: The run's folder.

    Raises:
        ValueError, OSError: The data cannot be used, or do not suit the config.
    """

    def __init__(
        self, config: ConfigDict, data_dir: str | None, path: epath.Path
    ) -> None:
        self._config, self._path = config, path
        task: Any = registry.get(config.task)
        self._shape = (*task.images.shape, 1)[:3]
        models.check(config, self._shape)
        self._data = load(config, task.images, data_dir)
        self._count = len(self._data.train.inputs)
        self._task: Any = None
        examples.check_batch_size(self._count, config.data.batch_size, "images")

    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError if the replicas cannot share the batches."""
        size = self._config.data.batch_size
        examples.check_replicas(self._count, size, replicas, "images")

    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that training on these images takes."""
        return models.need(config, self._shape)

    def build(self) -> DRAW:
        """Returns the model, built."""
        return models.build(self._config, self._shape)

    def task(self, model: DRAW) -> DrawingImages:
        """Returns what the loop trains."""
        self._task = DrawingImages(model, self._config, self._data)
        return self._task

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 of each split's images."""
        return self._data.checksums()

    def keep(self, path: epath.Path) -> None:
        """Records the run's images in its folder."""
        examples.keep_images(path, self.checksums())

    def check(self, path: epath.Path) -> None:
        """Raises WorkdirError if the folder's run was trained on other images."""
        examples.check_images(path, self.checksums())

    def introduction(self, model: DRAW) -> str:
        """Returns a line on the images and the model."""
        decoder = models.decoder_parameters(self._config)
        size = " x ".join(map(str, self._shape))
        return (
            f"{self._count:,} training images of {size}; {runs.parameters(model):,} parameters, "
            f"{decoder:,} of them the decoder's"
        )

    def score(
        self, task: Any, check: Callable[[], None], splits: Sequence[str]
    ) -> runs.Scores:
        """Scores splits, and writes the animation."""
        scores: dict[str, Score] = {}
        for split in splits:
            check()
            scores[split] = task.score(split)
        check()
        path = self._path / ANIMATION
        shown = task.examples(pictures.ROWS)
        with runs.going_on_without(path):
            pictures.save_animation(task.model, shown, self._config.seed, path)
        summary = "; ".join(describe(*each) for each in scores.items())
        values = {split: {PROTOCOL: _numbers(each)} for split, each in scores.items()}
        return runs.Scores(summary, values)

    def show(self, losses: Sequence[float]) -> None:
        """Writes the sheet of the epoch that ended, in the folder and for TensorBoard.

        Args:
            losses: The validation losses so far.
        """
        epoch = len(losses)
        path = self._path / DRAWINGS / f"epoch_{epoch:04d}.png"
        if files.exists(path):  # the run goes on after this epoch
            return
        shown = self._task.examples(pictures.ROWS)
        pixels = pictures.sheet(self._task.model, shown, self._config.seed)
        events = self._path / EVENTS / DRAWINGS
        with runs.going_on_without(events), on_this_machine(events) as folder:
            writer = tf.summary.create_file_writer(str(folder))
            with writer.as_default():
                tf.summary.image(_TAG, pixels[None], step=epoch)
            writer.close()
            if (_TAG, epoch) not in recorded(epath.Path(folder)):
                raise LackingError("TensorFlow has not written the picture")
        with runs.going_on_without(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            pictures.save_sheet(pixels, path)


def load(
    config: ConfigDict, source: images.ImageSource, data_dir: str | None
) -> SequenceData:
    """Loads the images of a run.

    Raises:
        ValueError, OSError: The images cannot be used, or are too few.
    """
    found = images.load(source, data_dir)
    train, test = found.train, found.test
    if config.data.pixels == "drawn":
        train = train._replace(pixels=models.binarised(train.pixels, "train"))
        test = test._replace(pixels=models.binarised(test.pixels, "test"))
    rest, aside = images.split(train, config.data.validation, config.seed)
    first, validation, last = (Examples(*part) for part in (rest, aside, test))
    return SequenceData(first, validation, last, lambda pixels: pixels, outputs=0)


def evaluate(path: epath.Path, data_dir: str | None) -> None:
    """Prints the bound of a run's best model on validation and test images.

    Args:
        path: The run's folder.
        data_dir: The folder of the published files.

    Raises:
        ValueError, OSError, WorkdirError: The images or the folder cannot be used.
    """
    config = runs.load_config(path)
    experiment = DrawingExperiment(config, data_dir, path)
    experiment.check(path)
    model = experiment.build()
    checkpoints.load_best(path, model)
    task = experiment.task(model)
    for split in runs.SPLITS:
        print(describe(split, task.score(split)), flush=True)


def describe(split: str, score: Score) -> str:
    """Returns one line: the bound of a split and its parts."""
    told = NATS.told(score.loss, score.images)
    parts = f"{score.reconstruction:.2f} + {score.kl:.2f}"
    return f"{split} {NATS.name}: {told}, {parts} of the code"


def _numbers(score: Score) -> dict[str, Any]:
    own = {"reconstruction": score.reconstruction, "kl": score.kl}
    return {"loss": score.loss, "nats": score.loss, "images": score.images, **own}
