"""`verify_layer`: whether a sequence layer of your own keeps what `SequenceHooks` promises."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_trellis import arguments
from keras_trellis.backend import current as backend
from keras_trellis.types import Tensor

__all__ = ["verify_layer"]

PROMISES = {
    "rows": "a row does not depend on others",
    "causal": "an output does not depend on later steps",
    "masks": "a masked step is skipped: it has the output before it, at first zero",
    "chunks": "chunks equal one pass, also of a row that begins anew",
    "states": "a pass and a cache begin from an `initial_state`",
    "stateful": "stateful batches equal one pass, until a reset, and `fit` trains the layer",
    "shapes": "results are as `compute_output_shape` and the compute dtype say",
    "gradients": "gradients are those of finite differences, whatever masked steps hold",
    "bfloat16": "in `mixed_bfloat16` outputs are near those in float32",
    "file": "a model that is saved and loaded has the same config and outputs",
}
"""What `verify_layer` checks, by name."""


def verify_layer(
    make: Callable[..., Any],
    sequences_shape: Sequence[int] = (3, 7, 4),
    *,
    promises: Iterable[str] = tuple(PROMISES),
    tolerance: float = 1e-5,
    seed: int = 0,
) -> None:
    """Checks that a sequence layer keeps what `SequenceHooks` promises.

    Call it in a test. It draws weights, sequences, masks and chunks; masked and later steps hold
    large numbers. It needs Keras and NumPy alone, and runs on the backend of Keras.

    Args:
        make: makes the layer, without dropout, of the arguments `return_sequences`,
            `return_state`, `stateful` and `dtype`: its class, or a function.
        sequences_shape: `[B, T, p]` of the sequences, at least `[2, 4, 1]`.
        promises: which to check.
        tolerance: how far a number may be from 1; others in proportion, or by as much.
        seed: what is drawn depends on it.

    Raises:
        AssertionError: a promise is broken. The message says which, and the largest difference.

    Examples:
        >>> import functools
        >>> from keras_trellis import TrellisLayer
        >>> from keras_trellis.testing import verify_layer
        >>> make = functools.partial(TrellisLayer, 4, depth=7)
        >>> verify_layer(make, promises=["causal", "masks", "chunks"])
    """
    rows, steps, channels = sequences_shape
    subject = layer_subject(make, channels)
    verifier = Verifier(subject, rows, steps, "float32", tolerance, seed)
    for promise in promises:
        if promise not in PROMISES:
            raise arguments.refusal("promises", promise, f"of {[*PROMISES]}")
        verifier.check(promise)


class Outputs(NamedTuple):
    """The results of a run: tensors [B, T, ...], and tensors [B, ...] of the last valid step."""

    steps: list[Tensor]
    rows: list[Tensor] = []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What is verified: a layer, or whatever else runs over time steps.

    Attributes:
        make: builds it under a dtype policy; the variables are randomised afterwards.
        draw: (generator, batch, steps) -> inputs, an array [B, T, ...].
        padding: what masked and later steps hold, which must reach nothing.
        run: (object, inputs, mask or None) -> Outputs.
        get_initial_cache: (object, batch) -> cache.
        stream: (object, inputs, cache, mask or None) -> (the steps of Outputs, as many of the
            first as streaming has; cache). None: it treats each step by itself, and has no mask.
        make_layer: makes a sequence layer of its arguments; None for what is no such layer.
        least_batch: the least number of rows. Keras's LSTM takes no batch without a row.
    """

    make: Callable[[str], Any]
    draw: Callable[[np.random.Generator, int, int], np.ndarray]
    padding: float
    run: Callable[[Any, Any, Any], Outputs]
    get_initial_cache: Callable[[Any, int], Any] = lambda obj, batch: ()
    stream: Callable[[Any, Any, Any, Any], tuple[list[Tensor], Any]] | None = None
    make_layer: Callable[..., Any] | None = None
    least_batch: int = 0

    @property
    def promises(self) -> list[str]:
        """The names of the promises that mean something for it."""
        count = 4 if self.stream is not None else 2
        return list(PROMISES)[: None if self.make_layer is not None else count]

    def built(self, policy: str) -> Any:
        """The object with random variables, the same ones under every policy."""
        obj = self.make(policy)
        rng = np.random.default_rng(0)
        for variable in obj.trainable_variables:
            values = 0.4 * rng.normal(size=variable.shape)
            is_norm = "_scale" in variable.path  # of weights, so above 0
            variable.assign(np.abs(values) + 0.3 if is_norm else values)
        return obj


