"""What training asks of a task whose model has one of the sequence layers of `config.model`."""

import abc
from collections.abc import Callable
from typing import Any

import keras
from ml_collections import ConfigDict

from keras_trellis import StreamedModel
from trainers.models import layers
from trainers.training.experiment import Experiment
from trainers.training.schedules import WHOLE, Stages


class TrainedLayer:
    """The part of the loop's `Task` that depends on the layer.

    All levels of a trellis network share their weights. So it can train few levels at first, which
    see more text in the same time, and all of them at last.
    """

    _config: ConfigDict

    @property
    def stages(self) -> Stages:
        """The parts of a run, of which all but the last may train fewer levels."""
        depths = self._config.training.depths
        if not depths:
            return WHOLE
        depth, most = self._config.model.depth, ", ".join(map(str, depths))
        return Stages(
            arguments=[*({"depth": min(trained, depth)} for trained in depths), {}],
            costs=[*(min(1.0, trained / depth) for trained in depths), 1.0],
            lines=[
                f"the run has {len(depths) + 1} equal parts: they train at most {most} levels, the "
                "last one all"
            ],
        )

    @property
    def allows_rewrites(self) -> bool:
        """Whether TensorFlow may rewrite graphs of the layer; see `strategies`."""
        return self._config.model.layer not in layers.KERAS_LAYERS


class LayerExperiment(Experiment):
    """The part of an experiment that depends on the layer."""

    @abc.abstractmethod
    def parameters(self, config: ConfigDict) -> int:
        """Returns the number of parameters of a config's model on these data."""

    @classmethod
    def published_parameters(cls, config: ConfigDict) -> tuple[int, int] | None:
        """Returns the parameters of a config's model, and of its layer.

        They are those with data of the published size; None: no size is published.
        """
        del config
        return None

    def advice(self) -> list[str]:
        """Returns advice on the config, for a machine without a GPU."""
        config = self._config
        if not config.training.jit_compile or config.model.layer in layers.TRELLIS:
            return []
        return [
            "config.training.jit_compile=True can make a layer other than a trellis network many "
            "times slower on a CPU; try --config.training.jit_compile=False"
        ]

    def streamed(self, steps: int) -> Callable[[], Any]:
        """Returns a function that streams so many steps of one sequence, a step at a time.

        It runs the sequence layer alone, with the stem before it.
        """
        import tensorflow as tf  # `trainers.reproduce` needs the rest of this module without it

        stepper, inputs = _stepper(self.build())

        @tf.function
        def run() -> tf.Tensor:
            cache = stepper.get_initial_cache(1)
            last = tf.zeros([])
            for _ in tf.range(steps // inputs.shape[1]):
                outputs, cache = stepper.stream(inputs, cache)
                last = tf.reduce_sum(tf.cast(outputs, last.dtype))
            return last

        # Call it by its trace: TensorFlow warns of several functions from one place.
        traced = run.get_concrete_function()
        return lambda: traced().numpy()


def sequence_layer(model: Any) -> Any:
    """Returns the sequence layer in a model."""
    return next(layer for layer in model.layers if hasattr(layer, "receptive_field"))


def _stepper(model: Any) -> tuple[Any, Any]:
    """Returns a model's layer, after its stem if it has one, and the zeros that a step reads."""
    layer = sequence_layer(model)
    before = [part for part in model.layers if isinstance(part, keras.layers.Conv1D)]
    if not before:
        return layer, keras.ops.zeros([1, 1, layer.input_units])
    before += [part for part in model.layers if part.name == "projection"]
    channels = before[0].kernel.shape[1]
    stack = [keras.Input([None, channels]), *before, layer]
    streamed = StreamedModel(keras.Sequential(stack))
    return streamed, keras.ops.zeros([1, streamed.stride, channels])
