"""What a config trains, for any task."""

import ml_collections
from etils import epath

from trainers.sequences.layer import LayerExperiment
from trainers.tasks import registry


def load(
    config: ml_collections.ConfigDict, data_dir: str | None, path: epath.Path
) -> LayerExperiment:
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
    return registry.get(config.task).part("experiment").load(config, data_dir, path)
