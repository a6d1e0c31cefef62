"""How a whole model streams: its calls, each with its rule and the names of its cache."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis.core.caches import Layout, named
from keras_trellis.core.lines import Line
from keras_trellis.models.streamed import rules, windows
from keras_trellis.models.streamed.calls import Call, Graph, graph, is_graph
from keras_trellis.models.streamed.rule import NotStreamableError, Rule, Signal, signals
from keras_trellis.types import Number, Tensor

_SLOT = operator.attrgetter("slot")


class Node(NamedTuple):
    """One call.

    Attributes:
        path: the name of the layer, after those of the models that it is in.
        rule: how it streams.
        stride: how many steps of the model's input a step of its own stands for; None: it reads an
            answer.
        args: its arguments, with a `Signal` for each tensor of the model.
        kwargs: its named arguments.
        outputs: what it returns, flat.
        cache: the shapes of what it keeps of one row, with their names; what is empty has none.
        lines: its delay lines, by name: those that its rule declares, or one for each tensor of its
            cache.
        keys: the names of these that its rule knows, in their order; None where its cache goes on
            as a whole.
        stepwise: whether a recurrent layer takes one step after the other, without a loop in its
            graph.
    """

    path: str
    rule: Rule
    stride: int | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Signal]
    cache: Layout
    lines: dict[str, Line]
    keys: list[str] | None
    stepwise: bool = False

    def own_steps(self, steps: int) -> int:
        """Returns how many entries its lines get for a chunk of so many steps of the model."""
        if self.keys is None or self.stride is None:
            # What goes on as a whole is one entry, which each chunk replaces.
            return 1
        return steps // self.stride

    def initial_entries(self) -> dict[str, list[Any]]:
        """Returns what its lines begin with where that is not zeros."""
        if self.keys is not None:
            return {}
        # Declared lines begin with zeros; a recurrent cell of a user's own may begin otherwise.
        begun = self.cache.flatten(self.rule.get_initial_cache(1))
        arrays = {name: ops.convert_to_numpy(begun[name])[0] for name in begun}
        return {name: array.tolist() for name, array in arrays.items() if array.any()}

    def stream(
        self,
        cache: Mapping[str, Tensor],
        rows: Number,
        mask: Any,
        args: Any,
        kwargs: Any,
    ) -> tuple[Any, dict[str, Tensor]]:
        """Continues from a cache.

        Args:
            cache: that of all nodes.
            rows: B.
            mask: what its rule takes.
            args: its arguments.
            kwargs: its named arguments.

        Returns:
            what the layer returns, and the tensors of its own next cache.
        """
        stream = self.rule.stream_stepwise if self.stepwise else self.rule.stream
        outputs, after = stream(self.cache.pack(cache, rows), mask, *args, **kwargs)
        return outputs, self.cache.flatten(after)

    def advance(
        self,
        past: Mapping[str, Tensor],
        rows: Number,
        mask: Any,
        args: Any,
        kwargs: Any,
    ) -> tuple[Any, dict[str, Tensor]]:
        """Continues from what a chunk reads of its lines.

        Args:
            past: the entries of all lines.
            rows: as for `stream`, and so are the others.
            mask: see there.
            args: see there.
            kwargs: see there.

        Returns:
            what the layer returns, and the new entries of its lines.
        """
        if self.keys is None:
            # Lines of length one: the entry is the tensor itself, and the next one takes its place.
            last = {name: past[name][:, 0] for name in self.lines}
            outputs, after = self.stream(last, rows, mask, args, kwargs)
            return outputs, {name: after[name][:, None] for name in after}
        if any(valid is not None for valid in keras.tree.flatten(mask)):
            raise ValueError(
                f"No mask may reach {self.path!r} here: `stream` takes masks. "
                "Received: a mask of time steps"
            )
        name_by_key = dict(zip(self.keys, self.lines, strict=True))
        own = {key: past[name] for key, name in name_by_key.items()}
        outputs, pushed = self.rule.advance(own, *args, **kwargs)
        return outputs, {name: pushed[key] for key, name in name_by_key.items()}


class Plan(NamedTuple):
    """A whole model.

    Attributes:
        inputs: its inputs, flat.
        nodes: its calls, in order.
        outputs: its outputs, flat.
    """

    inputs: list[Signal]
    nodes: list[Node]
    outputs: list[Signal]

    @property
    def stride(self) -> int:
        """The least number of steps after which every layer has taken whole steps."""
        strides = [signal.stride for node in self.nodes for signal in node.outputs]
        known = [stride for stride in strides if stride is not None]
        return math.lcm(*known)

    @property
    def specs(self) -> dict[str, keras.KerasTensor]:
        """The tensors of the cache of one row, by name."""
        specs: dict[str, keras.KerasTensor] = {}
        for node in self.nodes:
            specs |= node.cache.flatten(node.cache.nest)
        return specs

    def get_initial_cache(self, batch_size: Number) -> dict[str, Tensor]:
        """Returns the cache before the first step."""
        tensors: dict[str, Tensor] = {}
        for node in self.nodes:
            cache = node.rule.get_initial_cache(batch_size)
            tensors |= node.cache.flatten(cache)
        return tensors

    def stepwise(self) -> Plan:
        """Returns the plan whose recurrent layers have no loop in their graphs."""
        return self._replace(nodes=[n._replace(stepwise=True) for n in self.nodes])

    def run(
        self,
        inputs: Sequence[Tensor],
        masks: Sequence[Tensor | None],
        past: Mapping[str, Tensor],
        rows: Number,
        go_on: Callable[..., tuple[Any, dict[str, Tensor]]] = Node.stream,
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Continues where the chunk before ended.

        Args:
            inputs: the chunk, flat: each `[B, n, ...]`.
            masks: for each of these bool `[B, n]`, or None.
            past: what `go_on` takes: a cache, or of each line the entries at `line.places(n)`.
            rows: B.
            go_on: `Node.stream` from a cache, or `Node.advance` from what a chunk reads of lines.

        Returns:
            the outputs, flat, and what `go_on` makes: the next cache, or new entries of each line.
        """
        after: dict[str, Tensor] = {}
        values = _by_slot(self.inputs, inputs)
        valid = _by_slot(self.inputs, masks)
        for node in self.nodes:
            args, kwargs = _replaced((node.args, node.kwargs), Signal, _SLOT, values)
            # A mask that the call names goes before those that stand on its inputs.
            mask = kwargs.pop("mask", None)
            if mask is None:
                mask = _masks(node.args[0], values, valid)
            with _unchanged(node.rule.layer):
                outputs, made = go_on(node, past, rows, mask, args, kwargs)
            after |= made
            values |= _by_slot(node.outputs, keras.tree.flatten(outputs))
            # Masks go from call to call beside the tensors: a layer hands its own on, changes or
            # drops it.
            output_masks = _output_masks(node, args, mask)
            valid |= _by_slot(node.outputs, output_masks)
        return [values[signal.slot] for signal in self.outputs], after


