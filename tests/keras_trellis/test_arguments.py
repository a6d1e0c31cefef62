"""Errors of constructors name the class that was called, and say what to write."""

import inspect
import re
import warnings

import keras
import pytest
import tensorflow as tf

import keras_trellis
from keras_trellis import (
    EquilibriumTrellisLayer,
    LSTMGate,
    RecurrentLayer,
    TensorizedLSTM,
    TrellisLayer,
    recurrent,
)
from keras_trellis.core import checks
from keras_trellis.layers.trellis_base import TrellisBase
from keras_trellis.recurrent import (
    IHCLSTM,
    IRCGRU,
    IHCLSTMCell,
    StackedLSTM,
    TensorizedLSTMCell,
    WeightDropLSTM,
)
from keras_trellis.recurrent.gated import GatedRNN
from tests.refusals import refuses

CLASSES = [TrellisLayer, EquilibriumTrellisLayer, RecurrentLayer]
CLASSES += [getattr(recurrent, name) for name in recurrent.__all__]
SWAPPED = [cls for cls in CLASSES if not cls.__name__.endswith("Cell")]
SWAPPED = [cls for cls in SWAPPED if cls is not RecurrentLayer] + [IHCLSTMCell]
TANH = ("StackedLSTM", "WeightDropLSTM", "IRCLSTM", "IHCLSTM", "FastGRNN", "Tensorized")
"""How the names of the layers begin that have a tanh where an LSTM has it."""
INNER = ("TrellisBase", "GatedRNN", "GatedCell", "SequenceLayer", "__init__")


def required(cls):
    """The arguments without a default: they have none in the signature, as users see it."""
    parameters = inspect.signature(cls).parameters.values()
    positional = [
        each for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD
    ]
    assert all(each.default is each.empty for each in positional)
    return [each.name for each in positional]


def values(cls):
    layers = [keras.layers.LSTM(2)]
    return [layers if name == "layers" else 3 for name in required(cls)]


def message(error_class, call):
    with pytest.raises(error_class) as error:
        call()
    return str(error.value)


@pytest.fixture(params=CLASSES, ids=lambda cls: cls.__name__)
def cls(request):
    return request.param


def test_every_class_names_itself(cls):
    own = cls.__name__
    names = required(cls)
    *others, last = values(cls)
    missing = message(TypeError, cls)
    assert missing.startswith(f"{own} is missing ")
    assert all(f"`{name}`" in missing for name in names)
    assert f"{own} is missing `{names[-1]}`." in message(
        TypeError, lambda: cls(*others)
    )
    too_many = message(TypeError, lambda: cls(*others, last, "relu"))
    assert (
        too_many.startswith(f"{own} takes {len(names)} argument")
        and "'relu'" in too_many
    )
    twice = message(TypeError, lambda: cls(*others, last, **{names[0]: 5}))
    assert (
        twice.startswith(f"{own} has `{names[0]}` twice.") and f"{names[0]}=5" in twice
    )
    unknown = message(ValueError, lambda: cls(*others, last, nmae="a"))
    assert unknown.startswith(f"{own} has no argument `nmae`. Did you mean `name`?")
    assert unknown.endswith("Received: nmae='a'")
    for said in (missing, too_many, twice, unknown):
        assert not [name for name in INNER if name in said]
        assert own.endswith("Cell") or "Cell" not in said


@pytest.mark.parametrize(
    "call, said",
    [
        # Of the cell that the layer makes, of a class that it inherits from, and of another.
        (lambda: IHCLSTM(3, projectd=True), "IHCLSTM has .*Did you mean `projected`"),
        (lambda: IRCGRU(3, projected=True), "IRCGRU has no argument `projected`. It takes"),
        (lambda: IHCLSTMCell(3, unroll=True), "IHCLSTMCell has no argument `unroll`"),
        (lambda: TensorizedLSTM(3, 2, places=4), "TensorizedLSTM .*argument `places`"),
        (lambda: TensorizedLSTMCell(3, 2, places=4), "TensorizedLSTMCell .*`places`"),
        (lambda: TrellisLayer(3, 2, dilation=2), "Did you mean `dilation_rate`"),
        (lambda: IRCGRU(3, variant="a"), "`variant` of IRCGRU must be"),
        (
            lambda: EquilibriumTrellisLayer(4, groups=2, unroll=True),
            "EquilibriumTrellisLayer has no argument `unroll`.*in a stack of groups over time",
        ),
        (lambda: EquilibriumTrellisLayer(4, use_cudnn=True), "^Equil.*Leave it out"),
        (lambda: IRCGRU(3, activation="tanh"), "^IRCGRU .*`activation`. It is 'linear'"),
        (lambda: IRCGRU(3, use_bias=True), "^IRCGRU .*`use_bias`. It is False.*=True"),
        (lambda: IRCGRU(3, use_cudnn=True), "^IRCGRU .*cuDNN does not run"),
        (lambda: IHCLSTMCell(3, activation="relu"), "^IHCLSTMCell .* It is 'tanh'"),
        (lambda: TrellisLayer(3, 2, activation="rleu"), "`activation` must be.*'rleu'"),
    ],
)  # fmt: skip
def test_what_a_class_does_not_take(call, said):
    with refuses(said) as error:
        call()
    assert "TrellisLayer that" not in str(error.value)


