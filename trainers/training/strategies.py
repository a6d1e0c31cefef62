"""What is set before anything is built: seeds, deterministic kernels, and where a run computes."""

import keras
import tensorflow as tf

from trainers.training import cluster, workers

# Gradients travel in buffers of this size: 64 MiB in one took 3.7 times as long on loopback.
_PACK_BYTES = 1 << 24


def make_deterministic(seed: int) -> None:
    """Seeds all generators and makes TensorFlow choose deterministic kernels.

    Call this before any other function of TensorFlow. Two runs then agree bit for bit if their
    builds and their numbers of threads are the same.
    """
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()


def allow_rewrites(allowed: bool) -> None:
    """Sets whether TensorFlow rewrites graphs that are built from here on.

    One of its rewrites saves memory in large graphs. In the gradient of a Keras LSTM or GRU with
    dropout it fails at the second step, with an `AlreadyExistsError`
    (https://github.com/tensorflow/tensorflow/issues/23780), and it cannot be switched off alone.
    """
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": not allowed}
    )


def get_strategy(
    name: str, members: cluster.Cluster | None = None
) -> tf.distribute.Strategy:
    """Returns the strategy of a name.

    Args:
        name: "none" for one device; "mirrored" for the visible GPUs or, without GPUs, the
            logical CPUs.
        members: the workers, of which each has all of its visible GPUs or, without GPUs, one CPU;
            None or one worker: this process alone.
    """
    if members and len(members.addresses) > 1:
        gpus = len(tf.config.list_physical_devices("GPU"))
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=_PACK_BYTES
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            members.resolver(gpus), options
        )
        workers.handle_signals_again()
        return strategy
    if name == "none":
        return tf.distribute.get_strategy()
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    devices = [device.name for device in tf.config.list_logical_devices(kind)]
    return tf.distribute.MirroredStrategy(devices)
