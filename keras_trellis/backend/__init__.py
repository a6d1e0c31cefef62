"""What the three backends of Keras do in ways of their own, under one set of names.

`tensorflow.py`, `jax.py` and `torch.py` have the same functions. All that `keras.ops` can say is
said in it, in `keras_trellis.core`; nothing else of this package but `engine`, `export` and the
private parts of `models` knows which backend runs.
"""

from typing import TYPE_CHECKING

import keras

NAME = keras.backend.backend()
"""The backend that Keras runs on: "tensorflow", "jax" or "torch"."""

if TYPE_CHECKING or NAME == "tensorflow":
    from keras_trellis.backend.tensorflow import (
        Trackable,
        argmax,
        cache_variables,
        compiled,
        custom_gradient,
        dropout_mask,
        dtype_name,
        fixed_point,
        fold_blocks,
        gather_steps,
        is_ragged,
        is_sparse,
        jitted,
        matmul,
        next_seed,
        num_replicas,
        read,
        register_as_tensor,
        replica_sum,
        row_bits,
        row_seeds,
        split,
        static_shape,
        static_value,
        take,
        tanh,
        to_tensor,
        value,
        verified,
        with_dynamic_shape,
        with_sizes,
        with_static_shape,
    )
elif NAME == "jax":
    from keras_trellis.backend.jax import (
        Trackable,
        argmax,
        cache_variables,
        compiled,
        custom_gradient,
        dropout_mask,
        dtype_name,
        fold_blocks,
        gather_steps,
        is_ragged,
        is_sparse,
        jitted,
        matmul,
        next_seed,
        num_replicas,
        read,
        register_as_tensor,
        replica_sum,
        row_bits,
        row_seeds,
        split,
        static_shape,
        static_value,
        take,
        tanh,
        to_tensor,
        value,
        verified,
        with_dynamic_shape,
        with_sizes,
        with_static_shape,
    )
    from keras_trellis.backend.jax_fixed_point import fixed_point
elif NAME == "torch":
    from keras_trellis.backend.torch import (
        Trackable,
        argmax,
        cache_variables,
        compiled,
        custom_gradient,
        dropout_mask,
        dtype_name,
        fixed_point,
        fold_blocks,
        gather_steps,
        is_ragged,
        is_sparse,
        jitted,
        matmul,
        next_seed,
        num_replicas,
        read,
        register_as_tensor,
        replica_sum,
        row_bits,
        row_seeds,
        split,
        static_shape,
        static_value,
        take,
        tanh,
        to_tensor,
        value,
        verified,
        with_dynamic_shape,
        with_sizes,
        with_static_shape,
    )
else:
    raise ImportError(
        "keras_trellis runs on Keras's backends tensorflow, jax and torch. Received: the backend "
        f"{NAME!r}. Set the environment variable KERAS_BACKEND to one of them before Keras is "
        "imported."
    )

__all__ = [
    "NAME",
    "Trackable",
    "argmax",
    "cache_variables",
    "compiled",
    "custom_gradient",
    "dropout_mask",
    "dtype_name",
    "fixed_point",
    "fold_blocks",
    "gather_steps",
    "is_ragged",
    "is_sparse",
    "jitted",
    "matmul",
    "next_seed",
    "num_replicas",
    "read",
    "register_as_tensor",
    "replica_sum",
    "row_bits",
    "row_seeds",
    "split",
    "static_shape",
    "static_value",
    "take",
    "tanh",
    "to_tensor",
    "value",
    "verified",
    "with_dynamic_shape",
    "with_sizes",
    "with_static_shape",
]