def plan(model: keras.Model, reserved: Sequence[str]) -> Plan:
    """Plans how a model streams.

    Args:
        model: the model; `is_graph` holds for it, and it is built.
        reserved: names that no tensor of the cache may have.

    Raises:
        ValueError: a layer cannot be streamed.
    """
    planner = _Planner(reserved)
    own = graph(model)
    inputs = [planner.signal(tensor.shape, stride=1) for tensor in own.inputs]
    outputs = planner.run(own, inputs)
    return Plan(inputs, planner.nodes, outputs)


class _Planner:
    """Goes through the calls of a model, and of the models that it calls."""

    def __init__(self, reserved: Sequence[str]) -> None:
        self.nodes: list[Node] = []
        self._taken = set(reserved)
        self._line_names: set[str] = set()
        self._slots = itertools.count()

    def signal(
        self, shape: Sequence[int | None], stride: int | None, lead: int = 0
    ) -> Signal:
        return Signal(next(self._slots), tuple(shape), stride, lead)

    def run(
        self, model: Graph, inputs: Sequence[Signal], path: tuple[str, ...] = ()
    ) -> list[Signal]:
        """Plans the calls of a model, and returns its outputs."""
        known = _by_id(model.inputs, inputs)
        for call in model.calls:
            symbols = call.args, call.kwargs
            args, kwargs = _replaced(symbols, keras.KerasTensor, id, known)
            names = (*path, call.layer.name)
            try:
                outputs = self._call(call, args, kwargs, names)
            except NotStreamableError as reason:
                name = "/".join(names)
                kind = type(call.layer).__name__
                raise ValueError(
                    f"`model` cannot be streamed: its layer {name!r}, {kind}, {reason}."
                ) from None
            known |= _by_id(call.outputs, outputs)
        return [known[id(tensor)] for tensor in model.outputs]

    def _call(
        self, call: Call, args: Any, kwargs: Any, path: tuple[str, ...]
    ) -> list[Signal]:
        # A model in the model is planned call by call: its layers keep caches of their own.
        if is_graph(call.layer):
            inputs = _read(call.layer, args, kwargs)
            return self.run(graph(call.layer), inputs, path)
        for convolution in getattr(call.layer, "convolutions", ()):  # of a classifier
            args = tuple(self._stem(convolution, args, kwargs, path))
        rule = rules.rule(call.layer, args, kwargs)
        shapes = [tensor.shape for tensor in call.outputs]
        return self._node(rule, args, kwargs, shapes, path)

    def _stem(
        self,
        convolution: keras.layers.Conv1D,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        path: tuple[str, ...],
    ) -> list[Signal]:
        """Plans a convolution before the layer of a classifier; returns its output."""
        inputs = args[0]
        rule = windows.stem(convolution, inputs)
        shape = convolution.compute_output_shape(inputs.shape)
        masks = {key: kwargs[key] for key in kwargs if key == "mask"}
        return self._node(rule, (inputs,), masks, [shape], (*path, convolution.name))

    def _node(
        self,
        rule: Rule,
        args: Any,
        kwargs: dict[str, Any],
        shapes: Sequence[Sequence[int | None]],
        path: tuple[str, ...],
    ) -> list[Signal]:
        """Adds a call by its rule; returns its outputs, which have these shapes."""
        # One is enough: `rules.rule` refuses tensors of different strides.
        first, *_ = signals((args, kwargs))
        count = len(shapes)
        strides: list[int | None] = [None] * count
        # What reads an answer returns answers.
        if first.stride is not None:
            strides = rule.output_strides(first.stride, count)
        outputs = [
            self.signal(shape, stride, rule.lead)
            for shape, stride in zip(shapes, strides, strict=True)
        ]
        cache = rule.get_initial_cache(1)
        cache = keras.tree.map_structure(_spec, cache)
        layout = Layout(cache, self._names(path, cache))
        declared = rule.lines()
        if declared is None:
            lines = _cache_lines(layout.flatten(cache))
        else:
            lines = self._named_lines(path, declared)
        node = Node(
            path="/".join(path),
            rule=rule,
            stride=first.stride,
            args=args,
            # A call with training=True has been refused: all run at inference.
            kwargs={key: value for key, value in kwargs.items() if key != "training"},
            outputs=outputs,
            cache=layout,
            lines=lines,
            keys=None if declared is None else [*declared],
        )
        self.nodes.append(node)
        return outputs

    def _names(self, path: tuple[str, ...], cache: Any) -> list[str | None]:
        """Returns names of letters, digits and underscores, which all formats take."""
        prefix = plain_name("_".join(path))
        return [
            _another_name(wanted, self._taken) if math.prod(spec.shape) else None
            for wanted, spec in named(prefix, cache).items()
        ]

    def _named_lines(
        self, path: tuple[str, ...], declared: Mapping[str, Line]
    ) -> dict[str, Line]:
        """Returns the delay lines of a call, by names that no other has."""
        prefix = plain_name("_".join(path))
        return {
            _another_name(f"{prefix}_{key}", self._line_names): line
            for key, line in declared.items()
        }


