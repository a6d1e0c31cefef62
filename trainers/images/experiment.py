"""The experiment of tasks on images."""

from typing import Any

from ml_collections import ConfigDict

from trainers.sequences import models
from trainers.sequences.experiment import SequenceExperiment
from trainers.tasks import registry


class ImageExperiment(SequenceExperiment):
    """The experiment of a classifier of images."""

    @classmethod
    def published_parameters(cls, config: ConfigDict) -> tuple[int, int]:
        """Returns the parameters of a config's model, and of its layer."""
        task: Any = registry.get(config.task)
        _, channels = task.images.sequence_shape
        whole = models.parameters(config, channels, len(task.images.classes))
        return whole, models.layer_parameters(config, channels)


load = ImageExperiment
