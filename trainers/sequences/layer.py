"""What training asks of a task whose model has one of the sequence layers of `config.model`."""

from ml_collections import ConfigDict

from trainers.models import layers
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


def advice(config: ConfigDict) -> list[str]:
    """Returns advice on the layer, for a machine without a GPU."""
    if not config.training.jit_compile or config.model.layer in layers.TRELLIS:
        return []
    return [
        "config.training.jit_compile=True can make a layer other than a trellis network many "
        "times slower on a CPU; try --config.training.jit_compile=False"
    ]
