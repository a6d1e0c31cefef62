"""Generation from an exported model, one token after another, beside a Keras LSTM.

    python -m benchmarks.serving --json=serving.json

The models have random weights, and `tf.saved_model.load` loads them. `step` and `generate` continue
prompts greedily; the cache stays in tensors, as in a server. `window` reads the receptive field
again for each token, as one does without a cache. `load` and `first_generate` are what a server
does before its first answer. `docs/benchmarks.md` explains the rows.
"""

import dataclasses
import functools
import math
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import report
from benchmarks.sizes import nearest_units, receptive_field
from benchmarks.workers import Contender, Facts, Result, Results

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Setting:
    """A language model over two taps, and the prompts that it continues.

    Attributes:
        batch_size: how many prompts.
        new_tokens: how many tokens a step of a contender adds to each.
        folder: holds an exported model for each layer, `trellis` and `lstm`.
    """

    vocabulary_size: int
    units: int
    embedding_units: int
    depth: int
    dilation_rate: tuple[int, ...]
    batch_size: int
    new_tokens: int
    folder: str

    @property
    def receptive_field(self) -> int:
        """How many tokens a prediction of the trellis network depends on."""
        return receptive_field(self.depth, self.dilation_rate)

    def prompts(self) -> Any:
        """Returns ids, int32 `[B, receptive field]`."""
        import numpy as np

        shape = (self.batch_size, self.receptive_field)
        random = np.random.default_rng(0)
        return random.integers(self.vocabulary_size, size=shape, dtype=np.int32)

    def lstm_units(self) -> int:
        """Returns the units of the first of two LSTMs that have as many weights as the network.

        The second one has `embedding_units`.
        """
        width = self.embedding_units
        wanted = 4 * self.units * (2 * width + 2 * self.units + 1)

        def count(units):
            first = 4 * units * (width + units + 1)
            second = 4 * width * (units + width + 1)
            return first + second

        return nearest_units(count, wanted)


def model(layer: str, setting: Setting) -> Any:
    """Returns a `TrellisLM` over `trellis` or `lstm`, built."""
    import keras

    import keras_trellis

    width = setting.embedding_units
    if layer == "lstm":
        network = [keras.layers.LSTM(units) for units in (setting.lstm_units(), width)]
    else:
        network = keras_trellis.TrellisLayer(
            setting.units,
            setting.depth,
            dilation_rate=setting.dilation_rate,
            output_units=width,
        )
    built = keras_trellis.TrellisLM(
        setting.vocabulary_size, network, embedding_units=width
    )
    built.build((None, None))
    return built


def export(layer: str, setting: Setting) -> None:
    """Writes a model as a server reads it."""
    from keras_trellis.export import export_language_model

    words = [f"w{index}" for index in range(1, setting.vocabulary_size)]
    folder = f"{setting.folder}/{layer}"
    export_language_model(model(layer, setting), ["<eos>", *words], folder)


# The contenders


def step(layer: str, setting: Setting) -> Contender:
    """The signature `step`, called for each token."""
    import tensorflow as tf

    loaded, facts = _loaded(layer, setting)
    signature = loaded.signatures["step"]
    last, before = _begun(loaded, setting)

    def continued():
        ids, cache = last, before
        tokens = []
        for _ in range(setting.new_tokens):
            outputs = signature(ids=ids, **cache)
            ids = tf.argmax(outputs["log_probs"], -1, tf.int32)
            cache = _select_cache(outputs)
            tokens.append(ids)
        return tf.stack(tokens, axis=1).numpy()

    return Contender(continued, facts)


def generate(layer: str, setting: Setting) -> Contender:
    """The signature `generate`, whose loop is in the graph."""
    loaded, facts = _loaded(layer, setting)
    return Contender(_generation(loaded, setting), facts)


def load(layer: str, setting: Setting) -> Contender:
    """`tf.saved_model.load`."""
    return Contender(lambda: _loaded(layer, setting), {})


def first_generate(layer: str, setting: Setting) -> Contender:
    """The signature `generate` of an export just loaded, which has read the prompt."""
    generated = None

    def prepare():
        nonlocal generated
        loaded, _ = _loaded(layer, setting)
        generated = _generation(loaded, setting)

    return Contender(lambda: generated(), {}, prepare=prepare)


def _generation(loaded, setting):
    """Returns a function that continues the prompts by `generate`."""
    import tensorflow as tf

    signature = loaded.signatures["generate"]
    last, cache = _begun(loaded, setting)

    def every(value, dtype=tf.int32):
        return tf.fill([setting.batch_size], tf.constant(value, dtype))

    request = {
        "ids": last[:, None],
        "lengths": every(1),
        "temperature": every(0, tf.float32),
        "top_k": every(0),
        "top_p": every(1, tf.float32),
        "seed": every(0, tf.int64),
        "max_length": every(setting.new_tokens),
        "stop_id": every(-1),
        "forbidden_ids": every(-1)[:, None],
    }
    return lambda: signature(**request, **cache)["ids"].numpy()


def window(setting: Setting) -> Contender:
    """`TrellisLM` over the receptive field, which computes the last output alone."""
    import tensorflow as tf

    built, reach = model("trellis", setting), setting.receptive_field

    @tf.function(autograph=False)
    def likeliest(ids):
        vectors = built.embedding(ids)
        outputs, *_ = built.trellis(vectors, discard=reach - 1)
        scores = built.head.log_probs(outputs[:, -1], built.embedding.embeddings)
        return tf.argmax(scores, -1, tf.int32)

    prompts = tf.constant(setting.prompts())
    facts = {"tokens": 1, "parameters": built.count_params()}
    return Contender(lambda: likeliest(prompts).numpy(), facts)


