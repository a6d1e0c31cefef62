"""The devices that a command computes on, in a line."""

import collections
import os

import tensorflow as tf


def described() -> str:
    """Returns the GPUs or, if there are none, the CPU cores, and TensorFlow's version."""
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    counts = collections.Counter(detail.get("device_name", "GPU") for detail in details)
    names = [
        f"{count} x {name}" if count > 1 else name for name, count in counts.items()
    ]
    cores = os.cpu_count() or 1
    # Linux; a container may have only some of the cores.
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    devices = " and ".join(names) or f"{cores} CPU core{'s' * (cores > 1)}"
    return f"running on {devices}, TensorFlow {tf.__version__}"
