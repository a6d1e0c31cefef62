"""Generation from an exported model, one token after another, beside LSTMs.

    python -m benchmarks.serving --json=serving.json
    python -m benchmarks.serving --sizes=default --batch_size=1,8,32 --temperature=1
    python -m benchmarks.serving --sizes=default --clients=50 --new_tokens=200

The models have random weights. `tf.saved_model.load` loads them, or the runtime of
`keras_trellis.serving`, which needs no TensorFlow. `step` and `generate` continue prompts; the
cache stays in tensors, as in a server. `window` reads the receptive field again for each token, as
one does without a cache. `load` and `first_generate` are what a server does before its first
answer, and `start` is all that a process does up to its first token. `docs/notes/benchmarks.md`
explains the rows.
"""

import dataclasses
import functools
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import clients, report
from benchmarks.sizes import nearest_units, receptive_field
from benchmarks.workers import Contender, Facts, Result, Results

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Setting:
    """A language model over two taps, and the prompts that it continues.

    Attributes:
        layer: "levels", or "stack": two groups of infinite depth, two LSTMs that read the input.
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
    layer: str = "levels"
    temperature: float = 0.0

    @property
    def receptive_field(self) -> int:
        """How many tokens a prediction of a network of levels depends on."""
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
        width, units = self.embedding_units, self.units
        wanted = 4 * units * (2 * width + 2 * units + 1)
        if (
            self.layer == "stack"
        ):  # two LSTMs of half the units, the second reads the first too
            half = units // 2
            wanted = 4 * half * (2 * width + 3 * half + 2)

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
    elif setting.layer == "stack":
        network = keras_trellis.EquilibriumTrellisLayer(
            setting.units, groups=2, inject_groups=True, output_units=width
        )
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
    export_language_model(
        model(layer, setting), ["<eos>", *words], folder, runtime=layer == "trellis"
    )


# The contenders


def step(layer: str, setting: Setting) -> Contender:
    """The signature `step_v2`, called for each token."""
    import tensorflow as tf

    loaded, facts = _loaded(layer, setting)
    signature = loaded.signatures["step_v2"]
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
    """The signature `generate_v2`, whose loop is in the graph."""
    loaded, facts = _loaded(layer, setting)
    return Contender(_generation(loaded, setting), facts)


def runtime_step(setting: Setting) -> Contender:
    """The runtime's `step`, called for each token."""
    import numpy as np

    loaded, facts = _runtime(setting)
    last, before = _prefilled(loaded, setting)

    def continued():
        ids, cache = last, before
        tokens = []
        for _ in range(setting.new_tokens):
            log_probs, cache = loaded.step(ids, cache)
            ids = log_probs.argmax(axis=-1)
            tokens.append(ids)
        return np.stack(tokens, axis=1)

    return Contender(continued, facts)


def runtime_generate(setting: Setting) -> Contender:
    """The runtime's `generate`."""
    loaded, facts = _runtime(setting)
    last, before = _prefilled(loaded, setting)
    how = {"max_length": setting.new_tokens, "temperature": setting.temperature}

    def continued():
        rows = [1] * setting.batch_size
        return loaded.generate(last[:, None], rows, before, seed=0, **how).ids

    return Contender(continued, facts)


def torch_lstm(setting: Setting) -> Contender:
    """Two LSTMs of PyTorch with as many parameters, and a tied softmax."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    width, units = setting.embedding_units, setting.lstm_units()
    table = torch.nn.Embedding(setting.vocabulary_size, width)
    lstms = [torch.nn.LSTM(width, units), torch.nn.LSTM(units, width)]
    bias = torch.nn.Parameter(torch.zeros(setting.vocabulary_size))
    parameters = [*table.parameters(), bias]
    for lstm in lstms:
        parameters += lstm.parameters()

    def advanced(ids, states):
        features, after = table(ids)[None], []
        for lstm, state in zip(lstms, states, strict=True):
            features, state = lstm(features, state)
            after.append(state)
        return torch.addmm(bias, features[0], table.weight.T), after

    @torch.inference_mode()
    def continued():
        ids = torch.zeros(setting.batch_size, dtype=torch.long)
        states, tokens = [None, None], []
        for _ in range(setting.new_tokens):
            logits, states = advanced(ids, states)
            if setting.temperature:
                shares = torch.softmax(logits / setting.temperature, -1)
                ids = torch.multinomial(shares, 1)[:, 0]
            else:
                ids = logits.argmax(-1)
            tokens.append(ids)
        return torch.stack(tokens, 1).numpy()

    count = sum(parameter.numel() for parameter in parameters)
    return Contender(continued, {"tokens": setting.new_tokens, "parameters": count})


_STARTS = {
    "runtime": """
