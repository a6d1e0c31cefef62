"""Generation from an exported model, one token after another, beside what the machine could do.

    python -m benchmarks.serving --reference_dir=TRELLISNET --json=serving.json

The model has random weights, and `tf.saved_model.load` loads it. `step` and `generate` continue
prompts as long as the receptive field greedily; the cache stays in tensors, as in a server. Other
rows: reading the weights, their products, a Keras LSTM of as many parameters, and reading the
window of the receptive field again for each token. `docs/benchmarks.md` explains them.
"""

import dataclasses
import functools
import statistics
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import authors as released
from benchmarks import exported, lstm, report
from benchmarks.exported import Model
from benchmarks.workers import Contender, Facts, LeftOutError, Reading, Results

FLAGS = flags.FLAGS
MATRIX = (1024, 8192)
MATRICES = 16  # 512 MB in all: more than a processor's caches hold
PASSES = 4  # over them, so that a step takes long enough to be measured


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model, and the prompts that it continues.

    Attributes:
        batch_size: how many prompts.
        new_tokens: how many tokens a step of a contender adds to each.
        reference_dir: a clone of the authors' code.
        windows: as `new_tokens`, where each takes the whole window.
    """

    model: Model
    batch_size: int
    new_tokens: int
    reference_dir: str | None
    windows: int = 1

    def prompts(self) -> Any:
        """Returns ids, int32 [B, receptive field]."""
        import numpy as np

        shape = (self.batch_size, self.model.receptive_field)
        random = np.random.default_rng(0)
        return random.integers(self.model.vocabulary_size, size=shape, dtype=np.int32)

    def weights_read(self) -> int:
        """Returns how many weights a token must read, however many rows there are.

        Each level but the first reads the present tap of the hidden kernel, since it has to wait
        for the level below; the first level's hidden state is zero. The past tap, the input kernel
        and the softmax are read once.
        """
        model = self.model
        return model.input_weights + model.depth * model.tap_weights + model.head_weights


# The exported model


def step(setting: Setting) -> Contender:
    """The signature `step`, called for each token."""
    loaded = setting.model.load()
    one = loaded.signatures["step"]
    ids, cache = _begun(loaded, setting)

    def read(ids, cache):
        return exported.split(one(ids=ids, **cache))

    count = setting.new_tokens
    return _contender(lambda: _greedy(read, ids, cache, count).numpy(), count)


def generate(setting: Setting) -> Contender:
    """The signature `generate`, whose loop is in the graph."""
    import tensorflow as tf

    loaded = setting.model.load()
    continued = loaded.signatures["generate"]
    ids, cache = _begun(loaded, setting)

    request = exported.sampling(setting.batch_size, setting.new_tokens, temperature=0.0)
    request["lengths"] = tf.ones([setting.batch_size], tf.int32)
    request["ids"] = ids[:, None]

    def step():
        return continued(**request, **cache)["ids"].numpy()

    return _contender(step, setting.new_tokens)


def _begun(loaded, setting):
    """Returns the prompts' last ids [B], and the cache of the ids before them."""
    import tensorflow as tf

    ids = tf.constant(setting.prompts())
    lengths = tf.fill([setting.batch_size], ids.shape[1] - 1)
    outputs = loaded.signatures["prefill"](ids=ids[:, :-1], lengths=lengths)
    return ids[:, -1], exported.cache_of(outputs)


def _greedy(read, ids, cache, count):
    """Returns the most probable tokens [B, count], each read before the next."""
    import tensorflow as tf

    tokens = []
    for _ in range(count):
        scores, cache = read(ids, cache)
        ids = tf.argmax(scores, -1, tf.int32)
        tokens.append(ids)
    return tf.stack(tokens, axis=1)


def _contender(step, tokens, **facts):
    """Returns a contender whose step returns ids [B, tokens], an array."""
    learned: Facts = {}

    def remember():
        learned["ids"] = step().tolist()

    return Contender(remember, {"tokens": tokens, **facts}, lambda: learned)


# An LSTM


def lstm_step(setting: Setting) -> Contender:
    """A Keras LSTM of as many parameters between a like embedding and softmax."""
    import tensorflow as tf

    network = lstm.network(setting.model)
    read = tf.function(network.step, autograph=False)
    ids, cache, facts = _lstm_begun(setting, network)
    count = setting.new_tokens
    return _contender(lambda: _greedy(read, ids, cache, count).numpy(), count, **facts)


def lstm_generate(setting: Setting) -> Contender:
    """The same, whose loop is in the graph."""
    import tensorflow as tf

    network = lstm.network(setting.model)
    continued = tf.function(lstm.continued, autograph=False)
    ids, cache, facts = _lstm_begun(setting, network)
    count = tf.constant(setting.new_tokens)

    def step():
        return continued(network, ids, cache, count).numpy()

    return _contender(step, setting.new_tokens, **facts)


