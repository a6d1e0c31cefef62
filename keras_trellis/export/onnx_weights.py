"""The weights of ONNX models in one file that they share, each once and as small as is exact."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

NAME = "weights.bin"
_LARGE = 1024  # bytes from which on a constant stands in the file
_ALIGNMENT = 64


def move(models: Sequence[Any], file: IO[bytes], scales: Sequence[np.ndarray]) -> None:
    """Moves the large constants of models to a file.

    A matrix of whole numbers from -127 to 127 times a scale is stored in int8, and one that is
    exact in float16 in that; operations in the model make float32 of it again. ONNX Runtime carries
    them out once, as it loads the model.

    Args:
        models: `onnx.ModelProto`, whose constants are replaced.
        file: where to write.
        scales: those that matrices may have, one for each column, or for each row.
    """
    from onnx import numpy_helper

    store = _Store(file, scales)
    for model in models:
        graph = model.graph
        constants, nodes = [], []
        for tensor in graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.nbytes < _LARGE:
                constants.append(tensor)
                continue
            stored, operations = store.replace(tensor.name, values)
            constants += stored
            nodes += operations
        nodes += graph.node  # they stand in the order in which they are carried out
        del graph.initializer[:]
        graph.initializer.extend(constants)
        del graph.node[:]
        graph.node.extend(nodes)


class _Store:
    """What stands in the file."""

    def __init__(self, file: IO[bytes], scales: Sequence[np.ndarray]) -> None:
        self._file = file
        self._scales = scales
        # By values: a constant that stands in the file, and the scale that multiplies it.
        self._stored: dict[tuple, tuple[Any, np.ndarray | None]] = {}

    def replace(self, name: str, values: np.ndarray) -> tuple[list[Any], list[Any]]:
        """Returns the constants and the operations that make a constant."""
        from onnx import TensorProto, helper, numpy_helper

        is_new = _key(values) not in self._stored
        transposes = values.ndim == 2 and is_new and _key(values.T) in self._stored
        stored, scale = self._store(values.T if transposes else values)
        constants = []
        steps: list[tuple[str, dict[str, Any], list[str]]] = []
        to = helper.np_dtype_to_tensor_dtype(values.dtype)
        if stored.data_type != to:
            steps.append(("Cast", {"to": to}, []))
        if scale is not None:
            constants.append(numpy_helper.from_array(scale, f"{name}__scale"))
            steps.append(("Mul", {}, [f"{name}__scale"]))
        if transposes:
            steps.append(("Transpose", {"perm": [1, 0]}, []))
        names = [f"{name}__{index}" for index in range(len(steps))] + [name]
        constant = TensorProto()
        constant.CopyFrom(stored)
        constant.name = names[0]
        constants.append(constant)
        nodes = []
        for (kind, attributes, others), before, after in zip(
            steps, names[:-1], names[1:], strict=True
        ):
            inputs = [before, *others]
            nodes.append(helper.make_node(kind, inputs, [after], **attributes))
        return constants, nodes

    def _store(self, values: np.ndarray) -> tuple[Any, np.ndarray | None]:
        """Returns the constant that stands for values and its scale; writes new values."""
        from onnx import TensorProto, helper

        key = _key(values)
        if key not in self._stored:
            smallest, scale = self._smallest(values)
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            place = {"location": NAME, "offset": self._file.tell()}
            self._file.write(smallest.tobytes())
            tensor = TensorProto(dims=smallest.shape)
            tensor.data_type = helper.np_dtype_to_tensor_dtype(smallest.dtype)
            tensor.data_location = TensorProto.EXTERNAL
            for name, value in {**place, "length": smallest.nbytes}.items():
                tensor.external_data.add(key=name, value=str(value))
            self._stored[key] = tensor, scale
        return self._stored[key]

    def _smallest(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the smallest form that values are stored in exactly, and its scale."""
        if values.dtype != np.float32 or values.ndim != 2:
            return values, None
        for scale in self._scales:
            for axis in (0, 1):
                if values.shape[axis] != scale.size:
                    continue
                column = np.expand_dims(scale, 1 - axis)
                whole = np.rint(values / np.where(column > 0, column, 1))
                if abs(whole).max() <= 127 and np.array_equal(whole * column, values):
                    return whole.astype(np.int8), column
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if np.array_equal(half.astype(np.float32), values):
            return half, None
        return values, None


def _key(values: np.ndarray) -> tuple:
    digest = hashlib.sha256(values.tobytes()).digest()
    return digest, values.shape, values.dtype.str
