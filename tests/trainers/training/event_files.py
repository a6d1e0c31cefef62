"""What the events of a run's folder hold, read by hand, and as TensorBoard reads them."""

import collections

import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator


def scalars(folder, damaged=False):
    """Tags and steps of all events, each with how often it is there.

    A file may end in what cannot be read where some are damaged.
    """
    count = collections.Counter()
    for path in sorted(folder.glob("*tfevents*")):
        try:
            for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20):
                event = tf.compat.v1.Event.FromString(record.numpy())
                count.update((value.tag, event.step) for value in event.summary.value)
        except tf.errors.DataLossError:
            assert damaged
    return count


def by_tensorboard(folder):
    """The same, as TensorBoard reads them."""
    everything = {event_accumulator.TENSORS: 0}
    reader = event_accumulator.EventAccumulator(str(folder), everything).Reload()
    return collections.Counter(
        (tag, event.step)
        for tag in reader.Tags()["tensors"]
        for event in reader.Tensors(tag)
    )
