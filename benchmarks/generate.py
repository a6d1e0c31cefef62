"""Generation, one token after another, with a cache and without.

    python -m benchmarks.generate --reference_dir=TRELLISNET --json=generate.json

A step continues a batch of prompts of random tokens greedily. The weights are random too; no time
depends on either. The authors' code has no cache: for each token it reads the last
`receptive_field` tokens again, on which the token depends.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags

from benchmarks import authors as released
from benchmarks import exported, report
from benchmarks.workers import Contender, Facts, Results

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Setting:
    """A language model, and the prompts [B, P] that it continues by so many tokens each."""

    batch_size: int
    prompt: int
    new_tokens: int
    vocabulary_size: int
    units: int
    embedding_units: int
    depth: int
    threads: int
    reference_dir: str | None

    def prompts(self) -> Any:
        """Returns ids, int32 [B, P]."""
        import numpy as np

        shape = (self.batch_size, self.prompt)
        random = np.random.default_rng(0)
        return random.integers(self.vocabulary_size, size=shape, dtype=np.int32)

    def arrays(self) -> dict[str, Any]:
        """Returns the weights, by the authors' names."""
        return released.language_model_arrays(
            self.vocabulary_size, self.embedding_units, self.units
        )


def contender(step: Callable[[], Any], **facts: Any) -> Contender:
    """Returns a contender whose step returns the new ids [B, new_tokens], an array."""
    learned: Facts = {}

    def remember():
        learned["ids"] = step().tolist()

    return Contender(remember, facts, lambda: learned)


def _model(setting):
    from keras_trellis import convert

    return convert.language_model_from_torch(setting.arrays(), depth=setting.depth, dilation_rate=1)


def generate(setting: Setting) -> Contender:
    """`TrellisLM.generate`, whose loop is in the graph."""
    import tensorflow as tf

    model, ids = _model(setting), tf.constant(setting.prompts())
    length = setting.prompt + setting.new_tokens
    return contender(
        lambda: model.generate(ids, length, temperature=0.0, strip_prompt=True).numpy()
    )


def step(setting: Setting) -> Contender:
    """`TrellisLM.prefill` and `step`, called for each token as a server does."""
    import tensorflow as tf

    model = _model(setting)
    prefill = tf.function(model.prefill)
    one = tf.function(model.step)
    cache = model.get_initial_cache(setting.batch_size)
    ids = tf.constant(setting.prompts())

    def continued():
        scores, read = prefill(ids, cache)
        return _continued(scores, read, one, setting.new_tokens)

    return contender(continued)


def lstm(setting: Setting) -> Contender:
    """A Keras LSTM of as many units, with an embedding below and a softmax above."""
    import keras
    import tensorflow as tf

    embedding = keras.layers.Embedding(setting.vocabulary_size, setting.embedding_units)
    layer = keras.layers.LSTM(setting.units, return_state=True)
    softmax = keras.layers.Dense(setting.vocabulary_size)

    def read(ids, state):
        output, *state = layer(embedding(ids), initial_state=state)
        return softmax(output), state

    prefill = tf.function(read)
    one = tf.function(lambda ids, state: read(ids[:, None], state))
    ids = tf.constant(setting.prompts())
    state = [tf.zeros([setting.batch_size, setting.units])] * 2
    read(ids[:, :1], state)  # builds the layers

    def step():
        scores, read = prefill(ids, state)
        return _continued(scores, read, one, setting.new_tokens)

    return contender(step)


def _continued(scores, cache, one, count):
    import numpy as np

    def likeliest(scores):
        return np.argmax(scores.numpy(), -1).astype(np.int32)

    tokens = [likeliest(scores)]
    while len(tokens) < count:
        scores, cache = one(tokens[-1], cache)
        tokens.append(likeliest(scores))
    return np.stack(tokens, axis=1)


