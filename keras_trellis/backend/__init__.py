"""What the three backends of Keras do in ways of their own, under one set of names.

`current` is `tensorflow.py`, `jax.py` or `torch.py`, which have the same functions. What
`keras.ops` can say is said in it, in `keras_trellis.core`. `current.NAME` is asked where TensorFlow
alone has the engine or exports, and where Keras's trainers carry variables on in different ways.
"""

from typing import TYPE_CHECKING

import keras

_NAME = keras.backend.backend()

if TYPE_CHECKING or _NAME == "tensorflow":
    from keras_trellis.backend import tensorflow as current
elif _NAME == "jax":
    from keras_trellis.backend import jax as current
elif _NAME == "torch":
    from keras_trellis.backend import torch as current
else:
    raise ImportError(
        "keras_trellis runs on Keras's backends tensorflow, jax and torch. Received: the backend "
        f"{_NAME!r}. Set the environment variable KERAS_BACKEND to one of them before Keras is "
        "imported."
    )

__all__ = ["current"]