def _lstm_begun(setting, network):
    """Returns the prompts' last ids [B], the cache of no tokens, and the facts."""
    import tensorflow as tf

    ids = tf.constant(setting.prompts()[:, -1])
    facts = {"units": lstm.units(setting.model), "parameters": network.count_params()}
    return ids, network.get_initial_cache(setting.batch_size), facts


# The window again for each token


def window(setting: Setting, *, last: bool = False) -> Contender:
    """`TrellisLM` over the window: all outputs, or the last one alone, which is half the work."""
    import tensorflow as tf

    model, reach = setting.model.build(), setting.model.receptive_field
    discard = reach - 1 if last else 0

    @tf.function(autograph=False)
    def predict(ids):
        outputs, *_ = model.trellis(model.embedding(ids), discard=discard)
        return model.head.log_probs(outputs[:, -1], model.embedding.embeddings)

    def step():
        ids = tf.constant(setting.prompts())
        for _ in range(setting.windows):
            scores = predict(ids[:, -reach:])
            likeliest = tf.argmax(scores, -1, tf.int32)
            ids = tf.concat([ids, likeliest[:, None]], axis=1)
        return ids[:, reach:].numpy()

    return _contender(step, setting.windows)


def authors(setting: Setting) -> Contender:
    """The authors' code over the window."""
    if set(setting.model.dilation_rate) != {1}:
        raise LeftOutError("it is built here for the dilation 1 alone")
    sizes = setting.model
    model = released.language_model(setting.reference_dir, sizes.arrays(), sizes.depth)
    import torch

    torch.set_num_threads(sizes.threads)
    prompts = torch.tensor(setting.prompts()).long()
    reach = sizes.receptive_field

    def step():
        ids = prompts
        for _ in range(setting.windows):
            state = model.init_hidden(len(ids))
            outputs, _, _ = model(ids[:, -reach:], state, decode=False)
            _, features, _ = outputs
            logits = model.decoder(features[:, -1])
            last = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, last], dim=1)
        return ids[:, reach:].numpy()

    return _contender(torch.no_grad()(step), setting.windows)


# What the machine could do


def reading(setting: Setting, *, product: bool) -> Contender:
    """The sums of matrices that together fit no cache, or a row times each of them."""
    del setting
    import tensorflow as tf

    def read(row, matrix):
        return tf.matmul(row, matrix) if product else tf.reduce_sum(matrix)

    height, width = MATRIX
    row = tf.ones([1, height])
    matrices = [tf.ones([height, width]) for _ in range(MATRICES)]

    @tf.function
    def whole(row, matrices):
        return tf.add_n([read(row, matrix) for matrix in matrices])

    def step():
        return [whole(row, matrices).numpy() for _ in range(PASSES)]

    size = 4 * height * width * MATRICES * PASSES
    return Contender(step, {"bytes": size})


def products(setting: Setting) -> Contender:
    """The products of a token and nothing else, each with its own shape and in its order."""
    import tensorflow as tf

    model, rows = setting.model, setting.batch_size
    units, levels = model.units, model.depth - 1

    def normal(*shape):
        return tf.random.stateless_normal(shape, (0, 0), stddev=shape[0] ** -0.5)

    present = normal(units, 4 * units)
    past = normal(units, 4 * units)
    kernel = normal(2 * model.embedding_units, 4 * units)
    table = normal(model.vocabulary_size, model.embedding_units)

    @tf.function(autograph=False)
    def multiply(state, pasts, inputs):
        before = tf.matmul(pasts, past), tf.matmul(inputs, kernel)
        state = tf.while_loop(
            lambda level, _: level < levels,
            lambda level, state: (level + 1, tf.matmul(state, present)[:, :units]),
            (0, state),
        )[1]
        features = state[:, -model.embedding_units :]
        return *before, tf.matmul(features, table, transpose_b=True)

    given = (
        normal(rows, units),
        normal(rows * levels, units),
        normal(rows, 2 * model.embedding_units),
    )

    def step():
        return [product.numpy() for product in multiply(*given)]

    return Contender(step, {"tokens": 1})


OURS = "step"
LIMIT = "limit"  # no contender: the faster of READS in each round
READS = ("read_sums", "read_products")
CONTENDERS: report.Contenders = {
    OURS: ("`step`", step),
    "generate": ("`generate`", generate),
    "products": ("products alone", products),
    "lstm": ("keras.layers.LSTM", lstm_step),
    "lstm_generate": ("keras.layers.LSTM, loop in the graph", lstm_generate),
    "window_last": (
        "TrellisLM, window by window, last output",
        functools.partial(window, last=True),
    ),
    "window": ("TrellisLM, window by window", window),
    "authors": ("the authors' code, window by window", authors),
    "read_sums": ("reading, sums", functools.partial(reading, product=False)),
    "read_products": ("reading, products", functools.partial(reading, product=True)),
}
# Our signatures, and the LSTM that does the same.
LSTMS = {OURS: "lstm", "generate": "lstm_generate"}