def authors(setting: Setting) -> Contender:
    """The authors' code, the whole window again for each token."""
    model = released.language_model(setting.reference_dir, setting.arrays(), setting.depth)
    import torch

    torch.set_num_threads(setting.threads)
    prompts = torch.tensor(setting.prompts()).long()
    reach = setting.depth + 1  # kernel size 2, dilation 1

    def step():
        ids = prompts
        for _ in range(setting.new_tokens):
            state = model.init_hidden(len(ids))
            outputs, _, _ = model(ids[:, -reach:], state, decode=False)
            _, features, _ = outputs
            logits = model.decoder(features[:, -1])
            last = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, last], dim=1)
        return ids[:, setting.prompt :].numpy()

    return contender(torch.no_grad()(step))


OURS = "generate"
CONTENDERS: report.Contenders = {
    OURS: ("TrellisLM.generate", generate),
    "step": ("TrellisLM.step, token by token", step),
    "lstm": ("keras.layers.LSTM, token by token", lstm),
    "authors": ("the authors' code, window by window", authors),
}


def row(name: str, setting: Setting, results: Results) -> Facts:
    """Returns a contender's row; `same` is the share of its tokens that are ours."""
    facts, readings = results[name]
    times = report.seconds(readings)
    tokens = setting.batch_size * setting.new_tokens
    return {
        "name": name,
        "title": CONTENDERS[name][0],
        "batch_size": setting.batch_size,
        "prompt": setting.prompt,
        "seconds": times,
        "tokens_per_second": tokens / report.spread(times)["median"],
        "time_to_ours": report.ratios(readings, results[OURS].readings),
        "same": None if name == "lstm" else same(facts["ids"], results[OURS].facts["ids"]),
    }


def same(ids: Sequence[Sequence[int]], ours: Sequence[Sequence[int]]) -> float:
    """Returns the share of ids [B, N] that are the first ones of ours [B, N or more]."""
    equal = []
    for row, ours_row in zip(ids, ours, strict=True):
        equal += [a == b for a, b in zip(row, ours_row, strict=False)]
    return sum(equal) / len(equal)


def table(found: Facts) -> str:
    """Returns the result as a Markdown table."""
    new_tokens = found["setting"]["new_tokens"]
    columns: report.Columns = {
        "": lambda row: row["title"],
        "batch": lambda row: report.number(row["batch_size"]),
        "prompt": lambda row: report.number(row["prompt"]),
        "tokens/s": lambda row: report.number(row["tokens_per_second"]),
        "ms a token": lambda row: report.number(
            1e3 * statistics.median(row["seconds"]) / new_tokens, 2
        ),
        "time to ours: min, median, max": lambda row: report.spread_cell(row["time_to_ours"]),
        "same tokens": lambda row: report.share(row["same"], 1),
    }
    return report.table(found["rows"], columns)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list("batch_size", ["1", "16"], "The batch sizes.")
    flags.DEFINE_list("prompt", ["16", "256"], "The lengths of the prompts, in tokens.")
    flags.DEFINE_integer("new_tokens", 64, "By which each prompt is continued.", lower_bound=1)
    exported.define_flags(units=512, depth=20)
    report.define_only(CONTENDERS, OURS)
    report.define_flags(rounds=5)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    known = report.values(("new_tokens", *exported.NAMES))
    settings = [
        Setting(
            batch_size,
            prompt,
            **known,
            threads=here["threads"],
            reference_dir=FLAGS.reference_dir,
        )
        for batch_size in report.integers("batch_size")
        for prompt in report.integers("prompt")
    ]
    each, left_out = report.compare_each(CONTENDERS, OURS, settings, here)
    found = {"setting": known, **here, "left_out": left_out, "rows": []}
    for setting, results in zip(settings, each, strict=True):
        if OURS in results:
            found["rows"] += [row(name, setting, results) for name in results]
    report.end(found, table(found))
    return int(CONTENDERS[OURS][0] in left_out)


if __name__ == "__main__":
    define_flags()
    app.run(main)
