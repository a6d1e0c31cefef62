"""The experiment of tasks whose sequences are drawn."""

from ml_collections import ConfigDict

from trainers.sequences.experiment import SequenceExperiment, evaluate

__all__ = ["evaluate", "load", "published_parameters"]

load = SequenceExperiment


def published_parameters(config: ConfigDict) -> None:
    """Returns None: no size is published."""
