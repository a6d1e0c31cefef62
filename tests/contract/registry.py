"""Every public layer and model, and how a test runs it: new ones are added here alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_trellis import (
    EquilibriumTrellisLayer,
    RecurrentLayer,
    SequenceLayer,
    TrellisClassifier,
    TrellisLayer,
    TrellisLM,
    heads,
    recurrent,
    testing,
)
from keras_trellis.core.trellis import trellis
from keras_trellis.testing import Outputs
from tests.contract import tensors

CHANNELS = 3
VOCABULARY = 11


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(testing.Subject):
    """How a test runs one public class; see `Subject`.

    Attributes:
        cls: the public class.
        as_model: object -> a keras.Model over inputs of unknown sizes, for saving and predicting;
            None for what cannot be a model.
        plain: (object, inputs, mask) -> the same Outputs by the definition in `keras_trellis.core`;
            None for what has no fast form.
        graphs: the names of other entries whose code is all that it runs in graphs. An entry takes
            seconds to trace, and XLA to compile, so those are.
        streams: the name of another entry whose code is all that it runs in `stream`'s graph.
        has_keras: whether it runs, or is compared with, recurrent layers of Keras. On JAX those
            compute float64 in float32, or refuse it.
    """

    cls: type
    as_model: Callable[[Any], keras.Model] | None = None
    plain: Callable[[Any, Any, Any], Outputs] | None = None
    graphs: tuple[str, ...] = ()
    streams: str | None = None
    has_keras: bool = False

    def built(self, policy: str = tensors.FLOAT) -> Any:
        """The object with random variables, the same ones under every policy."""
        return super().built(policy)


def _sequences(rng: np.random.Generator, batch: int, steps: int) -> np.ndarray:
    return rng.normal(size=(batch, steps, CHANNELS))


def _ids(rng: np.random.Generator, batch: int, steps: int) -> np.ndarray:
    return rng.integers(0, VOCABULARY, (batch, steps)).astype("int32")


# Sequence layers


def _sequence_layer(make: Callable[..., Any]) -> Entry:
    """An entry of a layer; `make` takes its flags and its dtype policy."""

    def as_model(layer: Any) -> keras.Model:
        inputs = keras.Input((None, CHANNELS), dtype=layer.compute_dtype)
        return keras.Model(inputs, layer(inputs)[0], dtype=layer.dtype_policy)

    subject = testing.layer_subject(make, CHANNELS, padding=np.nan)
    return Entry(cls=type(make()), as_model=as_model, **vars(subject))


def _trellis_layer(**arguments: Any) -> Entry:
    """An entry of a trellis network, which has a plain form."""

    def plain(layer: TrellisLayer, x: Any, mask: Any) -> Outputs:
        weights = layer._weights(x, training=False)
        stops = [layer.depth]
        (hidden,), state = trellis(layer._network, weights, x, mask=mask, stops=stops)
        return Outputs([layer._outputs(hidden)], list(state))

    return dataclasses.replace(_sequence_layer(_trellis(**arguments)), plain=plain)


def _trellis(**arguments: Any) -> Callable[..., TrellisLayer]:
    return functools.partial(TrellisLayer, **{"units": 6, **arguments})


def _equilibrium(**arguments: Any) -> Callable[..., EquilibriumTrellisLayer]:
    # As good as exact: what is compared with itself is compared to ten digits.
    arguments = {"units": 6, "tolerance": 1e-13, **arguments}
    return functools.partial(EquilibriumTrellisLayer, **arguments)


def _recurrent(
    *layers: Callable[..., Any], **options: bool
) -> Callable[..., RecurrentLayer]:
    def make(dtype: Any = None, **flags: Any) -> RecurrentLayer:
        made = [layer(dtype=dtype) for layer in layers]
        return RecurrentLayer(made, **options, **flags)

    return make


def _cells(dtype: Any = None) -> keras.layers.RNN:
    cells = [
        keras.layers.SimpleRNNCell(3, dtype=dtype),
        keras.layers.LSTMCell(2, dtype=dtype),
    ]
    return keras.layers.RNN(
        keras.layers.StackedRNNCells(cells, dtype=dtype), dtype=dtype
    )


def _gated(name: str, **arguments: Any) -> Entry:
    """An entry of a gated recurrent layer; some need as many units as channels."""
    cls = getattr(recurrent, name)
    layer = functools.partial(cls, CHANNELS, **arguments)
    # A layer runs its cell in `stream` as elsewhere; the output of a TLSTM is no state.
    streams = None if name == "TLSTM" else "TLSTM"
    return dataclasses.replace(_sequence_layer(layer), streams=streams)


def _tensorized(**arguments: Any) -> Entry:
    """An entry of a tensorized LSTM of three places along each axis."""
    layer = functools.partial(recurrent.TensorizedLSTM, 2, 3, **arguments)
    return dataclasses.replace(_sequence_layer(layer), streams="TLSTM")


def _stacked(**arguments: Any) -> Entry:
    """An entry of stacked LSTMs that read the input; plainly they are layers of Keras."""

    def plain(layer: recurrent.StackedLSTM, x: Any, mask: Any) -> Outputs:
        values = iter(layer.get_weights())
        read, states = x, []
        for _ in range(layer.num_layers):
            lstm = keras.layers.LSTM(
                layer.units,
                return_sequences=True,
                return_state=True,
                dtype=layer.dtype_policy,
            )
            lstm.build(read.shape)
            lstm.set_weights([next(values) for _ in lstm.weights])
            hidden, *state = lstm(read, mask=mask)
            states += state
            read = ops.concatenate([hidden, x], axis=-1) if layer.skip_input else hidden
        return Outputs([hidden], states)

    make = functools.partial(recurrent.StackedLSTM, 4, **arguments)
    return dataclasses.replace(_sequence_layer(make), plain=plain, has_keras=True)


LSTM = functools.partial(keras.layers.LSTM, 4)
GRU = functools.partial(keras.layers.GRU, 4)


# TrellisLM


def _language_model(
    layer: Callable[..., Any], head: Callable[..., Any] | None = None
) -> Entry:
    def make(policy: str) -> TrellisLM:
        of_head = {} if head is None else {"head": head(dtype=policy)}
        return TrellisLM(
            VOCABULARY, layer(dtype=policy), embedding_units=4, dtype=policy, **of_head
        )

    def targets(ids: Any) -> Any:
        return (
            3 * ids + 1
        ) % VOCABULARY  # a function of each id alone, as padding demands

    def run(model: TrellisLM, ids: Any, mask: Any) -> Outputs:
        nll, states = model.score(ids, targets(ids), mask=mask)
        return Outputs([nll, model(ids, mask=mask)], list(states))

    def stream(model: TrellisLM, ids: Any, cache: Any, mask: Any) -> Any:
        nll, cache = model.score(ids, targets(ids), cache=cache, mask=mask)
        return [nll], cache

    return Entry(
        cls=TrellisLM,
        make=make,
        draw=_ids,
        padding=-1,
        run=run,
        get_initial_cache=TrellisLM.get_initial_cache,
        stream=stream,
        as_model=lambda model: model,
    )


# TrellisClassifier


def _classifier(layer: Callable[..., Any]) -> Entry:
    def make(policy: str) -> TrellisClassifier:
        model = TrellisClassifier(5, layer(dtype=policy), dtype=policy)
        model.build((None, None, CHANNELS))
        return model

    return Entry(
        cls=TrellisClassifier,
        make=make,
        draw=_sequences,
        padding=np.nan,
        run=lambda model, x, mask: Outputs([], [model(x, mask=mask)]),
        as_model=lambda model: model,
    )


# Heads: features in, distributions out; each step for itself.


def _head(cls: type, **arguments: Any) -> Entry:
    table = np.random.default_rng(5).normal(size=(VOCABULARY, CHANNELS))

    def make(policy: str) -> heads.Head:
        head = cls(dtype=policy, **arguments)
        head.build((None, None, CHANNELS), table.shape)
        return head

    def run(head: heads.Head, features: Any, mask: Any) -> Outputs:
        features = ops.cast(features, head.compute_dtype)
        steps = ops.arange(ops.shape(features)[1], dtype="int32")
        targets = ops.zeros_like(features[..., 0], "int32") + steps % VOCABULARY
        words = ops.cast(ops.convert_to_tensor(table), head.compute_dtype)
        return Outputs(
            [head.log_probs(features, words), head.nll(features, targets, words)]
        )

    return Entry(cls=cls, make=make, draw=_sequences, padding=np.nan, run=run)


def _of_keras(entry: Entry) -> Entry:
    return dataclasses.replace(entry, least_batch=1, has_keras=True)


def _as(entry: Entry, *others: str) -> Entry:
    """The entry, with others whose graphs have all that its own have."""
    streams = entry.streams or others[0]
    return dataclasses.replace(entry, graphs=others, streams=streams)


_PAIR = _trellis(units=7, depth=2, output_units=4)

REGISTRY = {
    "TrellisLayer": _trellis_layer(depth=3),
    "TrellisLayer gru, dilated, groups": _trellis_layer(
        depth=3,
        gate="gru",
        dilation_rate=(1, 3),
        kernel_size=3,
        groups=2,
        output_units=4,
    ),
    "TrellisLayer, staggered groups": _trellis_layer(depth=4, groups=3, staggered=True),
    "TrellisLayer tanh, one tap, weight normalisation": _trellis_layer(
        depth=3, gate="tanh", kernel_size=1, weight_normalization=True, inject_every=2
    ),
    "EquilibriumTrellisLayer": _as(
        _sequence_layer(_equilibrium()),
        "EquilibriumTrellisLayer gru, dilated, weight normalisation",
    ),
    "EquilibriumTrellisLayer gru, dilated, weight normalisation": _sequence_layer(
        _equilibrium(
            gate="gru",
            dilation_rate=(1, 2),
            output_units=4,
            weight_normalization=True,
            inject_every=2,
        )
    ),
    "EquilibriumTrellisLayer, groups": _sequence_layer(
        _equilibrium(
            groups=2, inject_groups=True, unit_forget_bias=True, output_units=3
        )
    ),
    "StackedLSTM": _stacked(),
    "StackedLSTM, three layers of one input": _as(
        _stacked(layers=3, skip_input=False), "StackedLSTM"
    ),
    "RecurrentLayer of an LSTM": _of_keras(_sequence_layer(_recurrent(LSTM))),
    "RecurrentLayer of cells": _of_keras(
        _sequence_layer(_recurrent(GRU, _cells, skip_input=True))
    ),
    "WeightDropLSTM": _as(_gated("WeightDropLSTM"), "TLSTM", "FastGRNN"),
    "IRCGRU": _gated("IRCGRU"),
    "IRCLSTM": _gated("IRCLSTM"),
    "IHCLSTM": _as(_gated("IHCLSTM"), "IHCLSTM, projected"),
    "IHCLSTM, projected": _gated("IHCLSTM", projected=True),
    "SRU": _gated("SRU"),
    "IRCSRU": _gated("IRCSRU", variant="released"),
    "TLSTM": _gated("TLSTM"),
    "IRCTLSTM": _gated("IRCTLSTM"),
    "IRCTLSTM, released": _gated("IRCTLSTM", variant="released"),
    "FastGRNN": _gated("FastGRNN"),
    "IRCFastGRNN": _gated("IRCFastGRNN", variant="released"),
    "TensorizedLSTM": _as(_tensorized(), "TensorizedLSTM, a square, normalised"),
    "TensorizedLSTM, a square, normalised": _tensorized(
        rank=3, kernel_size=2, channel_normalization=True
    ),
    "TrellisLM": _language_model(
        functools.partial(_PAIR, dilation_rate=(1, 2), weight_normalization=True)
    ),
    "TrellisLM, a mixture of softmaxes": _as(
        _language_model(
            functools.partial(_PAIR, output_units=5),
            functools.partial(heads.MixtureOfSoftmaxes, 3),
        ),
        "TrellisLM",
        "MixtureOfSoftmaxes, epsilon",
    ),
    "TrellisLM, an adaptive softmax": _as(
        _language_model(_PAIR, functools.partial(heads.AdaptiveSoftmax, (4, 7))),
        "TrellisLM",
        "AdaptiveSoftmax",
    ),
    "TrellisLM over an LSTM": _of_keras(_language_model(LSTM)),
    "TrellisLM over a GRU": _as(
        _language_model(GRU), "TrellisLM over an LSTM", "RecurrentLayer of cells"
    ),
    "TrellisLM over an IRCGRU": _as(
        _language_model(functools.partial(recurrent.IRCGRU, 4)),
        "TrellisLM over an LSTM",
        "IRCGRU",
    ),
    "TrellisLM over a TensorizedLSTM": _as(
        _language_model(functools.partial(recurrent.TensorizedLSTM, 4, 2)),
        "TrellisLM over an LSTM",
        "TensorizedLSTM, a square, normalised",
    ),
    "TrellisLM, an equilibrium": _as(
        _language_model(_equilibrium(output_units=4)),
        "TrellisLM",
        "EquilibriumTrellisLayer gru, dilated, weight normalisation",
    ),
    "TrellisLM over stacked LSTMs": _as(
        _language_model(functools.partial(recurrent.StackedLSTM, 4)),
        "TrellisLM",
        "StackedLSTM",
    ),
    "TrellisClassifier": _classifier(
        _trellis(
            depth=3, output_units=5, dilation_rate=(1, 2, 4), weight_normalization=True
        )
    ),
    "TrellisClassifier over an LSTM": _of_keras(_classifier(LSTM)),
    "TrellisClassifier over a GRU": _as(
        _classifier(GRU), "TrellisClassifier over an LSTM", "RecurrentLayer of cells"
    ),
    "TrellisClassifier over a TLSTM": _as(
        _classifier(functools.partial(recurrent.TLSTM, 4)),
        "TrellisClassifier over an LSTM",
        "TLSTM",
    ),
    "TrellisClassifier, an equilibrium": _as(
        _classifier(_equilibrium()),
        "TrellisClassifier",
        "EquilibriumTrellisLayer gru, dilated, weight normalisation",
    ),
    "TiedSoftmax": _head(heads.TiedSoftmax),
    "MixtureOfSoftmaxes": _as(
        _head(heads.MixtureOfSoftmaxes, experts=3), "MixtureOfSoftmaxes, epsilon"
    ),
    "MixtureOfSoftmaxes, epsilon": _head(
        heads.MixtureOfSoftmaxes, experts=2, epsilon=1e-3
    ),
    "AdaptiveSoftmax": _head(heads.AdaptiveSoftmax, cutoffs=(5, 6)),
}

IN_FLOAT32 = (
    "TrellisLayer",
    "EquilibriumTrellisLayer gru, dilated, weight normalisation",
    "TLSTM",
    "TrellisLM",
)


def _runs_here(name: str, entry: Entry) -> bool:
    """Returns whether this backend runs an entry.

    JAX compiles for seconds: it runs the code that entries share once. In float32 it runs what
    cannot be run in float64, and some of the others.
    """
    if tensors.BACKEND != "jax":
        return True
    if entry.graphs:
        return False
    if tensors.FLOAT == "float64":
        return not entry.has_keras
    return entry.has_keras or name in IN_FLOAT32


ENTRIES = {name: entry for name, entry in REGISTRY.items() if _runs_here(name, entry)}

_CELLS = [name for name in recurrent.__all__ if name.endswith("Cell")]
WITHOUT_CONTRACT = {
    heads.Head: "the interface of heads: it has no distribution of its own",
    SequenceLayer: "what sequence layers share: it has no network of its own",
} | {
    getattr(recurrent, name): "one step; its layer is in the registry"
    for name in _CELLS
}
