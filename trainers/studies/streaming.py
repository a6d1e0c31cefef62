"""What a step costs when sequences are streamed: a token of generated text, a step of a signal."""

import statistics
import time
from collections.abc import Callable, Mapping

STEPS = 64  # in a measurement
_ROUNDS = 5


def measure(steps: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Returns the processor seconds of a step of each model; the models take turns.

    Args:
        steps: what `LayerExperiment.streamed` returned for `STEPS`, by the models' names.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():  # traces
        step()
    for _ in range(_ROUNDS):
        for name, step in steps.items():
            began = time.process_time()
            step()
            times[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) / STEPS for name, seconds in times.items()}
