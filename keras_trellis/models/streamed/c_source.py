"""A chunk's pass as C99 source: rings of a fixed size, no allocation, the C library alone.

What is written is the graph that `cache="host"` gives ONNX, for one row. All of its sizes are
known, so that an operation becomes plain loops. What selects or renames numbers (Reshape, Split,
Slice, Transpose) is another view of the same array, and no code at all.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import rings

FILES = ("support.h", "main.c", "Makefile")
"""What is the same for every model, beside this file in the folder `c`."""

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

_REDUCTIONS = {
    "ReduceMax": ("-INFINITY", "fmaxf(sum, {0})", "sum"),
    "ReduceMean": ("0", "sum + {0}", "sum / {1}"),
    "ReduceMin": ("INFINITY", "fminf(sum, {0})", "sum"),
    "ReduceSum": ("0", "sum + {0}", "sum"),
}
"""Where a reduction begins, how it goes on, and how it ends."""

_TYPES = {"float32": "float", "int32": "int32_t", "int64": "int32_t", "bool": "int32_t"}


class UnknownOperationError(Exception):
    """There is no form in C for an operation, which the message names."""


class View(NamedTuple):
    """Numbers of an array, by strides.

    Attributes:
        array: the name of the array.
        offset: where the first one stands.
        shape: how many there are along each axis.
        strides: how far apart they stand along each.
        kind: their type in C.
    """

    array: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether they stand one after the other."""
        expected = _strides(self.shape)
        return all(
            size == 1 or stride == dense
            for size, stride, dense in zip(
                self.shape, self.strides, expected, strict=True
            )
        )

    @property
    def pointer(self) -> str:
        """The address of the first one."""
        return f"{self.array} + {self.offset}"

    def moved(self, order: Sequence[int]) -> View:
        """Returns the view with its axes in another order."""
        return self._replace(
            shape=tuple(self.shape[axis] for axis in order),
            strides=tuple(self.strides[axis] for axis in order),
        )

    def cut(self, axis: int, begin: int, count: int, step: int = 1) -> View:
        """Returns some of the numbers along an axis."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + begin * strides[axis]
        shape[axis], strides[axis] = count, strides[axis] * step
        return self._replace(offset=offset, shape=tuple(shape), strides=tuple(strides))

    def broadcast(self, shape: Sequence[int]) -> View:
        """Returns the view repeated along the axes that it lacks or that have one number."""
        missing = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, shape[missing:], strict=True)
        strides = [0 if size == 1 != wanted else by for size, by, wanted in pairs]
        return self._replace(shape=tuple(shape), strides=(*[0] * missing, *strides))

    def windows(self, size: int, step: int, apart: int) -> View:
        """Returns the windows along the last axis, `[..., windows, size]`."""
        *rows, last = self.shape
        *by, stride = self.strides
        count = (last - (size - 1) * apart - 1) // step + 1
        return self._replace(
            shape=(*rows, count, size), strides=(*by, stride * step, stride * apart)
        )


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Program:
    """The graph as statements.

    Args:
        graph: of ONNX, whose inputs have known sizes.
        chunk: the names of the inputs that the caller has; the others are read of lines.

    Attributes:
        statements: the body of the pass.
        weights: the arrays that it reads.
        work: how many numbers it needs at once beside them.
    """

    def __init__(self, graph: Any, chunk: Sequence[str]) -> None:
        from onnx import helper, numpy_helper

        self.statements: list[str] = []
        self.weights: dict[str, np.ndarray] = {}
        self._constants = {
            each.name: numpy_helper.to_array(each) for each in graph.initializer
        }
        self._values: dict[str, View] = {}
        # When each array is used first and last, by which others take its place.
        self._used: dict[str, list[int]] = {}
        self._sizes: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        self._time = 0
        for value in graph.input:
            tensor = value.type.tensor_type
            shape = [size.dim_value for size in tensor.shape.dim]
            kind = _TYPES[helper.tensor_dtype_to_np_dtype(tensor.elem_type).name]
            name = identifier(value.name)
            if value.name in chunk:
                view = View(name, 0, tuple(shape), _strides(shape), kind)
            else:
                view = self._new(shape, kind, name)
            self._values[value.name] = view
        for node in graph.node:
            self._time += 1
            results = self._run(node)
            self._values.update(zip(node.output, results, strict=True))
        self._time += 1
        for value in graph.output:
            view = self._dense(self._view(value.name))
            self._use(view)
            self._values[value.name] = view
        self._offsets, self.work = self._placed()

    def __getitem__(self, name: str) -> View:
        """Returns an input or an output, whose numbers stand one after the other."""
        return self._values[name]

    def arrays(self) -> Iterator[str]:
        """Yields the declaration of each array of the pass."""
        for name, kind in self._kinds.items():
            if kind == "float":
                yield f"float *const {name} = stream->work + {self._offsets[name]};"
            else:  # few numbers: they count steps
                yield f"{kind} {name}[{self._sizes[name]}];"

    def _placed(self) -> tuple[dict[str, int], int]:
        """Returns where each array stands in the work space, and the size of that."""
        offsets: dict[str, int] = {}
        for name, (first, last) in self._used.items():
            if self._kinds[name] != "float":
                continue
            # The first gap between those that are in use at the same time.
            beside = sorted(
                (offset, offset + self._sizes[other])
                for other, offset in offsets.items()
                if self._used[other][0] <= last and self._used[other][1] >= first
            )
            begin = 0
            for low, high in beside:
                if begin + self._sizes[name] <= low:
                    break
                begin = max(begin, high)
            offsets[name] = begin
        ends = [offset + self._sizes[name] for name, offset in offsets.items()]
        return offsets, max(ends, default=1)

    def _run(self, node: Any) -> list[View]:
        kind = node.op_type
        attributes = {each.name: _attribute(each) for each in node.attribute}
        if kind in _CALLS:
            return [self._call(kind, node.input, attributes)]
        if kind in _REDUCTIONS:
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
            self._values[name] = self._weights(self._constants[name])
        view = self._values[name]
        self._use(view)
        return view

    def _weights(self, array: np.ndarray) -> View:
        # Numbered: two names of ONNX may be one in C.
        name = f"weights_{len(self.weights)}"
        self.weights[name] = array
        kind = _TYPES[array.dtype.name]
        return View(name, 0, array.shape, _strides(array.shape), kind)

    def _known(self, name: str) -> np.ndarray:
        """Returns a constant."""
        if name not in self._constants:
            raise UnknownOperationError(f"sizes that are computed, {name!r}")
        return self._constants[name]

    def _use(self, view: View) -> None:
        if view.array in self._used:
            self._used[view.array][1] = self._time

    def _new(self, shape: Sequence[int], kind: str = "float", name: str = "") -> View:
        name = name or f"t{len(self._used)}"
        self._used[name] = [self._time, self._time]
        self._sizes[name] = math.prod(shape)
        self._kinds[name] = kind
        return View(name, 0, tuple(shape), _strides(shape), kind)

    def _loop(self, to: View, expression: str, *inputs: View) -> None:
        """Writes `to = expression` for all places, which have the same axes in all views."""
        views = [to, *inputs]
        sizes, strides = _merged(to.shape, [view.strides for view in views])
        names = [f"i{axis}" for axis in range(len(sizes))]
        numbers = [
            view.array + _index(view.offset, names, by)
            for view, by in zip(views, strides, strict=True)
        ]
        heads = [
            f"for (int {name} = 0; {name} < {size}; {name}++) "
            for name, size in zip(names, sizes, strict=True)
        ]
        value = expression.format(*numbers[1:])
        self.statements.append(f"{''.join(heads)}{numbers[0]} = {value};")

    def _dense(self, view: View) -> View:
        """Returns the same numbers, one after the other."""
        if view.is_dense:
            return view._replace(strides=_strides(view.shape))
        copy = self._new(view.shape, view.kind)
        self._loop(copy, "{0}", view)
        return copy

    def _shaped(self, view: View, shape: Sequence[int]) -> View:
        view = self._dense(view)
        return view._replace(shape=tuple(shape), strides=_strides(shape))

    # Operations: one method for each kind.

    def _call(
        self, kind: str, names: Sequence[str], attributes: Mapping[str, Any]
    ) -> View:
        defaults = {"alpha": 1.0 if kind == "Elu" else 0.01, "gamma": 1.0}
        numbers = {
            name: _number(value)
            for name, value in (defaults | dict(attributes)).items()
            if isinstance(value, float)
        }
        inputs = [self._view(name) for name in names]
        shape = np.broadcast_shapes(*(view.shape for view in inputs))
        result = "int32_t" if kind in _TRUTHS else inputs[-1].kind
        to = self._new(shape, result)
        # First the constants of the operation, then the places of what it reads.
        expression = re.sub(
            r"\{(alpha|gamma)\}", lambda match: numbers[match[1]], _CALLS[kind]
        )
        self._loop(to, expression, *(view.broadcast(shape) for view in inputs))
        return to

    def _reduced(self, kind: str, node: Any, attributes: Mapping[str, Any]) -> View:
        view = self._view(node.input[0])
        if len(node.input) > 1 and node.input[1]:
            axes = self._known(node.input[1]).tolist()
        else:
            axes = attributes.get("axes", range(len(view.shape)))
        axes = sorted(axis % len(view.shape) for axis in axes)
        kept = [axis for axis in range(len(view.shape)) if axis not in axes]
        result = self._sums(kind, view.moved([*kept, *axes]), len(kept))
        if attributes.get("keepdims", 1):
            sizes = [
                1 if axis in axes else size for axis, size in enumerate(view.shape)
            ]
            return self._shaped(result, sizes)
        return result

    def _sums(self, kind: str, view: View, rank: int) -> View:
        """Reduces all axes but the first ones, of which there are `rank`."""
        begin, go_on, end = _REDUCTIONS[kind]
        to = self._new(view.shape[:rank], view.kind)
        names = [f"i{axis}" for axis in range(len(view.shape))]
        heads = [
            f"for (int {name} = 0; {name} < {size}; {name}++) "
            for name, size in zip(names, view.shape, strict=True)
        ]
        read = view.array + _index(view.offset, names, view.strides)
        wrote = to.array + _index(0, names[:rank], to.strides)
        count = math.prod(view.shape[rank:])
        self.statements.append(
            f"{''.join(heads[:rank])}{{ {view.kind} sum = {begin}; "
            f"{''.join(heads[rank:])}sum = {go_on.format(read)}; "
            f"{wrote} = {end.format(read, count)}; }}"
        )
        return to

    def _run_identity(self, node: Any) -> list[View]:
        return [self._view(node.input[0])]

    def _run_cast(self, node: Any, to: int) -> list[View]:
        view = self._view(node.input[0])
        kind = "float" if to == 1 else "int32_t"
        if kind == view.kind:
            return [view]
        result = self._new(view.shape, kind)
        self._loop(result, f"({kind}){{0}}", view)
        return [result]

    def _run_reshape(self, node: Any, **_: Any) -> list[View]:
        view = self._view(node.input[0])
        sizes = self._known(node.input[1]).tolist()
        sizes = [
            view.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)
        ]
        known = -math.prod(sizes) if -1 in sizes else 1
        return [
            self._shaped(
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
        result = self._new(shape, views[0].kind)
        begin = 0
        for view in views:
            count = view.shape[axis]
            if view.size:
                self._loop(result.cut(axis, begin, count), "{0}", view)
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
        result = self._new(shape, view.kind)
        self._loop(result, _number(value.item()))
        inner = result
        for axis, begin in enumerate(amounts[:rank]):
            inner = inner.cut(axis, begin, view.shape[axis])
        self._loop(inner, "{0}", view)
        return [result]

    def _run_gather(self, node: Any, axis: int = 0) -> list[View]:
        view = self._view(node.input[0])
        places = self._known(node.input[1])
        axis %= len(view.shape)
        chosen = (places % view.shape[axis]).reshape(-1).tolist()
        shape = [*view.shape[:axis], len(chosen), *view.shape[axis + 1 :]]
        result = self._new(shape, view.kind)
        for number, begin in enumerate(chosen):
            self._loop(result.cut(axis, number, 1), "{0}", view.cut(axis, begin, 1))
        shape[axis : axis + 1] = places.shape
        return [self._shaped(result, shape)]

    def _run_softmax(self, node: Any, axis: int = -1) -> list[View]:
        view = self._dense(self._view(node.input[0]))
        if axis % len(view.shape) != len(view.shape) - 1:
            raise UnknownOperationError("a softmax over another axis than the last one")
        result = self._new(view.shape)
        count = view.shape[-1]
        for row in range(0, view.size, count):
            self.statements.append(
                f"softmax({count}, {view.pointer} + {row}, {result.array} + {row});"
            )
        return [result]

    def _run_matmul(self, node: Any) -> list[View]:
        return [self._product(*map(self._view, node.input))]

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
        product = self._product(left, right.moved([1, 0]) if transB else right)
        if not addends:
            return [product]
        result = self._new(product.shape)
        self._loop(result, "{0} + {1}", product, addends[0].broadcast(product.shape))
        return [result]

    def _product(self, left: View, right: View) -> View:
        """Writes a product of matrices; axes before the last two are those of both."""
        left, right = self._rows(left), self._dense(right)
        *outer, rows, inner = left.shape
        columns = right.shape[-1]
        batches = math.prod(right.shape[:-2])
        if batches == 1:
            rows, outer = math.prod([*outer, rows]), []
        elif [*right.shape[:-2]] != outer:
            raise UnknownOperationError("a product of matrices with other axes")
        result = self._new([*left.shape[:-1], columns])
        stride = left.strides[-2]
        for batch in range(batches):
            self.statements.append(
                f"matmul({rows}, {inner}, {columns}, {left.pointer} + {batch * rows * stride}, "
                f"{stride}, {right.pointer} + {batch * inner * columns}, "
                f"{result.array} + {batch * rows * columns});"
            )
        return result

    def _rows(self, view: View) -> View:
        """Returns rows whose numbers stand one after the other, and which are equally far apart."""
        if len(view.shape) == 1:
            view = view._replace(shape=(1, *view.shape), strides=(0, *view.strides))
        *outer, rows, inner = view.shape
        if math.prod(outer) == 1 and (inner == 1 or view.strides[-1] == 1):
            stride = view.strides[-2]
        else:
            view = self._dense(view)
            stride = inner
        return view._replace(strides=(*view.strides[:-2], stride, 1))

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
            self._weights(each.reshape(taps * channels, per_group)) for each in grouped
        ]

        def convolved(row: View) -> View:
            windows = row.windows(taps, strides[-1], dilations[-1])
            steps = windows.shape[1]
            result = self._new([units, steps])
            for number, matrix in enumerate(matrices):
                own = windows.cut(0, number * channels, channels).moved([1, 2, 0])
                part = self._product(self._flat(own), matrix)
                to = result.cut(0, number * per_group, per_group)
                self._loop(to, "{0}", part.moved([1, 0]))
            return result

        whole = self._by_row(node, kernel.ndim, rest, convolved)
        if len(node.input) < 3:
            return [whole]
        bias = self._view(node.input[2])
        each = self._shaped(bias, [1, units, *[1] * (kernel.ndim - 2)])
        added = self._new(whole.shape)
        self._loop(added, "{0} + {1}", whole, each.broadcast(whole.shape))
        return [added]

    def _flat(self, windows: View) -> View:
        """Returns windows `[steps, taps, channels]` as rows `[steps, taps * channels]`."""
        steps, taps, channels = windows.shape
        by, tap, channel = windows.strides
        shape = (steps, taps * channels)
        if (channel == 1 or channels == 1) and (tap == channels or taps == 1):
            return windows._replace(shape=shape, strides=(by, 1))
        return self._shaped(windows, shape)

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
            return self._shaped(rows[0], sizes)
        whole = self._new([len(rows), *sizes[1:]])
        for row, each in enumerate(rows):
            self._loop(whole.cut(0, row, 1), "{0}", self._shaped(each, sizes))
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
            return self._sums(kind, row.windows(kernel_shape[-1], strides[-1], 1), 2)

        return [self._by_row(node, 2 + len(kernel_shape), rest, pooled)]

    def _run_averagepool(self, node: Any, **attributes: Any) -> list[View]:
        return self._pooled("ReduceMean", node, **attributes)

    def _run_maxpool(self, node: Any, **attributes: Any) -> list[View]:
        return self._pooled("ReduceMax", node, **attributes)


def _attribute(value: Any) -> Any:
    from onnx import helper

    value = helper.get_attribute_value(value)
    return value.decode() if isinstance(value, bytes) else value


def _merged(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Returns the axes of a loop with neighbours made one where all views allow it."""
    sizes: list[int] = []
    by: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [own[axis] for own in strides]
        if sizes and all(
            kept[-1] == stride * size for kept, stride in zip(by, here, strict=True)
        ):
            sizes[-1] *= size
            for kept, stride in zip(by, here, strict=True):
                kept[-1] = stride
        else:
            sizes.append(size)
            for kept, stride in zip(by, here, strict=True):
                kept.append(stride)
    return sizes, by


