"""The experiment of tags, and the evaluation of its runs."""

from etils import epath
from ml_collections import ConfigDict

from trainers.tagging.objective import Tags
from trainers.tasks import run_folders
from trainers.time_series.experiment import SeriesExperiment


class TaggingExperiment(SeriesExperiment):
    """The experiment of a model that tags the steps of recordings."""

    objective = Tags


load = TaggingExperiment


def evaluate(path: epath.Path, data_dir: str | None) -> None:
    """Prints the scores of a run's best model on validation and test data.

    Args:
        path: the run's folder.
        data_dir: the folder of the tables.

    Raises:
        ValueError, OSError, WorkdirError: the tables or the folder cannot be used.
    """
    TaggingExperiment(run_folders.load_config(path), data_dir).evaluate(path)


def published_parameters(config: ConfigDict) -> None:
    """Returns None: the user's tables have any number of channels."""
