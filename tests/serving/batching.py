"""Requests merged into one batch as TensorFlow Serving merges them (`batching_session.cc`)."""

import threading
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_PATIENCE = 60  # seconds until a request that waits for others is given up


class Merge(NamedTuple):
    """How to merge.

    Attributes:
        requests: how many to wait for. A server takes those that came before its timeout; a number
            makes a test that does not depend on time.
        allowed_batch_sizes: a batch is filled up to the least of these that it fits in.
    """

    requests: int
    allowed_batch_sizes: tuple[int, ...]


class Batcher:
    """Runs requests for the same signature together.

    Args:
        run: takes a signature's name and inputs by name; returns outputs by name.
        merge: a `Merge`.
    """

    def __init__(self, run, merge):
        self._run, self._merge = run, merge
        self._lock, self._waiting = threading.Lock(), {}

    def __call__(self, signature, inputs):
        answer = futures.Future()
        with self._lock:
            tasks = self._waiting.setdefault(signature, [])
            tasks.append((inputs, answer))
            whole = len(tasks) == self._merge.requests
            if whole:
                del self._waiting[signature]
        if whole:
            self._answer(signature, tasks)
        return answer.result(_PATIENCE)

    def _answer(self, signature, tasks):
        requests, answers = zip(*tasks, strict=True)
        try:
            outputs = self._run(
                signature, merged(requests, self._merge.allowed_batch_sizes)
            )
            sizes = [_rows(each) for each in requests]
            for answer, own in zip(answers, split(outputs, sizes), strict=True):
                answer.set_result(own)
        except (
            tf.errors.OpError
        ) as error:  # one request's error is the answer to all of them
            for answer in answers:
                answer.set_exception(error)


def merged(requests, allowed_batch_sizes):
    """Returns one request made of several, one below the other, filled up to an allowed size.

    Those of less columns are filled with their own first value (`pad_variable_length_inputs`), and
    the batch with the first row of the last request.
    """
    rows = sum(map(_rows, requests))
    missing = min(size for size in allowed_batch_sizes if size >= rows) - rows
    batch = {}
    for name in requests[0]:
        values = [each[name] for each in requests]
        shape = np.max([value.shape[1:] for value in values], axis=0).astype(int)
        values = [_widened(value, shape) for value in values]
        batch[name] = np.concatenate([*values, *[values[-1][:1]] * missing])
    return batch


def _widened(value, shape):
    widths = [
        (0, 0),
        *((0, most - own) for most, own in zip(shape, value.shape[1:], strict=True)),
    ]
    if not any(after for _, after in widths):
        return value
    if not value.size:
        message = "Got empty tensor in batch of non-empty tensors."
        raise tf.errors.InvalidArgumentError(None, None, message)
    return np.pad(value, widths, constant_values=value.flat[0])


def split(outputs, sizes):
    """Returns each request's rows of outputs; what was filled up with belongs to none."""
    ends = np.cumsum(sizes)
    return [
        {name: value[end - size : end] for name, value in outputs.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def _rows(inputs):
    return len(next(iter(inputs.values())))
