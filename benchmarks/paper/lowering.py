"""Lowers TensorFlow functions to StableHLO, and packs arrays, for `run.py`."""

import math
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.paper import run

_ALIAS = re.compile(
    r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>"
)
_PACKED = re.compile(r'dense<"0x([0-9A-F]+)"> : tensor<((?:\d+x)+)i1>')


class Lowering:
    """Lowers functions to StableHLO files and describes them.

    Attributes:
        programs: what `run.py` has to know of each program.
    """

    def __init__(
        self, named: Mapping[str, keras.Variable], folder: pathlib.Path
    ) -> None:
        self._names = {
            id(variable.value.handle): name for name, variable in named.items()
        }
        self._named = named
        self._folder = folder
        self.programs: dict[str, dict[str, Any]] = {}

    def add(self, name: str, function: Callable, *arguments: Any) -> None:
        """Lowers a function for arguments of these shapes and types, unless the name is there."""
        if name in self.programs:
            return
        compiled = tf.function(function, jit_compile=True, autograph=False)
        specs = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), arguments
        )
        concrete = compiled.get_concrete_function(*specs)
        captured = [self._names[id(handle)] for handle in concrete.captured_inputs]
        text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo")
        own = tf.nest.flatten(specs)
        results = [
            described(result) for result in tf.nest.flatten(concrete.structured_outputs)
        ]
        updates = {
            int(output): captured[int(parameter) - len(own)]
            for parameter, output in _ALIAS.findall(text)
        }
        results += [
            described(self._named[updates[output]].value) for output in sorted(updates)
        ]
        self.programs[name] = {
            "arguments": [described(spec) for spec in own],
            "captured": captured,
            "results": results,
            "updates": updates,
        }
        (self._folder / f"{name}.stablehlo").write_bytes(_portable(text))

    def add_scoring(
        self,
        name: str,
        split: str,
        function: Callable,
        pieces: Iterable[tuple[np.ndarray, ...]],
        state: Sequence[tf.Tensor] = (),
    ) -> dict[str, np.ndarray]:
        """Lowers the function that scores a piece of a split.

        Args:
            name: that of the protocol.
            split: that of the data.
            function: takes inputs, targets, which of these are scored, and a state; returns the
                sums of the scores and the next state.
            pieces: what it takes, piece by piece.
            state: the first state.

        Returns:
            the pieces and the state as arrays.
        """
        stacked = [np.stack(arrays) for arrays in zip(*pieces, strict=True)]
        first = [tf.constant(arrays[0]) for arrays in stacked]
        self.add(run.scoring(name, len(first[0])), function, *first, *state)
        prefix, (inputs, targets, scored) = f"{name}/{split}", stacked
        return {
            f"{prefix}/inputs": small(inputs),
            f"{prefix}/targets": small(targets),
            f"{prefix}/scored": scored,
            **states(prefix, state),
        }


def _portable(text: str) -> bytes:
    """Returns a module of TensorFlow as StableHLO that later versions of XLA read."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo
    from jax.interpreters import mlir

    # StableHLO has no attributes or operations of XLA's own dialect. The one operation is a copy.
    text = re.sub(
        r" attributes \{mhlo\..*\} \{$", " {", text, count=1, flags=re.MULTILINE
    )
    text = re.sub(r" \{mhlo\.frontend_attributes = \{[^}]*\}\}", "", text)
    text = re.sub(
        r"mhlo\.copy (%\w+) : (tensor<[^>]*>)",
        r"stablehlo.reshape \1 : (\2) -> \2",
        text,
    )
    text = _PACKED.sub(_unpacked_bits, text)
    with mlir.make_ir_context():
        # The locations name files of this machine.
        text = ir.Module.parse(text).operation.get_asm(enable_debug_info=False)
    return stablehlo.serialize_portable_artifact_str(
        text, stablehlo.get_current_version()
    )


def _unpacked_bits(match: re.Match) -> str:
    """Returns a constant of truth values with a byte for each, where eight share one."""
    content, shape = bytes.fromhex(match[1]), match[2]
    count = math.prod(map(int, shape.split("x")[:-1]))
    if len(content) == count:
        return match[0]
    bits = np.unpackbits(
        np.frombuffer(content, "uint8"), count=count, bitorder="little"
    )
    return f'dense<"0x{bits.tobytes().hex().upper()}"> : tensor<{shape}i1>'


def sums(scored: tf.Tensor, *scores: tf.Tensor) -> tf.Tensor:
    """Returns the sum of each score over what is scored, float64."""
    chosen = [tf.cast(tf.where(scored, score, 0), "float64") for score in scores]
    return tf.stack([tf.reduce_sum(score) for score in chosen])


def states(prefix: str, state: Iterable[tf.Tensor]) -> dict[str, np.ndarray]:
    """Returns a state as arrays."""
    return {
        f"{prefix}/state{i}": packed(np.asarray(tensor))
        for i, tensor in enumerate(state)
    }


def packed(array: np.ndarray) -> np.ndarray:
    """Returns an array as `run.unpacked` reads it: float32 that is bfloat16 takes half."""
    if array.dtype.name == "bfloat16":
        return array.view("uint16")
    if array.dtype == np.float32:
        bits = array.view("uint32")
        if not np.any(bits & 0xFFFF):
            return (bits >> 16).astype("uint16")
    return array


def small(array: np.ndarray) -> np.ndarray:
    """Returns integers from 0 on in as few bytes as hold them; other arrays as they are."""
    if array.dtype.kind not in "iu" or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max()))


def described(tensor: Any) -> list:
    """Returns a tensor's shape and the name of its type."""
    return [list(tensor.shape), tf.as_dtype(tensor.dtype).name]