def test_the_signature_has_every_argument_by_name(cls):
    parameters = inspect.signature(cls).parameters
    assert "kwargs" not in parameters
    given = values(cls)
    layer = cls(*given)
    assert layer.get_config().keys() <= parameters.keys()
    # The default values are what the layer has without them.
    options = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    same = cls(*given, **options | {"name": layer.name})
    assert same.get_config() == layer.get_config()
    # And it takes no others.
    unknown = message(ValueError, lambda: cls(*given, qqq=1))
    assert {*re.findall(r"`(\w+)`", unknown)} == {"qqq", *parameters}
    # The documentation's site does not compare the documented arguments.
    section = re.search(r"^Args:\n((?: .*\n)+)", inspect.getdoc(cls), re.MULTILINE)
    documented = re.findall(r"^    (\w+):", section[1] if section else "", re.MULTILINE)
    assert {*required(cls)} <= {*documented} <= {*parameters}
    # A layer is called with sequences.
    assert "units" not in inspect.signature(layer).parameters


CONSTRUCTED = [
    value
    for module in (keras_trellis, keras_trellis.heads, recurrent)
    for name in module.__all__
    if inspect.isclass(value := getattr(module, name)) and not issubclass(value, tuple)
]


@pytest.mark.parametrize("cls", CONSTRUCTED, ids=lambda cls: cls.__name__)
def test_every_constructor_has_its_arguments_in_the_docstring(cls):
    assert re.search(r"^Args:\n    \S", inspect.getdoc(cls), re.MULTILINE)
    inherited = [base.__doc__ for base in cls.__mro__[1:]]
    assert cls.__doc__ not in inherited


def test_a_missing_depth_comes_with_a_line_to_copy():
    said = message(TypeError, lambda: TrellisLayer(64))
    assert said.endswith("Received: TrellisLayer(64)")
    line = re.search(r"`(TrellisLayer\(64, .*?)`\.", said)[1]
    layer = eval(line, {"TrellisLayer": TrellisLayer, "keras_trellis": keras_trellis})
    assert layer.receptive_field >= 100 and layer.dilation_rate == (1, 2, 4, 8)


def test_the_constructor_of_a_subclass_may_take_more():
    class Mine(TrellisLayer):
        def __init__(self, *args, **kwargs):
            self.extra = kwargs.pop("extra")
            super().__init__(*args, **kwargs)

    assert Mine(3, 2, extra=4).extra == 4
    assert message(TypeError, lambda: Mine(64, extra=4)).startswith(
        "Mine is missing `depth`"
    )
    # Nobody knows what it hands on.
    assert "units" not in inspect.signature(Mine).parameters
    unknown = message(ValueError, lambda: Mine(3, 2, extra=4, units_=1))
    assert unknown.startswith("Mine has no argument `units_`. Did you mean `units`?")


def test_what_every_layer_of_keras_takes(cls):
    layer = cls(*values(cls), name="mine", dtype="float64", trainable=False)
    assert (layer.name, layer.compute_dtype, layer.trainable) == (
        "mine",
        "float64",
        False,
    )


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_dilations_that_no_level_uses_are_refused(depth):
    cycle = [1, 2, 4, 8, 16]
    with refuses("`dilation_rate` must have at most") as error:
        TrellisLayer(3, depth, dilation_rate=cycle)
    assert str(error.value).endswith(f"Received: dilation_rate={cycle}, depth={depth}")
    same = re.search(r"`(dilation_rate=\[.*?\])`", str(error.value))[1]
    layer = eval(f"TrellisLayer(3, depth, {same})", {**globals(), "depth": depth})
    assert layer.receptive_field == keras_trellis.receptive_field(
        depth, dilation_rate=cycle
    )


