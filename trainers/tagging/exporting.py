"""Exports a run's best model of tags as any model of recordings with an answer a step."""

from trainers.time_series.exporting import export

__all__ = ["export"]
