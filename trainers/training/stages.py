"""Fewer levels of a trellis network at the beginning of a run.

All levels share their weights. So a network can train few levels at first, which see more text in
the same time, and all of them at last.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

Stage = Mapping[str, Any]
"""The arguments that the task's loss has in a part of the run, by name."""


def of_depths(config: ConfigDict) -> list[Stage]:
    """Returns the equal parts of a run; the last one trains the whole model.

    Args:
        config: The run's config, with the most levels that train in each part but the last.
    """
    depths = config.training.depths
    return [*({"depth": min(depth, config.model.depth)} for depth in depths), {}]
