"""What `trainers.meta` learns to optimize: quadratics, and small networks on images."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from configs import meta
from trainers.data import images
from trainers.data.images import ImageSource
from trainers.kinds.measures import Measure
from trainers.kinds.task import REPORT, OwnTask
from trainers.models.cells import CELLS, cell_name
from trainers.models.fields import (
    ABOVE_ZERO,
    COUNT,
    Condition,
    Field,
    Rule,
    Values,
    one_of,
    or_none,
)
from trainers.models.kinds import stacked
from trainers.models.residual import DEPTH

MEAN_LOSS = Measure("mean_loss", 4, "optimizations")
_FIELDS: dict[str, Field] = {
    "model.cell": one_of(*CELLS)._replace(default="lstm"),
    "model.units": COUNT,
    "model.layers": COUNT,
    "model.projection": or_none(COUNT),
    "model.update_rule": one_of("added", "gated")._replace(default="added"),
    "model.scale": ABOVE_ZERO._replace(default=0.1),  # of added updates
    "model.p": ABOVE_ZERO,
    "data.steps": COUNT,
    "data.unroll": COUNT,
    "data.episodes": COUNT,
    "data.evaluated": COUNT,
}
_IMAGE_FIELDS = {**_FIELDS, "data.validation": COUNT}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetaTask(OwnTask):
    """A family of functions that an optimizer is trained on.

    Attributes:
        images: the source of the images of which losses are computed; None: there are none.
        others: what else its optimizers are evaluated on: arguments of the functions in
            `trainers.learned_optimizers.optimizees`, by a name.
    """

    program = "trainers.meta"
    folder = "trainers.learned_optimizers"
    evaluation = "trainers.meta_evaluate"
    next_commands = (
        (
            "try the optimizer elsewhere",
            f"{evaluation} {{path}} --output=evaluations/{{name}} {{data}}",
        ),
        REPORT,
    )

    images: ImageSource | None = None
    others: Mapping[str, Mapping[str, Any]]
    measure: Measure = MEAN_LOSS
    conditions: tuple[Condition, ...] = (
        Condition("model.scale", "model.update_rule", ("added",)),
    )

    def network(self, config: ConfigDict) -> str:
        """Returns in words which cells compute the updates."""
        model = config.model
        layers = stacked("layer", [model.units] * model.layers)
        return f"learned optimizer, {cell_name(model.cell)}: {layers}"

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of the steps, and of XLA."""
        steps, unroll = values["data.steps"], values["data.unroll"]
        yield steps % unroll, "data.unroll", f"a divisor of config.data.steps={steps}"
        expected = f"False for --task={self.name}: XLA would compile for minutes"
        yield values["training.jit_compile"], "training.jit_compile", expected
        yield from super().rules(values)


QUADRATIC = MetaTask(
    name="quadratic",
    presets=meta.QUADRATIC,
    data="drawn quadratics |W theta - y|^2",
    others={"20 dimensions": {"size": 20}, "5 dimensions": {"size": 5}},
    fields={**_FIELDS, "data.dimensions": COUNT},
)

MNIST_MLP = MetaTask(
    name="mnist_mlp",
    presets=meta.MNIST_MLP,
    images=images.MNIST,
    data="networks of one hidden layer on MNIST, handwritten digits",
    others={
        "40 units": {"units": (40,)},
        "two layers": {"units": (20, 20)},
        "relu": {"activation": "relu"},
    },
    fields=_IMAGE_FIELDS,
)

CIFAR10_CNN = MetaTask(
    name="cifar10_cnn",
    presets=meta.CIFAR10_CNN,
    images=images.CIFAR10,
    data="convolutional networks on CIFAR-10, small photographs in colour",
    others={"32 channels": {"channels": 32}, "tanh": {"activation": "tanh"}},
    fields=_IMAGE_FIELDS,
)

CIFAR10_RESNET = MetaTask(
    name="cifar10_resnet",
    presets=meta.CIFAR10_RESNET,
    images=images.CIFAR10,
    data="residual networks on CIFAR-10, small photographs in colour",
    others={},
    fields={**_IMAGE_FIELDS, "data.depth": DEPTH, "data.channels": COUNT},
)