def test_dilations_of_an_equilibrium_are_one_turn():
    assert EquilibriumTrellisLayer(3, dilation_rate=[1, 2, 4]).depth == 3


def test_so_deep_a_network_is_told_what_it_costs():
    with pytest.warns(UserWarning) as warned:
        TrellisLayer(64, 10**6)
    (said,) = warned
    # 2 taps, 64 channels of h to 4 blocks of 64; of each level the blocks, h and c are kept.
    assert re.match(
        "`depth` is the number of levels, .*"
        "One time step of one row takes 32,768,000,000 multiplications, .* 1,536.0 MB.*"
        r"Received: depth=1000000",
        str(said.message),
    )
    assert said.filename == __file__
    line = re.search(r"`(depth=.*?)`", str(said.message).partition("few levels")[2])[1]
    layer = eval(f"TrellisLayer(64, {line})")
    assert layer.receptive_field >= 10**6 and layer.depth < 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TrellisLayer(64, 1000)


# What the arguments of an LSTM say


def taken(cls, name, value, **others):
    """Returns whether a class takes an argument, which must change nothing then."""
    try:
        layer = cls(*values(cls), name="a", **others, **{name: value})
    except ValueError as error:
        said = str(error)
        assert f"{cls.__name__} has no argument `{name}`. " in said
        assert said.endswith(f"Received: {name}={value!r}")
        return False
    plain = cls(*values(cls), name="a", **others)
    assert layer.get_config() == plain.get_config()
    return True


@pytest.mark.parametrize("cls", SWAPPED, ids=lambda cls: cls.__name__)
def test_what_says_what_the_layer_does_anyway_is_taken(cls):
    for value in (0, 1, 2, 3):
        assert taken(cls, "implementation", value) == (value < 3)
    for value in ("auto", False, True):
        assert taken(cls, "use_cudnn", value) == (value is not True)
    assert taken(cls, "unroll", False) != (cls is IHCLSTMCell)
    for value in ("sigmoid", keras.activations.sigmoid):
        assert taken(cls, "recurrent_activation", value) or issubclass(cls, TrellisBase)


@pytest.mark.parametrize(
    "cls",
    [cls for cls in SWAPPED if not issubclass(cls, TrellisBase)],
    ids=lambda cls: cls.__name__,
)
def test_a_layer_takes_its_own_activations_alone(cls):
    own = "tanh" if cls.__name__.startswith(TANH) else "linear"
    for name in ("tanh", "linear", "relu"):
        assert taken(cls, "activation", name) == (name == own)
        assert taken(cls, "activation", keras.activations.get(name)) == (name == own)
    assert taken(cls, "activation", None) == (own == "linear")
    assert not taken(cls, "recurrent_activation", "hard_sigmoid")


@pytest.mark.parametrize(
    "cls, variant",
    [
        (cls, variant)
        for cls in SWAPPED
        if issubclass(cls, GatedRNN)
        for variant in cls.cell_class.biases
    ],
)
def test_a_layer_takes_what_is_so_of_its_biases(cls, variant):
    layer = cls(*values(cls), variant=variant)
    layer.build((None, None, 3))
    biases = [each for each in layer.weights if "bias" in each.path]
    remembers = any((each.numpy() == 1).any() for each in biases)
    for value in (True, False):
        so = taken(cls, "use_bias", value, variant=variant)
        assert so == (value == bool(biases))
        so = taken(cls, "unit_forget_bias", value, variant=variant)
        assert so == (value == remembers)


@pytest.mark.parametrize(
    "cls",
    [cls for cls in SWAPPED if cls is not IHCLSTMCell],
    ids=lambda cls: cls.__name__,
)
def test_a_layer_has_the_attributes_of_an_lstm(cls):
    lstm = keras.layers.LSTM(3)
    layer = cls(*values(cls), kernel_regularizer="l2")
    for name in lstm.get_config():
        assert hasattr(layer, name) or name == "dtype", name
    assert layer.units == 3 and isinstance(
        layer.kernel_regularizer, keras.regularizers.L2
    )
    own = "tanh" if cls.__name__.startswith((*TANH, "T", "Equ")) else "linear"
    own = "linear" if cls.__name__ == "TLSTM" else own
    assert layer.activation is keras.activations.get(own)
    assert layer.recurrent_activation is keras.activations.sigmoid


