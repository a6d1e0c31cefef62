"""What a config trains, for any task."""

import ml_collections
from etils import epath

from trainers.language.experiment import LanguageExperiment
from trainers.sequences.experiment import SequenceExperiment
from trainers.tasks import registry
from trainers.tasks.task import LanguageTask, SeriesTask
from trainers.time_series.experiment import SeriesExperiment

Experiment = LanguageExperiment | SequenceExperiment | SeriesExperiment


def load(
    config: ml_collections.ConfigDict, data_dir: str | None, path: epath.Path
) -> Experiment:
    """Returns what a run trains.

    Args:
        config: the run's config.
        data_dir: the folder of the task's data files.
        path: the run's folder.

    Raises:
        ValueError, OSError: the data cannot be used, or none are there to validate on.
    """
    if config.data.get("validation") == 0:
        raise ValueError(
            "`config.data.validation` must be at least 1 in a study, which compares validation "
            "losses. Received: config.data.validation=0"
        )
    task = registry.get(config.task)
    if isinstance(task, LanguageTask):
        return LanguageExperiment(config, data_dir, path)
    if isinstance(task, SeriesTask):
        return SeriesExperiment(config, data_dir)
    return SequenceExperiment(config, data_dir, path)
