"""What a streamed model keeps and computes: the table of its summary."""

from __future__ import annotations

import math
import re
from typing import Any

from keras import layers

from keras_trellis.layers.equilibrium import EquilibriumTrellisLayer
from keras_trellis.layers.recurrent import RecurrentLayer
from keras_trellis.layers.trellis_base import TrellisBase
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.streamed.plan import Node, Plan
from keras_trellis.recurrent.tensorized import TensorizedLSTM

_HEAD = ("layer", "keeps", "bytes a row", "multiply-adds a step")


def table(plan: Plan) -> str:
    """Returns the layers of a plan, what they keep and what they compute, and the sums."""
    rows: list[tuple[str, ...]] = [_HEAD]
    sums = [0, 0.0]
    for node in plan.nodes:
        layer = node.rule.layer
        numbers = row_bytes(node), _rate(node, plan) * multiply_adds(layer)
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        kind = f"{node.path} ({type(layer).__name__})"
        rows.append((kind, node.rule.past, *map(_text, numbers)))
    rows.append(("all", "", *map(_text, sums)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    if plan.stride > 1:
        lines.append(f"A chunk has a multiple of {plan.stride} time steps.")
    if any(iterates(node.rule.layer) for node in plan.nodes):
        lines.append("An EquilibriumTrellisLayer counts one turn of its levels.")
    return "\n".join(lines)


def row_bytes(node: Node) -> int:
    """Returns the bytes of what a call keeps of one row."""
    total = 0
    for spec in node.unpack(node.cache).values():
        bits = re.search(r"\d+", spec.dtype)
        total += math.prod(spec.shape) * int(bits[0] if bits else 8) // 8
    return total


def _rate(node: Node, plan: Plan) -> float:
    """Returns how often a layer runs for each step of the input."""
    return 1 / ((node.stride or plan.stride) * node.rule.stride)


def multiply_adds(layer: Any) -> int:
    """Returns the multiply-adds of a layer's products with weights in one time step.

    Every matrix is used once, a convolution's kernel at one place, but for those of these layers.
    """
    if isinstance(layer, layers.Embedding):
        return 0
    if isinstance(layer, (RecurrentLayer, TrellisClassifier)):
        return sum(map(multiply_adds, layer.layers))
    if isinstance(layer, TrellisBase) and not _is_stack(layer):
        return _trellis(layer)
    weights = getattr(layer, "weights", [])  # an operation has none
    matrices = [w for w in weights if len(w.shape) > 1 and "bias" not in w.name]
    total = sum(math.prod(matrix.shape) for matrix in matrices)
    if isinstance(layer, TensorizedLSTM):
        # It runs all places, and `delay` steps ahead to see its output.
        places = layer.cell.grid.places
        times = places if layer.delayed else places * layer.depth
        total += (times - 1) * math.prod(layer.cell.recurrent_kernel.shape)
    return total


def _is_stack(layer: TrellisBase) -> bool:
    """Returns whether a layer is a stack of recurrent ones, with a product for each matrix."""
    infinite = isinstance(layer, EquilibriumTrellisLayer)
    return (
        infinite
        and layer.groups > 1
        and layer.kernel_size == 2
        and layer.state_is_exact
    )


def iterates(layer: Any) -> bool:
    """Returns whether a layer, or the one in it, applies its levels until they settle."""
    inner = [layer, getattr(layer, "trellis", None), getattr(layer, "layer", None)]
    infinite = [part for part in inner if isinstance(part, EquilibriumTrellisLayer)]
    return not all(map(_is_stack, infinite))


def _trellis(layer: TrellisBase) -> int:
    channels = layer.gate.blocks * layer.units
    # A kernel of groups is multiplied as a dense one. Below the first level all is zero now.
    levels = layer.depth * layer.kernel_size
    if not isinstance(layer, EquilibriumTrellisLayer):
        levels -= 1
    past_taps = layer.kernel_size - 1 if layer.groups == 1 else 0
    taps = 1 + past_taps * len(set(layer.dilation_rate))
    return channels * (levels * layer.units + taps * layer.input_units)


def _text(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, past, *numbers = row
    begin = f"{name:<{widths[0]}}  {past:<{widths[1]}}"
    pairs = zip(numbers, widths[2:], strict=True)
    return "  ".join([begin, *(f"{number:>{width}}" for number, width in pairs)])