def _loaded(layer, setting):
    """Returns an export, whose signatures live as long as it does, and its facts."""
    import tensorflow as tf

    loaded = tf.saved_model.load(f"{setting.folder}/{layer}/1")
    weights = [
        math.prod(weight.shape) for weight in loaded.signatures["step"].variables
    ]
    return loaded, {"tokens": setting.new_tokens, "parameters": sum(weights)}


def _begun(loaded, setting):
    """Returns the prompts' last ids `[B]`, and the cache of the ids before them."""
    import tensorflow as tf

    ids = tf.constant(setting.prompts())
    lengths = tf.fill([setting.batch_size], ids.shape[1] - 1)
    outputs = loaded.signatures["prefill"](ids=ids[:, :-1], lengths=lengths)
    return ids[:, -1], _select_cache(outputs)


def _select_cache(outputs):
    return {name: value for name, value in outputs.items() if name.startswith("cache_")}


OURS = "step"
CONTENDERS: report.Contenders = {
    OURS: ("`step`", functools.partial(step, "trellis")),
    "generate": ("`generate`", functools.partial(generate, "trellis")),
    "lstm": ("keras.layers.LSTM, `step`", functools.partial(step, "lstm")),
    "lstm_generate": (
        "keras.layers.LSTM, `generate`",
        functools.partial(generate, "lstm"),
    ),
    "window": ("TrellisLM, window by window", window),
}
# What comes before the first answer: for each kind our contender, then the LSTM.
STARTS: dict[str, report.Contenders] = {
    kind.__name__: {
        kind.__name__: ("the export", functools.partial(kind, "trellis")),
        f"lstm_{kind.__name__}": (
            "keras.layers.LSTM",
            functools.partial(kind, "lstm"),
        ),
    }
    for kind in (load, first_generate)
}


def a_token(results: Results) -> Results:
    """Returns the results with the seconds of one token in place of those of a step."""
    per_token = {}
    for name, (facts, readings) in results.items():
        times = [
            reading._replace(
                seconds=reading.seconds / facts["tokens"],
                processor_seconds=reading.processor_seconds / facts["tokens"],
            )
            for reading in readings
        ]
        per_token[name] = Result(facts, times)
    return per_token


def table(result: Facts) -> str:
    """Returns the result as a Markdown table."""
    columns: report.Columns = {
        "": report.title,
        "batch": lambda row: report.number(row["batch_size"]),
        "tokens/s": lambda row: report.number(row["batch_size"] / row["median"], 1),
        "ms a token": lambda row: report.number(1e3 * row["median"], 2),
        **report.times_to("`step`'s"),
        "parameters": report.parameters,
    }
    return report.table(result["rows"], columns)


def start_table(rows: Sequence[Facts]) -> str:
    """Returns what comes before the first answer as a Markdown table."""
    columns: report.Columns = {
        "": report.title,
        "start": lambda row: f"`{row['start']}`",
        "ms": report.milliseconds,
        **report.times_to("ours"),
    }
    return report.table(rows, columns)


def starts(setting: Setting, here: report.Row) -> tuple[list[Facts], dict[str, str]]:
    """Measures what comes before the first answer.

    Returns:
        the rows, and the reasons of those left out.
    """
    all_rows, left_out = [], {}
    for start, contenders in STARTS.items():
        if FLAGS.only and not contenders.keys() & set(FLAGS.only):
            continue
        results, reasons = report.compare(contenders, start, setting, here)
        left_out |= {f"{title}, {start}": why for title, why in reasons.items()}
        rows = report.rows(contenders, start, results)
        all_rows += [{**row, "start": start} for row in rows]
    return all_rows, left_out


def define_flags() -> None:
    """Defines the flags; the default sizes are those of the paper's word-level model."""
    flags.DEFINE_integer("vocabulary_size", 10_000, "Tokens.", lower_bound=2)
    flags.DEFINE_integer("units", 1400, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("embedding_units", 400, "Of a word vector.", lower_bound=1)
    flags.DEFINE_integer("depth", 55, "Levels, L.", lower_bound=1)
    flags.DEFINE_list("dilation_rate", ["1"], "The cycle of dilations.")
    flags.DEFINE_list("batch_size", ["1", "32"], "The batch sizes.")
    flags.DEFINE_integer(
        "new_tokens", 16, "By which a step continues a prompt.", lower_bound=1
    )
    named = dict(CONTENDERS)
    for contenders in STARTS.values():
        named |= contenders
    report.define_only(named, OURS)
    report.define_flags(rounds=5, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    sizes = report.values(
        ("vocabulary_size", "units", "embedding_units", "depth", "new_tokens")
    )
    sizes["dilation_rate"] = report.integers("dilation_rate")
    result = {"setting": sizes, **here, "left_out": {}, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            Setting(**sizes, batch_size=batch_size, folder=folder)
            for batch_size in report.integers("batch_size")
        ]
        for layer in ("trellis", "lstm"):
            export(layer, settings[0])
        for setting in settings:
            results, left_out = report.compare(CONTENDERS, OURS, setting, here)
            result["left_out"] |= left_out
            rows = report.rows(CONTENDERS, OURS, a_token(results))
            result["rows"] += [
                {**row, "batch_size": setting.batch_size} for row in rows
            ]
        result["starts"], left_out = starts(settings[0], here)
        result["left_out"] |= left_out
    tables = [table(result)]
    if result["starts"]:
        tables.append(start_table(result["starts"]))
    report.end(result, "\n\n".join(tables))
    return int(CONTENDERS[OURS][0] in result["left_out"])


if __name__ == "__main__":
    define_flags()
    app.run(main)
