"""What a streamed model keeps and computes: the table of its summary."""

from __future__ import annotations

import math
import re
from typing import Any

import keras
from keras import layers, ops

from keras_trellis.backend import current as backend
from keras_trellis.layers.equilibrium import EquilibriumTrellisLayer
from keras_trellis.layers.recurrent import RecurrentLayer
from keras_trellis.layers.trellis_base import TrellisBase
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.language_model import TrellisLM
from keras_trellis.models.streamed.plan import Node, Plan
from keras_trellis.models.streamed.recurrent import Cached, Lined
from keras_trellis.models.streamed.rule import Signal
from keras_trellis.recurrent.tensorized import TensorizedLSTM

_HEAD = ("layer", "keeps", "bytes a row", "moved a step", "multiply-adds a step")


def table(plan: Plan) -> str:
    """Returns the layers of a plan, what they keep and what they compute, and the sums."""
    rows: list[tuple[str, ...]] = [_HEAD]
    totals = [0.0, 0.0, 0.0]
    for node in plan.nodes:
        layer = node.rule.layer
        products = _rate(node, plan) * _products(node)
        numbers = (*_bytes(node, plan.stride), products)
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        kind = f"{node.path} ({type(layer).__name__})"
        rows.append((kind, node.rule.past, *map(_text, numbers)))
    rows.append(("all", "", *map(_text, totals)))
    columns = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for name, past, *texts in rows:
        cells = [name.ljust(widths[0]), past.ljust(widths[1])]
        cells += map(str.rjust, texts, widths[2:])
        lines.append("  ".join(cells))
    if plan.stride > 1:
        lines.append(f"A chunk has a multiple of {plan.stride} time steps.")
    if any(iterates(node.rule.layer) for node in plan.nodes):
        lines.append("An EquilibriumTrellisLayer counts one turn of its levels.")
    return "\n".join(lines)


def _bytes(node: Node, steps: int) -> tuple[float, float]:
    """Returns the bytes that a call keeps of one row, and those that it reads and writes a step.

    Args:
        node: the call.
        steps: the steps of a chunk.
    """
    kept, moved = 0, 0
    own_steps = node.own_steps(steps)
    for line in node.lines.values():
        # The width of a dtype stands in its name; a bool has none, and takes a byte.
        digits = re.search(r"\d+", line.dtype)
        bits = int(digits[0]) if digits else 8
        entry = math.prod(line.shape) * bits // 8
        kept += entry * line.length
        written = min(own_steps, line.length)
        moved += entry * (len(line.places(own_steps)) + written)
    return kept, moved / steps


def _rate(node: Node, plan: Plan) -> float:
    """Returns how often a layer runs for each step of the input."""
    # What reads an answer runs once a chunk.
    stride = node.stride or plan.stride
    return 1 / (stride * node.rule.stride)


def _products(node: Node) -> int:
    """Returns the multiply-adds of a call; a step of a layer of a user's own is traced."""
    rule = node.rule
    known = multiply_adds(rule.layer)
    is_ours = type(rule.layer).__module__.startswith("keras_trellis.")
    if is_ours or type(rule) not in (Cached, Lined):
        return known

    def step(signal: Any) -> Any:
        if not isinstance(signal, Signal):
            return signal
        return ops.zeros([1, 1, *signal.shape[2:]], rule.layer.compute_dtype)

    inputs = keras.tree.map_structure(step, node.args)
    cache = rule.get_initial_cache(1)

    def run(cache: Any, *inputs: Any) -> Any:
        return rule.stream(cache, None, *inputs)

    return max(known, backend.multiply_adds(run, cache, *inputs))


def multiply_adds(layer: Any) -> int:
    """Returns the multiply-adds of a layer's products with weights in one time step.

    Every matrix is used once, a convolution's kernel at one place, but for those of these layers.
    """
    if isinstance(layer, layers.Embedding):
        return 0
    if isinstance(layer, RecurrentLayer):
        return sum(map(multiply_adds, layer.layers))
    if isinstance(layer, TrellisClassifier):  # its stem is calls of its own
        return multiply_adds(layer.trellis) + multiply_adds(layer.dense)
    if isinstance(layer, TrellisLM):
        outputs = ops.zeros([1, 1, layer.trellis.output_units], layer.compute_dtype)
        head = backend.multiply_adds(layer.logits, outputs)
        return head + multiply_adds(layer.trellis)
    if isinstance(layer, TrellisBase) and not _is_stack(layer):
        return _trellis(layer)
    weights = getattr(layer, "weights", [])  # an operation has none
    total = 0
    for weight in weights:
        if len(weight.shape) > 1 and "bias" not in weight.name:
            total += math.prod(weight.shape)
    if isinstance(layer, TensorizedLSTM):
        # It runs all places, and `delay` steps ahead to see its output.
        cell = layer.cell
        times = cell.grid.places
        if not layer.delayed:
            times *= layer.depth
        total += (times - 1) * math.prod(cell.recurrent_kernel.shape)
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
    taps = 1
    # Groups read the input by one tap. Else the present tap is one product for all dilations, and
    # each dilation has past taps of its own.
    if layer.groups == 1:
        dilations = set(layer.dilation_rate)
        taps += (layer.kernel_size - 1) * len(dilations)
    hidden = levels * layer.units
    injected = taps * layer.input_units
    products: int = channels * (hidden + injected)
    return products


def _text(number: float) -> str:
    if number == int(number):
        return f"{number:,.0f}"
    return f"{number:,.1f}"