@pytest.mark.parametrize(
    "cls",
    [cls for cls in SWAPPED if cls is not IHCLSTMCell],
    ids=lambda cls: cls.__name__,
)
def test_only_a_layer_with_levels_to_choose_takes_what_chooses_them(cls):
    of_levels = {"auxiliary_every", "auxiliary_from", "depth", "discard"}
    for method in (cls.call, cls.propagate, cls.compute_output_shape):
        taken = of_levels & inspect.signature(method).parameters.keys()
        assert taken == (of_levels if cls is TrellisLayer else set())


@pytest.mark.parametrize(
    "make, former, name, value",
    [
        (lambda **a: TensorizedLSTM(size=2, **a), "channels", "units", 3),
        (lambda **a: TensorizedLSTMCell(size=2, **a), "channels", "units", 3),
        (lambda **a: IRCGRU(3, **a), "recurrent_weight_dropout", "weight_dropout", 0.5),
        (
            lambda **a: IHCLSTMCell(3, **a),
            "recurrent_weight_dropout",
            "weight_dropout",
            0.5,
        ),
    ],
)
def test_a_former_name_works_with_a_warning_and_in_files_without(
    make, former, name, value
):
    with pytest.warns(
        DeprecationWarning, match=f"`{former}` of .*called `{name}`"
    ) as said:
        layer = make(**{former: value})
    assert said[0].filename == __file__ and getattr(layer, name) == value
    config = layer.get_config()
    assert config[name] == value and former not in config
    old = {former if key == name else key: kept for key, kept in config.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(layer).from_config(old).get_config() == config
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(TypeError, match=f"twice, once as `{former}`"),
    ):
        make(**{former: value, name: value})


@pytest.mark.parametrize("cls", [WeightDropLSTM, StackedLSTM])
def test_the_config_of_an_lstm_is_taken_where_all_of_it_fits(cls):
    lstm = keras.layers.LSTM(3, return_sequences=True, dropout=0.1, name="mine")
    layer = cls.from_config(lstm.get_config())
    shared = lstm.get_config().keys() & layer.get_config().keys()
    assert {"units", "return_sequences", "kernel_initializer", "dropout"} <= shared
    for name in shared:
        assert layer.get_config()[name] == lstm.get_config()[name]
    other = keras.layers.LSTM(3, activation="relu").get_config()
    with pytest.raises((ValueError, TypeError), match="`activation`. It is .*tanh"):
        cls.from_config(other)


def test_a_trellis_layer_takes_the_config_of_an_lstm_and_a_depth():
    lstm = keras.layers.LSTM(3, activation="relu", use_bias=False)
    layer = TrellisLayer.from_config({**lstm.get_config(), "depth": 2})
    gate = layer.gate.get_config()
    assert gate == {"activation": "relu", "recurrent_activation": "sigmoid"}
    assert not layer.use_bias


@pytest.mark.parametrize(
    "make", [EquilibriumTrellisLayer, lambda *a, **k: TrellisLayer(*a, 2, **k)]
)
def test_activations_go_to_the_gate(make):
    activations = {"activation": "relu", "recurrent_activation": "hard_sigmoid"}
    for gate in ("lstm", "irc_gru"):
        layer = make(3, gate=gate, **activations)
        assert layer.gate.name == gate and layer.gate.get_config() == activations
        copy = type(layer).from_config(layer.get_config())
        assert copy.gate.get_config() == activations
    # None is linear, as for an LSTM.
    assert make(3, activation=None).gate.activation is keras.activations.linear
    assert make(3, gate="irc_gru").gate.activation is keras.activations.linear


def test_activations_that_are_not_those_of_a_gate_that_is_made_are_refused():
    gate = LSTMGate(activation="relu")
    layer = TrellisLayer(3, 2, gate=gate, activation=keras.activations.relu)
    assert layer.gate is gate
    said = message(ValueError, lambda: TrellisLayer(3, 2, gate=gate, activation="tanh"))
    assert said.startswith("`activation` must be that of the gate")
    assert said.endswith("activation='tanh', gate=LSTMGate(activation='relu')")


def test_a_check_of_sizes_that_are_known_adds_nothing_to_a_graph():
    @tf.function
    def checked(tensor):
        return checks.with_shape("x", tensor, (None, 3), "right")

    known, unknown = (
        checked.get_concrete_function(tf.TensorSpec(shape)).graph.get_operations()
        for shape in ([None, 3], [None, None])
    )
    assert len(known) < 4 < len(unknown)
