"""The experiment of `trainers.draw`, and the evaluation of its runs."""

from collections.abc import Sequence
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
from trainers.drawing.tasks import NATS
from trainers.tasks import registry
from trainers.training import announcing, memory
from trainers.training.events import EVENTS, LackingError, event_files, recorded
from trainers.training.experiment import PROTOCOL, Check, ExamplesExperiment, Scores

ANIMATION, DRAWINGS = "drawing.gif", "drawings"
_TAG = "samples, then copies"  # of the pictures in TensorBoard


class DrawingExperiment(ExamplesExperiment):
    """The experiment of DRAW.

    Args:
        config: the run's config.
        data_dir: the folder of the published files.
        path: the run's folder.

    Raises:
        ValueError, OSError: the data cannot be used, or do not suit the config.
    """

    def __init__(
        self, config: ConfigDict, data_dir: str | None, path: epath.Path
    ) -> None:
        self._path = path
        task: Any = registry.get(config.task)
        self._shape = (*task.images.shape, 1)[:3]
        models.check(config, self._shape)
        super().__init__(config, load_images(config, task.images, data_dir))
        self._task: Any = None
        self.check_batch_size()

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

    def introduction(self, model: DRAW) -> str:
        """Returns a line on the images and the model."""
        decoder = model.decoder_cell.count_params()
        size = " x ".join(map(str, self._shape))
        return (
            f"{self._data.count:,} training images of {size}; the decoder has {decoder:,} of the "
            "parameters"
        )

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Writes the animation."""
        check()
        path = self._path / ANIMATION
        shown = task.examples(pictures.ROWS)
        with announcing.going_on_without(path):
            pictures.save_animation(task.model, shown, self._config.seed, path)
        return scores

    def describe(self, split: str, score: Score) -> str:
        """Returns one line: the bound of a split and its parts."""
        bound = NATS.format_score(score.loss, score.images)
        parts = f"{score.reconstruction:.2f} + {score.kl:.2f}"
        return f"{split} {NATS.name}: {bound}, {parts} of the code"

    def numbers(self, split: str, score: Score) -> dict[str, dict[str, Any]]:
        """Returns the bound of a split and its parts."""
        bound = {"loss": score.loss, "nats": score.loss, "images": score.images}
        return {PROTOCOL: {**bound, **score.parts}}

    def observe(self, losses: Sequence[float]) -> None:
        """Writes the sheet of the epoch that ended, in the folder and for TensorBoard.

        Args:
            losses: the validation losses so far.
        """
        epoch = len(losses)
        path = self._path / DRAWINGS / f"epoch_{epoch:04d}.png"
        if files.exists(path):  # the run goes on after this epoch
            return
        shown = self._task.examples(pictures.ROWS)
        pixels = pictures.sheet(self._task.model, shown, self._config.seed)
        events = self._path / EVENTS / DRAWINGS
        with announcing.going_on_without(events), on_this_machine(events) as folder:
            former = event_files(folder)
            # A process may have ended between the event and the picture.
            if (_TAG, epoch) not in recorded(former[-1:]):
                writer = tf.summary.create_file_writer(str(folder))
                with writer.as_default():
                    tf.summary.image(_TAG, pixels[None], step=epoch)
                writer.close()
                written = {*event_files(folder)} - {*former}
                if (_TAG, epoch) not in recorded(written):
                    raise LackingError("TensorFlow has not written the picture")
        with announcing.going_on_without(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            pictures.save_sheet(pixels, path)


def load_images(
    config: ConfigDict, source: images.ImageSource, data_dir: str | None
) -> SequenceData:
    """Loads the images of a run.

    Raises:
        ValueError, OSError: the images cannot be used, or are too few.
    """
    loaded = images.load(source, data_dir)
    train, test = loaded.train, loaded.test
    if config.data.pixels == "drawn":
        train = train._replace(pixels=models.binarised(train.pixels, "train"))
        test = test._replace(pixels=models.binarised(test.pixels, "test"))
    rest, aside = images.split(train, config.data.validation, config.seed)
    first, validation, last = (Examples(*part) for part in (rest, aside, test))
    return SequenceData(first, validation, last, lambda pixels: pixels, outputs=0)


load = DrawingExperiment
