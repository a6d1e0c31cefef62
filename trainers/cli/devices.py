"""What a command computes on, in a line."""

import collections
import os

import tensorflow as tf


def described() -> str:
    """Returns the GPUs or, if there are none, the CPU cores, and TensorFlow's version."""
    devices = " and ".join(_gpus()) or _counted(_cores(), "CPU core")
    return f"running on {devices}, TensorFlow {tf.__version__}"


def _gpus() -> list[str]:
    found = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in found]
    counts = collections.Counter(each.get("device_name", "GPU") for each in details)
    return [f"{count} x {name}" if count > 1 else name for name, count in counts.items()]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux; a container may leave fewer than there are
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" + "s" * (count > 1)
