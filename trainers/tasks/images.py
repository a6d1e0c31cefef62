"""Images read pixel by pixel: MNIST, MNIST in an order drawn from the seed, and CIFAR-10."""

import dataclasses

from configs import seq_mnist
from trainers.data import images
from trainers.tasks.task import ImageTask, Published

SEQ_MNIST = ImageTask(
    name="seq_mnist",
    presets=seq_mnist.PRESETS | seq_mnist.TENSORIZED,
    images=images.MNIST,
    data="MNIST, handwritten digits, pixel by pixel",
    published=(Published("as published", 8e6, 99.20),),
    sizes={"paper": "8M", "paper_larger": "8M"},
)

PERMUTED_MNIST = dataclasses.replace(
    SEQ_MNIST,
    name="permuted_mnist",
    permuted=True,
    data="MNIST, handwritten digits, pixel by pixel in an order drawn once",
    published=(Published("as published", 8e6, 98.13),),
)

SEQ_CIFAR10 = dataclasses.replace(
    SEQ_MNIST,
    name="seq_cifar10",
    presets=seq_mnist.PRESETS,
    images=images.CIFAR10,
    data="CIFAR-10, small photographs, pixel by pixel",
    published=(Published("as published", 8e6, 73.42),),
)