def _index(offset: int, names: Sequence[str], strides: Sequence[int]) -> str:
    terms = [str(offset)] if offset or not any(strides) else []
    for name, stride in zip(names, strides, strict=True):
        if stride:
            terms.append(name if stride == 1 else f"{name} * {stride}")
    return f"[{' + '.join(terms)}]"


def _number(value: Any) -> str:
    if isinstance(value, (int, np.integer, bool, np.bool_)):
        return str(int(value))
    if not math.isfinite(value):
        return (
            "NAN" if math.isnan(value) else ("INFINITY" if value > 0 else "-INFINITY")
        )
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def identifier(name: str) -> str:
    """Returns a name as one of C."""
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def _array(name: str, values: np.ndarray) -> str:
    """Returns a table of numbers."""
    kind = _TYPES[values.dtype.name]
    numbers = [_number(value) for value in values.reshape(-1)] or ["0"]
    rows = [
        ", ".join(numbers[begin : begin + 8]) for begin in range(0, len(numbers), 8)
    ]
    body = ",\n  ".join(rows)
    return f"static const {kind} {name}[{len(numbers)}] = {{\n  {body}\n}};\n"


def _entries(name: str, part: rings.Part, lengths: np.ndarray) -> str:
    offsets = part.offset % lengths[part.line]
    rows = [
        f"{{{line}, {base}, {offset}}}"
        for line, base, offset in zip(part.line, part.base, offsets, strict=True)
    ]
    return f"static const entry {name}[{len(rows)}] = {{{', '.join(rows)}}};\n"