from keras_trellis.serving import runtime
model = runtime.load({folder!r})
print(model.complete([""], max_length=1, seed=0).ids)
""",
    "saved_model": """
import tensorflow as tf
ask = tf.saved_model.load({folder!r}).signatures
state = ask["prefill_v2"](ids=tf.constant([[0]]), lengths=tf.constant([1]))
print(tf.argmax(state["log_probs"], -1))
""",
}


def start(kind: str, setting: Setting) -> Contender:
    """A process of its own: import, load and first token."""
    folder = f"{setting.folder}/trellis/1"
    command = [sys.executable, "-c", _STARTS[kind].format(folder=folder)]
    return Contender(
        lambda: subprocess.run(command, check=True, capture_output=True), {}
    )


def load(layer: str, setting: Setting) -> Contender:
    """`tf.saved_model.load`."""
    return Contender(lambda: _loaded(layer, setting), {})


def first_generate(layer: str, setting: Setting) -> Contender:
    """The signature `generate_v2` of an export just loaded, which has read the prompt."""
    generated = None

    def prepare():
        nonlocal generated
        loaded, _ = _loaded(layer, setting)
        generated = _generation(loaded, setting)

    return Contender(lambda: generated(), {}, prepare=prepare)


def _generation(loaded, setting):
    """Returns a function that continues the prompts by `generate_v2`."""
    import tensorflow as tf

    signature = loaded.signatures["generate_v2"]
    last, cache = _begun(loaded, setting)

    def every(value, dtype=tf.int32):
        return tf.fill([setting.batch_size], tf.constant(value, dtype))

    request = {
        "ids": last[:, None],
        "lengths": every(1),
        "temperature": every(setting.temperature, tf.float32),
        "top_k": every(0),
        "top_p": every(1, tf.float32),
        "seed": every(0, tf.int64),
        "max_length": every(setting.new_tokens),
        "forbidden_ids": every(-1)[:, None],
        "stop_ids": every(-1)[:, None],
        "stop": tf.fill([setting.batch_size, 1], ""),
        "alternatives": every(0),
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
        math.prod(weight.shape) for weight in loaded.signatures["step_v2"].variables
    ]
    return loaded, {"tokens": setting.new_tokens, "parameters": sum(weights)}


def _begun(loaded, setting):
    """Returns the prompts' last ids `[B]`, and the cache of the ids before them."""
    import tensorflow as tf

    ids = tf.constant(setting.prompts())
    lengths = tf.fill([setting.batch_size], ids.shape[1] - 1)
    outputs = loaded.signatures["prefill_v2"](ids=ids[:, :-1], lengths=lengths)
    return ids[:, -1], _select_cache(outputs)


def _runtime(setting):
    """Returns the export in the runtime, with one thread as it comes, and its facts."""
    from keras_trellis.serving import runtime

    loaded = runtime.load(f"{setting.folder}/trellis")
    return loaded, {"tokens": setting.new_tokens}


def _prefilled(loaded, setting):
    """Returns what `_begun` returns, of the runtime."""
    ids = setting.prompts()
    lengths = [ids.shape[1] - 1] * setting.batch_size
    return ids[:, -1], loaded.prefill(ids[:, :-1], lengths).cache


def _select_cache(outputs):
    return {name: value for name, value in outputs.items() if name.startswith("cache_")}


