"""The experiment of tags."""

from trainers.tagging.objective import Tags
from trainers.time_series.experiment import SeriesExperiment


class TaggingExperiment(SeriesExperiment):
    """The experiment of a model that tags the steps of recordings."""

    objective = Tags


load = TaggingExperiment
