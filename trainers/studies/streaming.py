"""What a step costs when sequences are streamed: a token of generated text, a step of a signal."""

import statistics
import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from keras_trellis import TrellisLM
from trainers.sequences import models
from trainers.studies.experiments import Experiment

_STEPS = 64  # in a measurement
_ROUNDS = 5


def stream_function(experiment: Experiment) -> Callable[[], None]:
    """Returns a function that streams `_STEPS` steps of one sequence, a step at a time.

    A language model writes tokens. Of another model it is the sequence layer alone.

    Args:
        experiment: what builds the model.
    """
    model = experiment.build()
    if isinstance(model, TrellisLM):
        prompt = tf.zeros([1, 1], tf.int32)
        return lambda: model.generate(
            prompt, 1 + _STEPS, temperature=0.0, seed=0
        ).numpy()
    layer = models.sequence_layer(model)
    inputs = tf.zeros([1, 1, layer.input_units])

    @tf.function
    def run() -> tf.Tensor:
        cache = layer.get_initial_cache(1)
        outputs = tf.zeros([1, 1, layer.output_units])
        for _ in tf.range(_STEPS):
            outputs, cache = layer.stream(inputs, cache)
        return outputs

    # Call it by its trace: TensorFlow warns of several functions from one place.
    traced = run.get_concrete_function()
    return lambda: traced().numpy()


def measure(steps: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Returns the processor seconds of a step of each model; the models take turns.

    Args:
        steps: what `stream_function` returned, by the models' names.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():  # traces
        step()
    for _ in range(_ROUNDS):
        for name, step in steps.items():
            began = time.process_time()
            step()
            times[name].append(time.process_time() - began)
    return {
        name: statistics.median(seconds) / _STEPS for name, seconds in times.items()
    }
