"""The operations of an ONNX graph as loops over the arrays of a pass in C."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_trellis.models.streamed.c_arrays import (
    REDUCTIONS,
    TYPES,
    Arrays,
    UnknownOperationError,
    View,
    identifier,
    literal,
    strides,
)

_CALLS = {
    "Abs": "fabsf({0})",
    "Add": "{0} + {1}",
    "And": "{0} && {1}",
    "Clip": "fminf(fmaxf({0}, {1}), {2})",
    "Div": "{0} / {1}",
    "Elu": "({0} > 0 ? {0} : {alpha} * (fast_exp({0}) - 1))",
    "Equal": "{0} == {1}",
    "Erf": "erff({0})",
    "Exp": "fast_exp({0})",
    "Greater": "{0} > {1}",
    "GreaterOrEqual": "{0} >= {1}",
    "LeakyRelu": "({0} > 0 ? {0} : {alpha} * {0})",
    "Less": "{0} < {1}",
    "LessOrEqual": "{0} <= {1}",
    "Log": "logf({0})",
    "Max": "fmaxf({0}, {1})",
    "Min": "fminf({0}, {1})",
    "Mul": "{0} * {1}",
    "Neg": "-{0}",
    "Not": "!{0}",
    "Or": "{0} || {1}",
    "Pow": "powf({0}, {1})",
    "Reciprocal": "1 / {0}",
    "Relu": "({0} > 0 ? {0} : 0)",
    "Selu": "{gamma} * ({0} > 0 ? {0} : {alpha} * (fast_exp({0}) - 1))",
    "Sigmoid": "sigmoid({0})",
    "Softplus": "(fmaxf({0}, 0) + log1pf(fast_exp(-fabsf({0}))))",
    "Softsign": "{0} / (1 + fabsf({0}))",
    "Sqrt": "sqrtf({0})",
    "Sub": "{0} - {1}",
    "Tanh": "fast_tanh({0})",
    "Where": "{0} ? {1} : {2}",
}
"""Operations on numbers at equal places."""

_TRUTHS = {
    *("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or")
}


class Program(Arrays):
    """The graph as statements.

    Args:
        graph: of ONNX, whose inputs have known sizes.
        chunk: the names of the inputs that the caller has; the others are read of lines.
    """

    def __init__(self, graph: Any, chunk: Sequence[str]) -> None:
        from onnx import helper, numpy_helper

        super().__init__()
        self._constants = {
            each.name: numpy_helper.to_array(each) for each in graph.initializer
        }
        self._values: dict[str, View] = {}
        for value in graph.input:
            tensor = value.type.tensor_type
            shape = [size.dim_value for size in tensor.shape.dim]
            kind = TYPES[helper.tensor_dtype_to_np_dtype(tensor.elem_type).name]
            name = identifier(value.name)
            if value.name in chunk:
                view = View(name, 0, tuple(shape), strides(shape), kind)
            else:
                view = self.new(shape, kind, name)
            self._values[value.name] = view
        for node in graph.node:
            self.time += 1
            results = self._run(node)
            self._values.update(zip(node.output, results, strict=True))
        self.time += 1
        for value in graph.output:
            view = self.dense(self._view(value.name))
            self.use(view)
            self._values[value.name] = view

    def __getitem__(self, name: str) -> View:
        """Returns an input or an output, whose numbers stand one after the other."""
        return self._values[name]

    def _run(self, node: Any) -> list[View]:
        kind = node.op_type
        attributes = {each.name: _attribute(each) for each in node.attribute}
        if kind in _CALLS:
            return [self._call(kind, node.input, attributes)]
        if kind in REDUCTIONS:
            return [self._reduced(kind, node, attributes)]
        method: Callable[..., list[View]] | None = getattr(
            self, f"_run_{kind.lower()}", None
        )
        if method is None:
            raise UnknownOperationError(kind)
        return method(node, **attributes)

    # Arrays and loops.

    def _view(self, name: str) -> View:
        """Returns a value, of the graph or a constant."""
        if name not in self._values:
            self._values[name] = self.constant(self._constants[name])
        view = self._values[name]
        self.use(view)
        return view

    def _known(self, name: str) -> np.ndarray:
        """Returns a constant."""
        if name not in self._constants:
            raise UnknownOperationError(f"sizes that are computed, {name!r}")
        return self._constants[name]

    # Operations: one method for each kind.

    def _call(
        self, kind: str, names: Sequence[str], attributes: Mapping[str, Any]
    ) -> View:
        defaults = {"alpha": 1.0 if kind == "Elu" else 0.01, "gamma": 1.0}
        numbers = {
            name: literal(value)
            for name, value in (defaults | dict(attributes)).items()
            if isinstance(value, float)
        }
        inputs = [self._view(name) for name in names]
        shape = np.broadcast_shapes(*(view.shape for view in inputs))
        result = "int32_t" if kind in _TRUTHS else inputs[-1].kind
        to = self.new(shape, result)
        # First the constants of the operation, then the places of what it reads.
        expression = re.sub(
            r"\{(alpha|gamma)\}", lambda match: numbers[match[1]], _CALLS[kind]
        )
        self.loop(to, expression, *(view.broadcast(shape) for view in inputs))
        return to

    def _reduced(self, kind: str, node: Any, attributes: Mapping[str, Any]) -> View:
        view = self._view(node.input[0])
        if len(node.input) > 1 and node.input[1]:
            axes = self._known(node.input[1]).tolist()
        else:
            axes = attributes.get("axes", range(len(view.shape)))
        axes = sorted(axis % len(view.shape) for axis in axes)
        kept = [axis for axis in range(len(view.shape)) if axis not in axes]
        result = self.sums(kind, view.moved([*kept, *axes]), len(kept))
        if attributes.get("keepdims", 1):
            sizes = [
                1 if axis in axes else size for axis, size in enumerate(view.shape)
            ]
            return self.shaped(result, sizes)
        return result

    def _run_identity(self, node: Any) -> list[View]:
        return [self._view(node.input[0])]

    def _run_cast(self, node: Any, to: int) -> list[View]:
        view = self._view(node.input[0])
        kind = "float" if to == 1 else "int32_t"
        if kind == view.kind:
            return [view]
        result = self.new(view.shape, kind)
        self.loop(result, f"({kind}){{0}}", view)
        return [result]

    def _run_reshape(self, node: Any, **_: Any) -> list[View]:
        view = self._view(node.input[0])
        sizes = self._known(node.input[1]).tolist()
        sizes = [
            view.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)
        ]
        known = -math.prod(sizes) if -1 in sizes else 1
        return [
            self.shaped(
                view, [view.size // known if size == -1 else size for size in sizes]
            )
        ]

    def _run_squeeze(self, node: Any) -> list[View]:
        view = self._view(node.input[0])
        axes = [axis for axis, size in enumerate(view.shape) if size == 1]
        if len(node.input) > 1:
            axes = [axis % len(view.shape) for axis in self._known(node.input[1])]
        return [
            view.moved([axis for axis in range(len(view.shape)) if axis not in axes])
        ]

    def _run_unsqueeze(self, node: Any) -> list[View]:
        view = self._view(node.input[0])
        added = self._known(node.input[1])
        rank = len(view.shape) + len(added)
        shape, strides = list(view.shape), list(view.strides)
        for axis in sorted(axis % rank for axis in added):
            shape.insert(axis, 1)
            strides.insert(axis, 0)
        return [view._replace(shape=tuple(shape), strides=tuple(strides))]

    def _run_transpose(self, node: Any, perm: Sequence[int]) -> list[View]:
        return [self._view(node.input[0]).moved(perm)]

    def _run_expand(self, node: Any) -> list[View]:
        view = self._view(node.input[0])
        shape = np.broadcast_shapes(view.shape, self._known(node.input[1]))
        return [view.broadcast(shape)]

    def _run_split(self, node: Any, axis: int = 0, **_: Any) -> list[View]:
        view = self._view(node.input[0])
        axis %= len(view.shape)
        sizes = [view.shape[axis] // len(node.output)] * len(node.output)
        if len(node.input) > 1:
            sizes = self._known(node.input[1]).tolist()
        begins = itertools.accumulate([0, *sizes[:-1]])
        return [view.cut(axis, *each) for each in zip(begins, sizes, strict=True)]

    def _run_slice(self, node: Any) -> list[View]:
        view = self._view(node.input[0])
        begins, ends, *others = (self._known(name) for name in node.input[1:])
        axes = others[0] if others else range(len(begins))
        steps = others[1] if len(others) > 1 else [1] * len(begins)
        for begin, end, axis, step in zip(begins, ends, axes, steps, strict=True):
            axis %= len(view.shape)
            places = range(view.shape[axis])[int(begin) : int(end) : int(step)]
            view = view.cut(axis, places.start, len(places), int(step))
        return [view]

    def _run_concat(self, node: Any, axis: int) -> list[View]:
        views = [self._view(name) for name in node.input]
        axis %= len(views[0].shape)
        shape = list(views[0].shape)
        shape[axis] = sum(view.shape[axis] for view in views)
        result = self.new(shape, views[0].kind)
        begin = 0
        for view in views:
            count = view.shape[axis]
            if view.size:
                self.loop(result.cut(axis, begin, count), "{0}", view)
            begin += count
        return [result]

    def _run_pad(self, node: Any, mode: str = "constant") -> list[View]:
        view = self._view(node.input[0])
        amounts = self._known(node.input[1]).tolist()
        if mode != "constant" or min(amounts) < 0:
            raise UnknownOperationError(f"Pad with mode {mode!r} or fewer numbers")
        value = self._known(node.input[2]) if node.input[2:] else np.float32(0)
        rank = len(view.shape)
        shape = np.add(view.shape, np.add(amounts[:rank], amounts[rank:])).tolist()
        result = self.new(shape, view.kind)
        self.loop(result, literal(value.item()))
        inner = result
        for axis, begin in enumerate(amounts[:rank]):
            inner = inner.cut(axis, begin, view.shape[axis])
        self.loop(inner, "{0}", view)
        return [result]

    def _run_gather(self, node: Any, axis: int = 0) -> list[View]:
        view = self._view(node.input[0])
        places = self._known(node.input[1])
        axis %= len(view.shape)
        chosen = (places % view.shape[axis]).reshape(-1).tolist()
        shape = [*view.shape[:axis], len(chosen), *view.shape[axis + 1 :]]
        result = self.new(shape, view.kind)
        for place, begin in enumerate(chosen):
            self.loop(result.cut(axis, place, 1), "{0}", view.cut(axis, begin, 1))
        shape[axis : axis + 1] = places.shape
        return [self.shaped(result, shape)]

    def _run_softmax(self, node: Any, axis: int = -1) -> list[View]:
        view = self.dense(self._view(node.input[0]))
        if axis % len(view.shape) != len(view.shape) - 1:
            raise UnknownOperationError("a softmax over another axis than the last one")
        result = self.new(view.shape)
        count = view.shape[-1]
        for row in range(0, view.size, count):
            self.statements.append(
                f"softmax({count}, {view.pointer} + {row}, {result.array} + {row});"
            )
        return [result]

    def _run_matmul(self, node: Any) -> list[View]:
        return [self.product(*map(self._view, node.input))]

    def _run_gemm(
        self,
        node: Any,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
    ) -> list[View]:
        left, right, *addends = map(self._view, node.input)
        if (alpha, beta, transA) != (1.0, 1.0, 0):
            raise UnknownOperationError("Gemm with factors")
        product = self.product(left, right.moved([1, 0]) if transB else right)
        if not addends:
            return [product]
        result = self.new(product.shape)
        self.loop(result, "{0} + {1}", product, addends[0].broadcast(product.shape))
        return [result]

    def _run_conv(
        self,
        node: Any,
        group: int = 1,
        strides: Sequence[int] = (1, 1),
        dilations: Sequence[int] = (1, 1),
        **rest: Any,
    ) -> list[View]:
        kernel = self._known(node.input[1])
        units, channels, taps = kernel.shape[0], kernel.shape[1], kernel.shape[-1]
        per_group = units // group
        # The channels of a window's tap stand beside each other, as they do in the input.
        grouped = kernel.reshape(group, per_group, channels, taps).transpose(0, 3, 2, 1)
        matrices = [
            self.constant(each.reshape(taps * channels, per_group)) for each in grouped
        ]

        def convolved(row: View) -> View:
            windows = row.windows(taps, strides[-1], dilations[-1])
            steps = windows.shape[1]
            result = self.new([units, steps])
            for own_group, matrix in enumerate(matrices):
                own = windows.cut(0, own_group * channels, channels).moved([1, 2, 0])
                part = self.product(self._flat(own), matrix)
                to = result.cut(0, own_group * per_group, per_group)
                self.loop(to, "{0}", part.moved([1, 0]))
            return result

        whole = self._by_row(node, kernel.ndim, rest, convolved)
        if len(node.input) < 3:
            return [whole]
        bias = self._view(node.input[2])
        each = self.shaped(bias, [1, units, *[1] * (kernel.ndim - 2)])
        added = self.new(whole.shape)
        self.loop(added, "{0} + {1}", whole, each.broadcast(whole.shape))
        return [added]

    def _flat(self, windows: View) -> View:
        """Returns windows `[steps, taps, channels]` as rows `[steps, taps * channels]`."""
        steps, taps, channels = windows.shape
        by, tap, channel = windows.strides
        shape = (steps, taps * channels)
        if (channel == 1 or channels == 1) and (tap == channels or taps == 1):
            return windows._replace(shape=shape, strides=(by, 1))
        return self.shaped(windows, shape)

    def _by_row(
        self,
        node: Any,
        rank: int,
        rest: Mapping[str, Any],
        function: Callable[[View], View],
    ) -> View:
        """Applies a function from `[channels, steps]` to such to each row of a node's input."""
        view = self._view(node.input[0])
        padded = any(rest.get("pads", ())) or rest.get("auto_pad", "NOTSET") != "NOTSET"
        if padded or math.prod(view.shape[2 : rank - 1]) != 1 or rest.get("ceil_mode"):
            raise UnknownOperationError(f"{node.op_type} with padding or over two axes")
        flat = view.moved([0, 1, rank - 1])
        rows = []
        for row in range(flat.shape[0]):
            rows.append(function(flat.cut(0, row, 1).moved([1, 2])))
        channels, steps = rows[0].shape
        sizes = [1, channels, *[1] * (rank - 3), steps]
        if len(rows) == 1:
            return self.shaped(rows[0], sizes)
        whole = self.new([len(rows), *sizes[1:]])
        for row, each in enumerate(rows):
            self.loop(whole.cut(0, row, 1), "{0}", self.shaped(each, sizes))
        return whole

    def _pooled(
        self,
        kind: str,
        node: Any,
        kernel_shape: Sequence[int],
        strides: Sequence[int],
        **rest: Any,
    ) -> list[View]:
        def pooled(row: View) -> View:
            return self.sums(kind, row.windows(kernel_shape[-1], strides[-1], 1), 2)

        return [self._by_row(node, 2 + len(kernel_shape), rest, pooled)]

    def _run_averagepool(self, node: Any, **attributes: Any) -> list[View]:
        return self._pooled("ReduceMean", node, **attributes)

    def _run_maxpool(self, node: Any, **attributes: Any) -> list[View]:
        return self._pooled("ReduceMax", node, **attributes)


def _attribute(value: Any) -> Any:
    from onnx import helper

    value = helper.get_attribute_value(value)
    return value.decode() if isinstance(value, bytes) else value
