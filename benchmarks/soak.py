"""The memory of a process that serves a model for long.

    python -m benchmarks.soak --json=soak.json

One process loads a small exported model and answers requests of all signatures, of sizes drawn
anew for each; another generates one text, chunk after chunk, each from the cache that the last one
returned. What each holds is read after every tenth.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags

from benchmarks import exported, report, workers
from benchmarks.exported import Model
from benchmarks.workers import Contender, Result
from trainers.training import costs

FLAGS = flags.FLAGS
TENTHS = 10
SHOWN = (0.1, 0.5, 1.0)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model, and what is asked of it.

    Attributes:
        requests: how many in all.
        rows: the most rows of a request.
        words: the most tokens of a row.
        tokens: how long a text is generated.
        chunk: how many tokens a call of `generate` adds to it.
    """

    model: Model
    requests: int
    rows: int
    words: int
    tokens: int
    chunk: int


def requests(setting: Setting) -> Contender:
    """A tenth of the requests a step, signatures in turn."""
    loaded = setting.model.load()
    turns = itertools.cycle(asking(loaded, setting))
    return _watched(lambda: next(turns)(), setting.requests)


def asking(loaded: Any, setting: Setting) -> list[Callable[[], Any]]:
    """Returns for each signature a function that sends it a request of random size."""
    draw = _Requests(loaded, setting)
    inputs = {
        "score_ids": draw.ids,
        "prefill": draw.ids,
        "step": draw.step,
        "generate": draw.generate,
    }
    return [
        lambda name=name, function=function: function(**inputs.get(name, draw.text)())
        for name, function in loaded.signatures.items()
    ]


class _Requests:
    """Inputs of signatures, of sizes and contents drawn at random.

    Args:
        loaded: the export, which makes the caches.
        setting: the greatest sizes.
    """

    def __init__(self, loaded: Any, setting: Setting) -> None:
        import numpy as np

        self._loaded, self._setting = loaded, setting
        self._vocabulary = setting.model.vocabulary()
        self._random = np.random.default_rng(0)

    def _up_to(self, most: int) -> int:
        return int(self._random.integers(1, most + 1))

    def text(self) -> dict[str, Any]:
        import tensorflow as tf

        rows = [self._up_to(self._setting.words) for _ in range(self._up_to(self._setting.rows))]
        texts = [" ".join(self._random.choice(self._vocabulary, count)) for count in rows]
        return {"text": tf.constant(texts)}

    def ids(self) -> dict[str, Any]:
        import tensorflow as tf

        shape = self._up_to(self._setting.rows), self._up_to(self._setting.words)
        ids = self._random.integers(self._setting.model.vocabulary_size, size=shape)
        lengths = self._random.integers(1, shape[1] + 1, shape[0])
        return {"ids": tf.constant(ids, tf.int32), "lengths": tf.constant(lengths, tf.int32)}

    def step(self) -> dict[str, Any]:
        ids = self.ids()["ids"][:, 0]
        return {"ids": ids, **exported.empty_cache(self._loaded, len(ids))[1]}

    def generate(self) -> dict[str, Any]:
        inputs = self.ids()
        rows = len(inputs["ids"])
        settings = exported.sampling(rows, self._up_to(self._setting.chunk), temperature=1.0)
        return {**inputs, **settings, **exported.empty_cache(self._loaded, rows)[1]}


def generation(setting: Setting) -> Contender:
    """A tenth of the text a step, each chunk from the cache that the last one returned."""
    import tensorflow as tf

    loaded = setting.model.load()
    chunk = loaded.signatures["generate"]
    settings = exported.sampling(1, setting.chunk, temperature=1.0)
    carried = {"ids": tf.zeros([1, 1], tf.int32), **exported.empty_cache(loaded, 1)[1]}

    def extend() -> None:
        outputs = chunk(lengths=tf.ones([1], tf.int32), **settings, **carried)
        carried.update(exported.cache_of(outputs), ids=outputs["ids"][:, -1:])

    return _watched(extend, setting.tokens, each=setting.chunk)


def _watched(call: Callable[[], Any], count: int, each: int = 1) -> Contender:
    """Returns a contender that makes a tenth of the calls, and reads what the process then holds.

    Args:
        call: what to do.
        count: requests or tokens in all.
        each: how many of them a call is.
    """
    calls = max(1, round(count / each / TENTHS))
    resident: list[int | None] = []

    def step() -> None:
        for _ in range(calls):
            call()
        resident.append(costs.resident("VmRSS"))

    return Contender(step, {"count": TENTHS * calls * each}, lambda: {"resident": resident})


CONTENDERS = {
    "requests": ("requests of all signatures", requests),
    "generation": ("tokens of one text", generation),
}


def row(name: str, result: Result) -> dict[str, Any]:
    """Returns a contender's row."""
    seconds = sum(report.seconds(result.readings))
    return {"name": name, "title": CONTENDERS[name][0], **result.facts, "seconds": seconds}


def table(found: dict[str, Any]) -> str:
    """Returns the result as a Markdown table."""
    titles = ("", "count", "a second", *(f"MiB after {tenth:.0%}" for tenth in SHOWN), "growth")
    return report.markdown(titles, [_cells(each) for each in found["rows"]])


def _cells(each: dict[str, Any]) -> list[str]:
    shown = [each["resident"][round(tenth * TENTHS) - 1] for tenth in SHOWN]
    growth = "" if None in shown else f"{shown[-1] / shown[0] - 1:+.1%}"
    return [
        each["title"],
        f"{each['count']:,}",
        f"{each['count'] / each['seconds']:,.0f}",
        *map(report.mebibytes, shown),
        growth,
    ]


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("requests", 10_000, "In all.", lower_bound=TENTHS)
    flags.DEFINE_integer("rows", 4, "The most rows of a request.", lower_bound=1)
    flags.DEFINE_integer("words", 50, "The most tokens of a row.", lower_bound=1)
    flags.DEFINE_integer("tokens", 100_000, "Of the text that is generated.", lower_bound=1)
    flags.DEFINE_integer("chunk", 100, "By which a call of `generate` continues.", lower_bound=1)
    exported.define_flags(units=64, depth=8, embedding_units=32)
    report.define_flags(rounds=None)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    names = ("requests", "rows", "words", "tokens", "chunk")
    asked = {name: FLAGS[name].value for name in names}
    with exported.from_flags(here["threads"]) as model:
        exported.write(model)
        builds = {name: build for name, (_, build) in CONTENDERS.items()}
        results, left_out = workers.measure(
            builds, Setting(model, **asked), threads=here["threads"], warmup=0, rounds=TENTHS
        )
    found = {"setting": {**model.sizes(), **asked}, **here, "left_out": left_out}
    found["rows"] = [row(name, result) for name, result in results.items()]
    report.end(found, table)
    return int(bool(left_out))


if __name__ == "__main__":
    define_flags()
    app.run(main)
