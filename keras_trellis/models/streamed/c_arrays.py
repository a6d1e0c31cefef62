"""Arrays of a pass in C, and the loops over them.

What selects or renames numbers of an array is another view of it, and no code at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

TYPES = {"float32": "float", "int32": "int32_t", "int64": "int32_t", "bool": "int32_t"}
"""The type in C of the numbers of an array."""

REDUCTIONS = {
    "ReduceMax": ("-INFINITY", "fmaxf(sum, {0})", "sum"),
    "ReduceMean": ("0", "sum + {0}", "sum / {1}"),
    "ReduceMin": ("INFINITY", "fminf(sum, {0})", "sum"),
    "ReduceSum": ("0", "sum + {0}", "sum"),
}
"""Where a reduction begins, how it goes on, and how it ends."""


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
        expected = strides(self.shape)
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


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns how far apart numbers stand along each axis of an array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Arrays:
    """The arrays of a pass, and the statements that write them.

    Attributes:
        statements: the body of the pass.
        weights: the arrays of constants that it reads.
        time: which operation is written: two arrays that no operation needs both have one place.
    """

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.weights: dict[str, np.ndarray] = {}
        self.time = 0
        # When each array is used first and last, by which others take its place.
        self._used: dict[str, list[int]] = {}
        self._sizes: dict[str, int] = {}
        self._kinds: dict[str, str] = {}

    def declarations(self) -> tuple[list[str], int]:
        """Returns the declarations of the arrays, and how many numbers the work space has."""
        offsets, size = self._placed()
        return [*self._declared(offsets)], size

    def _declared(self, offsets: dict[str, int]) -> Iterator[str]:
        for name, kind in self._kinds.items():
            if kind == "float":
                yield f"float *const {name} = stream->work + {offsets[name]};"
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

    def constant(self, array: np.ndarray) -> View:
        """Returns an array of weights."""
        # Numbered: two names of ONNX may be one in C.
        name = f"weights_{len(self.weights)}"
        self.weights[name] = array
        kind = TYPES[array.dtype.name]
        return View(name, 0, array.shape, strides(array.shape), kind)

    def use(self, view: View) -> None:
        """Keeps the place of an array until this time."""
        if view.array in self._used:
            self._used[view.array][1] = self.time

    def new(self, shape: Sequence[int], kind: str = "float", name: str = "") -> View:
        """Returns an array."""
        name = name or f"t{len(self._used)}"
        self._used[name] = [self.time, self.time]
        self._sizes[name] = math.prod(shape)
        self._kinds[name] = kind
        return View(name, 0, tuple(shape), strides(shape), kind)

    def loop(self, to: View, expression: str, *inputs: View) -> None:
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

    def dense(self, view: View) -> View:
        """Returns the same numbers, one after the other."""
        if view.is_dense:
            return view._replace(strides=strides(view.shape))
        copy = self.new(view.shape, view.kind)
        self.loop(copy, "{0}", view)
        return copy

    def shaped(self, view: View, shape: Sequence[int]) -> View:
        """Returns the same numbers in another shape."""
        view = self.dense(view)
        return view._replace(shape=tuple(shape), strides=strides(shape))

    def sums(self, kind: str, view: View, rank: int) -> View:
        """Reduces all axes but the first ones, of which there are `rank`."""
        begin, go_on, end = REDUCTIONS[kind]
        to = self.new(view.shape[:rank], view.kind)
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

    def product(self, left: View, right: View) -> View:
        """Writes a product of matrices; axes before the last two are those of both."""
        left, right = self._rows(left), self.dense(right)
        *outer, rows, inner = left.shape
        columns = right.shape[-1]
        batches = math.prod(right.shape[:-2])
        if batches == 1:
            rows, outer = math.prod([*outer, rows]), []
        elif [*right.shape[:-2]] != outer:
            raise UnknownOperationError("a product of matrices with other axes")
        result = self.new([*left.shape[:-1], columns])
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
            view = self.dense(view)
            stride = inner
        return view._replace(strides=(*view.strides[:-2], stride, 1))


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


def identifier(name: str) -> str:
    """Returns a name as one of C."""
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def literal(value: Any) -> str:
    """Returns a number as C writes it."""
    if isinstance(value, (int, np.integer, bool, np.bool_)):
        return str(int(value))
    if not math.isfinite(value):
        return (
            "NAN" if math.isnan(value) else ("INFINITY" if value > 0 else "-INFINITY")
        )
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