def _cache_lines(specs: Mapping[str, keras.KerasTensor]) -> dict[str, Line]:
    """Returns a delay line of length one for each tensor of a cache that has a name."""
    return {
        name: Line(tuple(spec.shape[1:]), (1,), spec.dtype)
        for name, spec in specs.items()
    }


def plain_name(name: str) -> str:
    """Returns a name of letters, digits and underscores alone."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _another_name(name: str, taken: set[str]) -> str:
    """Takes a name that is not taken. A layer that is called twice keeps two caches."""
    later = (f"{name}_call{number}" for number in itertools.count(2))
    # In the order of the calls, so that a model has the same names in every process.
    candidates = itertools.chain([name], later)
    chosen = next(free for free in candidates if free not in taken)
    taken.add(chosen)
    return chosen


def flat_inputs(model: keras.Model, values: Any) -> list[Any]:
    """Returns inputs in the order of `model.inputs`; a dictionary may have them by name.

    Raises:
        KeyError: a name is missing.
    """
    if isinstance(values, Mapping):
        names = [tensor.name for tensor in model.inputs]
        if isinstance(model, keras.Function) and isinstance(model.input, Mapping):
            # As `keras.tree.flatten` orders a dictionary, and so `model.inputs`.
            names = sorted(model.input)
        values = [values[name] for name in names]
    return keras.tree.flatten(values)


def _read(model: keras.Model, args: Any, kwargs: Any) -> list[Signal]:
    """Returns what a model inside of a model reads."""
    # Whatever else it is given could change its layers, and its graph would not show it.
    others = [key for key, value in kwargs.items() if value and key != "mask"]
    if len(args) != 1 or others:
        raise NotStreamableError("is called with more than its inputs and masks")
    read = flat_inputs(model, args[0])
    for signal, tensor in zip(read, model.inputs, strict=True):
        if len(signal.shape) != len(tensor.shape):
            raise NotStreamableError(
                f"gets a tensor of shape {signal.shape} for {tensor.shape}"
            )
    if kwargs.get("mask") is None:
        return read
    masks = flat_inputs(model, kwargs["mask"])
    masked = []
    for signal, mask in zip(read, masks, strict=True):
        if mask is not None:
            signal = dataclasses.replace(signal, mask=mask)
        masked.append(signal)
    return masked


def _unchanged(layer: Any) -> AbstractContextManager[Any]:
    """Drops what a call does to variables.

    A recurrent cell of Keras draws masks of dropout, and advances its seed, at inference too.
    """
    variables = getattr(layer, "variables", [])
    weights = getattr(layer, "weights", [])
    if len(variables) == len(weights):
        return contextlib.nullcontext()
    # What the call assigns stays in the scope, and goes with it.
    values = [(variable, variable.value) for variable in variables]
    scope: AbstractContextManager[Any] = keras.StatelessScope(state_mapping=values)
    return scope


def _by_slot(signals: Sequence[Signal], values: Sequence[Any]) -> dict[int, Any]:
    return dict(zip(map(_SLOT, signals), values, strict=True))


def _by_id(
    tensors: Sequence[keras.KerasTensor], signals: Sequence[Signal]
) -> dict[int, Signal]:
    """Returns signals by the identity of the symbolic tensors that they stand for."""
    return dict(zip(map(id, tensors), signals, strict=True))


def _replaced(
    arguments: Any, kind: type, key: Callable[[Any], int], values: Mapping[int, Any]
) -> Any:
    """Returns arguments with values, by a key, in the place of those of a kind."""

    def replace(leaf: Any) -> Any:
        return values[key(leaf)] if isinstance(leaf, kind) else leaf

    return keras.tree.map_structure(replace, arguments)


def _masks(arguments: Any, values: Mapping[int, Any], valid: Mapping[int, Any]) -> Any:
    """Returns the masks of the tensors among arguments."""

    def mask(leaf: Any) -> Any:
        if not isinstance(leaf, Signal):
            return None
        # Of a model in the model, whose call gives its inputs masks.
        if leaf.mask:
            return values[leaf.mask.slot]
        return valid[leaf.slot]

    return keras.tree.map_structure(mask, arguments)


def _spec(tensor: Tensor) -> keras.KerasTensor:
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    return keras.KerasTensor(tuple(tensor.shape), dtype)


def _output_masks(node: Node, args: Any, mask: Any) -> list[Any]:
    """Returns the masks of what a call returns, as Keras makes them."""
    layer = node.rule.layer
    masks: list[Any] = []
    if getattr(layer, "supports_masking", False):
        masks = keras.tree.flatten(layer.compute_mask(args[0], mask))
    # Stacked cells have one mask for the states of a cell.
    count = len(node.outputs)
    missing = count - len(masks)
    return masks[:count] + [None] * missing