def layer_subject(
    make: Callable[..., Any], channels: int, padding: float = 1e6
) -> Subject:
    """Returns a sequence layer as what is verified; `make` is as for `verify_layer`."""

    def built(policy: str) -> Any:
        layer = make(return_sequences=True, return_state=True, dtype=policy)
        layer.build((None, None, channels))
        return layer

    def run(layer: Any, x: Any, mask: Any, state: Any = None) -> Outputs:
        outputs, *states = layer(x, initial_state=state, mask=mask)
        return Outputs([outputs], states)

    def stream(layer: Any, x: Any, cache: Any, mask: Any) -> tuple[list[Tensor], Any]:
        outputs, cache = layer.stream(x, cache, mask=mask)
        return [outputs], cache

    return Subject(
        make=built,
        draw=lambda rng, batch, steps: rng.normal(size=(batch, steps, channels)),
        padding=padding,
        run=run,
        get_initial_cache=lambda layer, batch: layer.get_initial_cache(batch),
        stream=stream,
        make_layer=make,
    )


class Verifier:
    """Checks promises, one after the other.

    Args:
        subject: what is verified.
        batch: B.
        steps: T.
        policy: its dtype policy.
        tolerance: as for `verify_layer`.
        seed: as for `verify_layer`.
    """

    def __init__(
        self, subject: Subject, batch: int, steps: int, policy: str, tolerance: float,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.subject, self.policy, self.tolerance = subject, policy, tolerance
        self.obj = subject.built(policy)
        self.rng = np.random.default_rng(seed)
        self.x = subject.draw(self.rng, batch, steps)
        self.cut = int(self.rng.integers(2, steps))
        # Padding on the right, holes, and a row that is whole.
        self.mask = np.tile(np.arange(steps) <= steps // 2, [batch, 1])
        self.mask[1:] = self.rng.permuted(self.mask[1:], axis=1)
        self.mask[-1] = True
        self.spoiled = self.spoil(self.mask)
        self.run = _quick(subject.run, self.obj)
        self.stream = _quick(subject.stream, self.obj)

    def check(self, promise: str) -> None:
        """Checks a promise of `PROMISES`.

        Raises:
            AssertionError: it is broken.
        """
        try:
            getattr(self, f"check_{promise}")()
        except AssertionError as error:
            kind = type(self.obj).__name__
            raise AssertionError(
                f"{kind} breaks a promise, that {PROMISES[promise]}. {error}"
            ) from None

    def spoil(self, mask: np.ndarray) -> np.ndarray:
        """Returns the inputs with the padding in the masked steps."""
        x = self.x.copy()
        if self.subject.stream is not None:
            x[~mask] = self.subject.padding
        return x

    @functools.cached_property
    def whole(self) -> Outputs:
        """One pass without a mask."""
        return self.run(self.x, None)

    @functools.cached_property
    def masked(self) -> Outputs:
        """One pass with the mask."""
        return self.run(self.spoiled, self.mask)

    def check_rows(self) -> None:
        for row in range(len(self.x)):
            alone = self.run(self.spoiled[[row]], self.mask[[row]])
            here = [array[[row]] for array in arrays(self.masked)]
            self.close(alone, here, f"Row {row} alone")

    def check_causal(self) -> None:
        for time in (1, self.cut):
            changed = self.x.copy()
            changed[:, time:] = self.subject.padding
            if not np.issubdtype(changed.dtype, np.floating):  # ids
                changed[:, time:] = self.x[:, :1]
            before, whole = (
                [output[:, :time] for output in arrays(outputs.steps)]
                for outputs in (self.run(changed, None), self.whole)
            )
            self.close(before, whole, "Outputs")

    def check_masks(self) -> None:
        is_layer = self.subject.make_layer is not None
        for row, valid in enumerate(self.mask):
            alone = self.run(self.x[[row]][:, valid], None)
            # What a model returns at masked steps is its own business.
            steps = np.ones_like(valid) if is_layer else valid
            places = np.cumsum(valid)[steps]
            here = [output[row, steps] for output in arrays(self.masked.steps)]
            copied = [
                np.concatenate([0 * output[0, :1], output[0]])[places]
                for output in arrays(alone.steps)
            ]
            self.close(here, copied, f"Outputs of row {row}")
            last = [array[[row]] for array in arrays(self.masked.rows)]
            self.close(last, alone.rows, f"States of row {row}")
        if is_layer:
            nothing = self.run(self.spoiled, np.zeros_like(self.mask))
            begun = self.obj.get_initial_state(len(self.x))
            self.close(nothing.rows, begun, "States without a valid step")

    def check_chunks(self) -> None:
        begun = self.subject.get_initial_cache(self.obj, len(self.x))
        self.close_chunks(self.run, self.x, None, begun)
        self.close_chunks(self.run, self.spoiled, self.mask, begun)

    def close_chunks(self, run: Any, x: Any, mask: Any, begun: Any) -> None:
        """Compares one pass with chunks. Row 0 begins anew before the last one."""
        cut, steps = self.cut, x.shape[1]
        cache, chunks = begun, []
        for first, end in ((0, 0), (0, 1), (1, cut), (cut, steps)):
            if first == cut:
                cache = keras.tree.map_structure(_with_first_row, cache, begun)
            before = arrays(cache)
            valid = None if mask is None else mask[:, first:end]
            outputs, after = self.stream(x[:, first:end], cache, valid)
            self.close(cache, before, "The cache that `stream` got")
            self.same(_layout(after), _layout(cache), "The next cache")
            chunks.append(arrays(outputs))
            cache = after
        anew = run(x[:, cut:], None if mask is None else mask[:, cut:])
        passes = zip(arrays(run(x, mask).steps), arrays(anew.steps), strict=True)
        for parts, (whole, rest) in zip(zip(*chunks, strict=True), passes):  # noqa: B905
            whole[0, cut:] = rest[0]
            self.close(np.concatenate(parts, axis=1), whole, "Outputs")

    def check_states(self) -> None:
        layer, states = self.obj, self.masked.rows
        start = _quick(self.subject.run, layer)
        run = lambda x, mask: start(x, mask, states)  # noqa: E731
        mask = self.mask.copy()
        # Before the first valid step a stream may have an output of the state.
        mask[:, [0, self.cut]] = True
        cache = layer.get_initial_cache(len(self.x), states)
        self.close_chunks(run, self.spoil(mask), mask, cache)
        one = [_array(state)[:1] for state in states]
        repeated = [np.repeat(state, len(self.x), axis=0) for state in one]
        cache = layer.get_initial_cache(len(self.x), one)
        other = layer.get_initial_cache(len(self.x), repeated)
        self.close(cache, other, "A cache of one state for all rows")
        if layer.state_is_exact:
            first = self.run(self.x[:, : self.cut], None)
            rest = start(self.x[:, self.cut :], None, first.rows)
            outputs = np.concatenate(arrays([first.steps, rest.steps]), axis=1)
            results = outputs, rest.rows
            self.close(results, self.whole, "Two passes")

    def check_stateful(self) -> None:
        half = self.x.shape[1] // 2
        times = slice(half), slice(half, 2 * half)
        parts = [[self.spoiled[:, time], self.mask[:, time]] for time in times]
        model, layer = self.functional(parts[0][0].shape, stateful=True)
        for _ in range(2):
            outputs = [model.predict_on_batch(part) for part in parts]
            whole = self.masked.steps[0][:, : 2 * half]
            self.close(np.concatenate(outputs, axis=1), whole, "Outputs of batches")
            layer.reset_state()
        inputs = [*map(np.concatenate, zip(*parts, strict=True))]
        weights = np.full(inputs[0].shape[:2] + outputs[0].shape[2:], 1e-3)
        model.fit(inputs, weights, len(self.x), shuffle=False, verbose=0)
        pairs = zip(layer.get_weights(), self.obj.get_weights(), strict=True)
        changed = any(np.any(weight != before) for weight, before in pairs)
        lasting = all(np.any(_array(state.value)) for state in layer.states)
        self.same([changed, lasting], [True, True], "Whether weights and states change")

    def check_shapes(self) -> None:
        for returned in (True, False):
            layer = self.made(return_sequences=returned, return_state=returned)
            run = _quick(lambda layer, x: layer(x), layer)
            for x in (self.x, self.x[:, :0], self.x[: self.subject.least_batch]):
                shapes = layer.compute_output_shape(x.shape)
                shapes = shapes if returned else (shapes,)
                expected = [(shape, layer.compute_dtype) for shape in shapes]
                self.same(_layout(run(x)), expected, "Shapes and dtypes")

    def check_gradients(self) -> None:
        model, layer = self.functional(self.x.shape)
        start = self.obj.get_weights()
        weights = self.rng.normal(size=self.whole.steps[0].shape).astype("float32")
        along = [self.rng.normal(size=v.shape) for v in layer.trainable_variables]
        gradients: list[list[np.ndarray]] = []
        for x in (self.spoiled, self.x):
            before = list(map(_array, layer.trainable_variables))
            model.train_on_batch([x, self.mask], weights)
            after = map(_array, layer.trainable_variables)
            gradients.append([*map(np.subtract, before, after)])
            layer.set_weights(start)
        spoiled, clean = gradients
        self.close(spoiled, clean, "Gradients with other masked steps")
        step = 1e-6 if self.tolerance < 1e-8 else 1e-2
        totals = []
        for sign in (step, -step):
            for variable, change in zip(layer.trainable_variables, along, strict=True):
                variable.assign_add(sign * change)
            outputs = model.predict_on_batch([self.x, self.mask])
            totals.append(np.vdot(outputs, weights))
            layer.set_weights(start)
        slope = sum(map(np.vdot, clean, along))
        self.close(slope, (totals[0] - totals[1]) / (2 * step), "Slopes", step)

    def check_bfloat16(self) -> None:
        other = self.subject.built("mixed_bfloat16")
        other.set_weights(self.obj.get_weights())
        results = _quick(self.subject.run, other)(self.spoiled, self.mask)
        self.close(results, self.masked, "Results", 0.15)

    def check_file(self) -> None:
        inputs = keras.Input(self.x.shape[1:], dtype=self.x.dtype.name)
        model = keras.Model(inputs, self.obj(inputs))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            loaded = keras.saving.load_model(path)
        self.same(loaded.layers[-1].get_config(), self.obj.get_config(), "The config")
        self.close(loaded.predict_on_batch(self.x), arrays(self.whole), "Outputs")

    def made(self, batch: int | None = None, **flags: Any) -> Any:
        """Returns the layer with other arguments, and the same weights."""
        layer = self.subject.make_layer(dtype=self.policy, **flags)  # type: ignore[misc]
        layer.build((batch, None, self.x.shape[-1]))
        layer.set_weights(self.obj.get_weights())
        return layer

    def functional(
        self, shape: Sequence[int], stateful: bool = False
    ) -> tuple[Any, Any]:
        """Returns a model of the layer, and it; a training step subtracts the gradients."""
        layer = self.made(shape[0], return_sequences=True, stateful=stateful)
        x = keras.Input(batch_shape=shape, dtype=self.x.dtype.name)
        mask = keras.Input(batch_shape=shape[:2], dtype="bool")
        model = keras.Model([x, mask], layer(x, mask=mask))
        model.compile(
            keras.optimizers.SGD(1.0),
            lambda weights, outputs: ops.sum(weights * outputs),
            jit_compile=backend.NAME == "jax",
        )
        return model, layer

    def same(self, actual: Any, expected: Any, what: str) -> None:
        """Raises an AssertionError if something is another than expected."""
        if actual != expected:
            raise AssertionError(f"{what}: expected {expected}, received {actual}")

    def close(
        self, actual: Any, expected: Any, what: str, tolerance: float | None = None
    ) -> None:
        """Raises an AssertionError if numbers are further apart than the tolerance."""
        tolerance = tolerance or self.tolerance
        for one, other in zip(arrays(actual), arrays(expected), strict=True):
            self.same(one.shape, other.shape, f"{what}, shape")
            apart = np.abs(one - other)
            if not np.all(apart <= tolerance * (1 + np.abs(other))):
                raise AssertionError(
                    f"{what} differ by up to {np.max(apart):.3g}, and {tolerance:g} is allowed"
                )


def _quick(function: Any, obj: Any) -> Any:
    """Returns a function of an object as one of tensors; eagerly JAX compiles each operation."""

    def run(*tensors: Any) -> Any:
        return function(obj, *tensors)

    return backend.compiled(run, obj, ()) if backend.NAME == "jax" else run


def _with_first_row(tensor: Any, other: Any) -> Any:
    return ops.concatenate([other[:1], tensor[1:]], axis=0)


def _layout(nest: Any) -> list[tuple[tuple[int, ...], str]]:
    leaves = keras.tree.flatten(nest)
    return [
        (tuple(leaf.shape), keras.backend.standardize_dtype(leaf.dtype))
        for leaf in leaves
    ]


def _array(value: Any) -> np.ndarray:
    if "float16" in str(getattr(value, "dtype", "")):  # NumPy has no bfloat16
        value = ops.cast(value, "float32")
    return np.array(ops.convert_to_numpy(value), "float64")


def arrays(nest: Any) -> list[np.ndarray]:
    """Returns the tensors of a nest as arrays of float64."""
    return list(map(_array, keras.tree.flatten(nest)))