def sources(
    graph: Any,
    table: rings.Table,
    inputs: Sequence[str],
    outputs: Sequence[str],
    prefix: str,
) -> dict[str, str]:
    """Returns the files of a model: `model.h`, `model.c`, `weights.h`, and those of every model.

    Args:
        graph: the pass over a chunk of one row, of ONNX.
        table: its delay lines.
        inputs: the names of the chunk's inputs.
        outputs: those of its outputs.
        prefix: what the functions' names begin with.

    Raises:
        UnknownOperationError: the graph has an operation that this lacks.
    """
    program = Program(graph, inputs)
    lines = max(len(table.lines), 1)
    fields = [
        f"  {_TYPES[pool.dtype]} {pool.name}[{pool.size * math.prod(pool.shape)}];\n"
        for pool in table.pools
    ]
    sizes = [sum(program[name].size for name in names) for names in (inputs, outputs)]
    header = _HEADER.format(
        prefix=prefix,
        inputs=sizes[0],
        outputs=sizes[1],
        fields="".join(fields),
        lines=lines,
        work=program.work,
    )
    tables, begins, reads, writes = [], [], [], []
    for pool in table.pools:
        name, width = pool.name, math.prod(pool.shape)
        where = f"table_{name}"
        tables.append(_entries(f"read_{where}", pool.read, table.lengths))
        tables.append(_entries(f"write_{where}", pool.written, table.lengths))
        first = table.initial(pool)
        if first.any():
            tables.append(_array(f"first_{name}", first))
            begins.append(
                f"  memcpy(stream->{name}, first_{name}, sizeof first_{name});\n"
            )
        kind = _TYPES[pool.dtype]
        common = f"sizeof({kind}) * {width}, "
        rest = "stream->next, lengths);\n"
        count = len(pool.read.line)
        reads.append(
            f"  read_lines((char *){name}, (const char *)stream->{name}, {common}"
            f"read_{where}, {count}, {rest}"
        )
        made = program[rings.new(name)]
        writes.append(
            f"  write_lines((char *)stream->{name}, (const char *)({made.pointer}), {common}"
            f"write_{where}, {len(pool.written.line)}, {rest}"
        )
    arrays = [f"  {array}\n" for array in program.arrays()]
    chunk, place = [], 0
    for name in inputs:
        chunk.append(f"  const float *const {identifier(name)} = chunk + {place};\n")
        place += program[name].size
    results, place = [], 0
    for name in outputs:
        view = program[name]
        results.append(
            f"  memcpy(outputs + {place}, {view.pointer}, sizeof(float) * {view.size});\n"
        )
        place += view.size
    body = "".join(f"  {statement}\n" for statement in program.statements)
    source = _SOURCE.format(
        prefix=prefix,
        lengths=", ".join(map(str, table.lengths)) or "1",
        pushed=", ".join(map(str, table.pushed)) or "0",
        lines=lines,
        tables="".join(tables),
        begins="".join(begins),
        locals="".join([*chunk, *arrays, *reads]),
        body=body,
        results="".join([*results, *writes]),
    )
    weights = "".join(_array(*each) for each in program.weights.items())
    shared = Path(__file__).parent / "c"
    files = {
        name: (shared / name).read_text().replace("MODEL", prefix) for name in FILES
    }
    return {"model.h": header, "model.c": source, "weights.h": weights} | files


_HEADER = """/* Written by keras_trellis: a streamed model, a chunk at a time. */
#include <stdint.h>

#define {prefix}_INPUTS {inputs} /* the numbers of a chunk: step after step, of each input */
#define {prefix}_OUTPUTS {outputs} /* those that it answers */

/* A stream: what it has read, and space to compute in. */
typedef struct {{
{fields}  int32_t next[{lines}];
  float work[{work}];
}} {prefix}_stream;

/* Begins a stream. */
void {prefix}_begin({prefix}_stream *stream);

/* Reads the next chunk. */
void {prefix}_advance({prefix}_stream *stream, const float *chunk, float *outputs);
"""

_SOURCE = """#include "model.h"

#include "support.h"
#include "weights.h"

static const int32_t lengths[{lines}] = {{{lengths}}};
static const int32_t pushed[{lines}] = {{{pushed}}};
{tables}
void {prefix}_begin({prefix}_stream *stream) {{
  memset(stream, 0, sizeof *stream);
{begins}}}

void {prefix}_advance({prefix}_stream *stream, const float *chunk, float *outputs) {{
{locals}{body}{results}  for (int line = 0; line < {lines}; line++)
    stream->next[line] = (stream->next[line] + pushed[line]) % lengths[line];
}}
"""