def rows(setting: Setting, results: Results) -> list[Facts]:
    """Returns the rows of a batch size; nothing if `step` is left out."""
    if OURS not in results:
        return []
    titles = {name: title for name, (title, _) in CONTENDERS.items()}
    times = {}
    for name in results:
        if name not in READS:
            times[name] = _a_token(results[name])
    reads = [results[name] for name in READS if name in results]
    if reads:
        times[LIMIT] = _limit(setting, reads)
        titles[LIMIT] = f"reading {4 * setting.weights_read() / 1e6:,.0f} MB of weights"
    return [
        {
            "name": name,
            "title": titles[name],
            "batch_size": setting.batch_size,
            "seconds_a_token": report.seconds(readings),
            "time_to_ours": report.ratios(readings, times[OURS]),
            "of_limit": _of_limit(name, times),
            "parameters": _parameters(name, setting, results),
            "same": _same(name, results),
        }
        for name, readings in times.items()
    ]


def _a_token(result):
    tokens = result.facts["tokens"]
    return [each._replace(seconds=each.seconds / tokens) for each in result.readings]


def _limit(setting, reads):
    """Returns the time to read a token's weights, at the best rate of each round."""
    needed = 4 * setting.weights_read()
    times = []
    for result in reads:
        share = needed / result.facts["bytes"]
        times.append([share * reading.seconds for reading in result.readings])
    return [Reading(min(each), None) for each in zip(*times, strict=True)]


def _of_limit(name, times):
    """Returns the limit's share of a time; None for what reads other weights, or some again."""
    if name not in (OURS, "generate", "products") or LIMIT not in times:
        return None
    return report.ratios(times[LIMIT], times[name])["median"]


def _parameters(name, setting, results):
    if name in (LIMIT, "products"):
        return None
    return results[name].facts.get("parameters", setting.model.parameters)


def _same(name, results):
    """Returns the share of a contender's tokens that are those of `step`."""
    if name in LSTMS.values() or name not in results:
        return None
    ids = results[name].facts.get("ids")
    if ids is None:
        return None
    equal = []
    for row, ours_row in zip(ids, results[OURS].facts["ids"], strict=True):
        equal += [a == b for a, b in zip(row, ours_row, strict=False)]
    return sum(equal) / len(equal)


def beside_lstms(size: int, results: Results) -> list[Facts]:
    """Returns the time of `step` and of `generate` over that of the matching LSTM."""
    found = []
    for name, other in LSTMS.items():
        if name in results and other in results:
            ours = _a_token(results[name])
            ratios = report.ratios(ours, _a_token(results[other]))
            found.append({"title": f"batch {size}: {CONTENDERS[name][0]}", **ratios})
    return found


def table(found: Facts) -> str:
    """Returns the result as Markdown tables."""
    columns: report.Columns = {
        "": lambda row: row["title"],
        "batch": lambda row: report.number(row["batch_size"]),
        "tokens/s": lambda row: report.number(row["batch_size"] / _seconds(row), 1),
        "ms a token": lambda row: report.number(1e3 * _seconds(row), 2),
        "time to `step`'s: min, median, max": lambda row: report.spread_cell(row["time_to_ours"]),
        "of the reading limit": lambda row: report.share(row["of_limit"]),
        "parameters": lambda row: report.number(row["parameters"]),
        "same tokens": lambda row: report.share(row["same"], 1),
    }
    beside: report.Columns = {
        "": lambda row: row["title"],
        "its time to the LSTM's: min, median, max": report.spread_cell,
    }
    tables = [report.table(found["rows"], columns)]
    if found["beside_lstms"]:
        tables.append(report.table(found["beside_lstms"], beside))
    return "\n\n".join(tables)


def _seconds(row):
    return statistics.median(row["seconds_a_token"])


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list("batch_size", ["1", "32"], "The batch sizes.")
    flags.DEFINE_integer("new_tokens", 16, "By which a step continues a prompt.", lower_bound=1)
    exported.define_flags()
    report.define_only(CONTENDERS, OURS)
    report.define_flags(rounds=5, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the tables; returns the exit status."""
    here = report.begin(argv)
    with exported.from_flags(here["threads"]) as model:
        exported.write(model)
        found = {"setting": model.sizes() | {"new_tokens": FLAGS.new_tokens}, **here}
        found |= {"left_out": {}, "rows": [], "beside_lstms": []}
        for size in report.integers("batch_size"):
            setting = Setting(model, size, FLAGS.new_tokens, FLAGS.reference_dir)
            results, left_out = report.compare(CONTENDERS, OURS, setting, here)
            found["left_out"] |= left_out
            found["rows"] += rows(setting, results)
            found["beside_lstms"] += beside_lstms(size, results)
    report.end(found, table(found))
    return int(CONTENDERS[OURS][0] in found["left_out"])


if __name__ == "__main__":
    define_flags()
    app.run(main)
