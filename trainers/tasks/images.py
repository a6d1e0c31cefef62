"""Images read pixel by pixel: MNIST, MNIST in an order drawn from the seed, and CIFAR-10."""

import dataclasses

from configs import seq_mnist
from trainers.data import images
from trainers.tasks import search
from trainers.tasks.task import ImageTask, Published

# Table 4 of the paper: sequential MNIST, permuted, sequential CIFAR-10, in percent.
_TABLE_4 = {
    "dilated GRU": (99.0, 94.6, None),
    "IndRNN": (99.0, 96.0, None),
    "generic TCN": (99.0, 97.2, None),
    "r-LSTM with an auxiliary loss": (98.4, 95.2, 72.2),
    "Transformer": (98.9, 97.9, 62.2),
}


def _quoted(column: int) -> tuple[Published, ...]:
    """Returns the other models of a column."""
    values = {name: row[column] for name, row in _TABLE_4.items()}
    return tuple(
        Published(name, None, value)
        for name, value in values.items()
        if value is not None
    )


SEQ_MNIST = ImageTask(
    name="seq_mnist",
    presets=seq_mnist.PRESETS | seq_mnist.MNIST,
    images=images.MNIST,
    data="MNIST, handwritten digits, pixel by pixel",
    published=(Published("as published", 8e6, 99.20),),
    quoted=_quoted(0),
    sizes={"paper": "8M", "paper_larger": "8M"},
)

PERMUTED_MNIST = dataclasses.replace(
    SEQ_MNIST,
    name="permuted_mnist",
    permuted=True,
    presets={**SEQ_MNIST.presets, "medium": seq_mnist.permuted_medium},
    data="MNIST, handwritten digits, pixel by pixel in an order drawn once",
    published=(Published("as published", 8e6, 98.13),),
    quoted=_quoted(1),
    search=search.PERMUTED,
)

SEQ_CIFAR10 = dataclasses.replace(
    SEQ_MNIST,
    name="seq_cifar10",
    presets=seq_mnist.PRESETS,
    images=images.CIFAR10,
    data="CIFAR-10, small photographs, pixel by pixel",
    published=(Published("as published", 8e6, 73.42),),
    quoted=_quoted(2),
)
