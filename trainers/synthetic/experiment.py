"""The experiment of tasks whose sequences are drawn."""

from trainers.sequences.experiment import SequenceExperiment

load = SequenceExperiment
