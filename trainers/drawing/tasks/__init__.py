"""Images that `trainers.draw` learns to draw: MNIST, SVHN and CIFAR-10."""

import dataclasses

from ml_collections import ConfigDict

from configs import draw
from trainers.data import images
from trainers.data.images import ImageSource
from trainers.kinds.measures import Measure
from trainers.kinds.task import REPORT, OwnTask, Published
from trainers.models.cells import CELLS, cell_name
from trainers.models.fields import COUNT, Field, one_of, or_none

NATS = Measure("nats", 2, "images")
_FIELDS: dict[str, Field] = {
    "model.steps": COUNT,
    "model.units": COUNT,
    "model.latent_units": COUNT,
    "model.read": or_none(COUNT),
    "model.write": or_none(COUNT),
    "model.decoder": one_of(*CELLS)._replace(default="lstm"),
    "data.validation": COUNT,
    "data.pixels": one_of("drawn", "grey"),
    "evaluation.batch_size": COUNT._replace(default=250),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawingTask(OwnTask):
    """A generative model of images.

    Attributes:
        images: their source.
    """

    program = "trainers.draw"
    folder = "trainers.drawing"
    evaluation = "trainers.draw --mode=evaluate"
    next_commands = (("score again", f"{evaluation} {{workdir}} {{data}}"), REPORT)

    images: ImageSource
    measure: Measure = NATS

    def network(self, config: ConfigDict) -> str:
        """Returns in words how a config draws."""
        model = config.model
        decoder = f"{cell_name(model.decoder)} decoder of {model.units} units"
        return f"DRAW: {model.steps} steps, {decoder}"


MNIST = DrawingTask(
    name="mnist",
    presets=draw.MNIST,
    images=images.MNIST,
    data="MNIST, handwritten digits, each pixel drawn with its grey value's probability",
    fields=_FIELDS,
    # Recalled, not checked: Gregor et al. 2015, table 2.
    published=(
        Published("DRAW, a bound (recalled)", None, 80.97),
        Published("DRAW without attention, a bound (recalled)", None, 87.40),
    ),
)

SVHN = dataclasses.replace(
    MNIST,
    name="svhn",
    presets=draw.SVHN,
    images=images.SVHN,
    data="SVHN, digits of house numbers, 32 x 32 pixels in colour",
    published=(),
)

CIFAR10 = dataclasses.replace(
    SVHN,
    name="cifar10",
    presets=draw.CIFAR10,
    images=images.CIFAR10,
    data="CIFAR-10, small photographs in colour",
)