OURS = "step"
CONTENDERS: report.Contenders = {
    OURS: ("`step_v2`", functools.partial(step, "trellis")),
    "generate": ("`generate_v2`", functools.partial(generate, "trellis")),
    "runtime_step": ("the runtime's `step`", runtime_step),
    "runtime_generate": ("the runtime's `generate`", runtime_generate),
    "torch_lstm": ("torch.nn.LSTM", torch_lstm),
    "lstm": ("keras.layers.LSTM, `step_v2`", functools.partial(step, "lstm")),
    "lstm_generate": (
        "keras.layers.LSTM, `generate_v2`",
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
} | {
    "start": {
        "start": ("the runtime", functools.partial(start, "runtime")),
        "saved_model_start": (
            "the SavedModel",
            functools.partial(start, "saved_model"),
        ),
    }
}
# Those of the paper's word-level model, and those of `small_stacked_lstm` of `pydoc`.
SIZES = {
    "paper": {
        "layer": "levels",
        "vocabulary_size": 10_000,
        "units": 1400,
        "embedding_units": 400,
        "depth": 55,
    },
    "default": {
        "layer": "stack",
        "vocabulary_size": 1593,
        "units": 440,
        "embedding_units": 220,
        "depth": 8,
    },
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
        "p99": lambda row: report.number(1e3 * percentile(row["seconds"], 99), 2),
        "ms of the processor": lambda row: report.number(
            1e3 * statistics.median(row["processor_seconds"]), 2
        ),
        **report.times_to("`step`'s"),
        "parameters": lambda row: report.number(row.get("parameters")),
    }
    return report.table(result["rows"], columns)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value that so many percent of values are not above."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share / 100) - 1, 0)]


def start_table(rows: Sequence[Facts]) -> str:
    """Returns what comes before the first answer as a Markdown table."""
    columns: report.Columns = {
        "": report.title,
        "start": lambda row: f"`{row['start']}`",
        "ms": report.milliseconds,
        "ms of the processor": lambda row: report.number(
            1e3 * statistics.median(row["processor_seconds"]), 1
        ),
        **report.times_to("ours"),
    }
    return report.table(rows, columns)


def clients_table(row: Facts) -> str:
    """Returns what clients get of a server as a Markdown table."""
    ratios = {
        f"ratio{kind}": report.spread(
            [
                server / batch
                for server, batch in zip(
                    row[f"server{kind}"], row[f"batch{kind}"], strict=True
                )
            ]
        )
        for kind in ("", "_processor")
    }
    seconds = row["models_seconds"]
    columns: report.Columns = {
        "": lambda row: row["title"],
        "tokens/s, one batch": lambda row: report.number(
            statistics.median(row["batch"])
        ),
        "tokens/s, the clients": lambda row: report.number(
            statistics.median(row["server"])
        ),
        "ratio: min, median, max": lambda row: report.spread_cell("ratio", row),
        "of the processor": lambda row: report.spread_cell("ratio_processor", row),
        "`/v1/models`: median, ms": lambda row: report.number(
            1e3 * statistics.median(seconds), 1
        ),
        "p99, ms": lambda row: report.number(1e3 * percentile(seconds, 99), 1),
    }
    return report.table([{**row, **ratios}], columns)


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
    """Defines the flags; sizes that are not given are those of `SIZES`."""
    flags.DEFINE_enum("sizes", "paper", list(SIZES), "Of which model.")
    flags.DEFINE_enum("layer", None, ["levels", "stack"], "The sequence layer.")
    flags.DEFINE_integer("vocabulary_size", None, "Tokens.", lower_bound=2)
    flags.DEFINE_integer("units", None, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("embedding_units", None, "Of a word vector.", lower_bound=1)
    flags.DEFINE_integer("depth", None, "Levels, L.", lower_bound=1)
    flags.DEFINE_float("temperature", 0.0, "Of `generate`; 0: greedy.", lower_bound=0)
    flags.DEFINE_list("dilation_rate", ["1"], "The cycle of dilations.")
    flags.DEFINE_list("batch_size", ["1", "32"], "The batch sizes.")
    flags.DEFINE_integer(
        "new_tokens", 16, "By which a step continues a prompt.", lower_bound=1
    )
    named = dict(CONTENDERS)
    for contenders in STARTS.values():
        named |= contenders
    report.define_only(named, OURS)
    flags.DEFINE_integer(
        "clients",
        None,
        "Of a server, at once; nothing else is measured.",
        lower_bound=1,
    )
    flags.DEFINE_bool("stream", False, "Whether the clients ask for streams.")
    report.define_flags(rounds=5, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    sizes = {
        name: value if FLAGS[name].value is None else FLAGS[name].value
        for name, value in SIZES[FLAGS.sizes].items()
    }
    sizes |= report.values(("new_tokens", "temperature"))
    sizes["dilation_rate"] = report.integers("dilation_rate")
    result = {"setting": sizes, **here, "left_out": {}, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            Setting(**sizes, batch_size=batch_size, folder=folder)
            for batch_size in report.integers("batch_size")
        ]
        if FLAGS.clients:
            export("trellis", settings[0])
            return _serve_clients(result, settings[0])
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


def _serve_clients(result: Facts, setting: Setting) -> int:
    load = clients.Load(
        f"{setting.folder}/trellis",
        FLAGS.clients,
        setting.new_tokens,
        requests=3,
        stream=FLAGS.stream,
    )
    kind = "streams" if load.stream else "answers"
    title = f"{load.clients} clients, {kind} of {load.new_tokens} tokens"
    result["clients"] = {"title": title, **clients.measure(load, FLAGS.rounds)}
    report.end(result, clients_table(result["clients"]))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
