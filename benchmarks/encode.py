"""Measures the work before the first step: encoding a corpus, loading it, drawing batches.

    python -m benchmarks.corpus --output=DIR
    python -m benchmarks.encode --data_dir=DIR --cache_dir=CACHE

Loading again verifies every checksum of the text and of the ids. Memory is the peak above the
process at rest, with TensorFlow imported. Take an empty CACHE: a stopped encoding would go on from
its last record.
"""

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags

from benchmarks import workers
from trainers.data import streams
from trainers.tasks import config as configs
from trainers.tasks import corpora, registry
from trainers.tasks.task import LanguageTask
from trainers.training import costs

FLAGS = flags.FLAGS


def measure(what: str, work: Callable[[], Any], tokens: Callable[[Any], int]) -> Any:
    """Prints a row of what `work` takes, `tokens` being those of its result; returns that."""
    workers.forget_peak()
    rest, start = costs.resident("VmRSS"), time.monotonic()
    result = work()
    seconds, peak = time.monotonic() - start, costs.resident("VmHWM")
    memory = "" if rest is None or peak is None else f"{(peak - rest) / 2**20:,.0f}"
    count = tokens(result)
    print(f"| {what} | {seconds:.1f} | {count:,} | {count / seconds:,.0f} | {memory} |", flush=True)
    return result


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"arguments must be flags, --FLAG=VALUE. Received: {argv[1]}")
    config = configs.load(FLAGS.task)
    options = config.get("corpus", {})

    def load():
        return corpora.load(FLAGS.task, FLAGS.data_dir, FLAGS.cache_dir, **options)

    def length(corpus):
        splits = (corpus.train, corpus.validation, corpus.test)
        return sum(map(len, splits))

    def batches(ids, count):
        data = config.data
        cut = streams.contiguous_streams(ids, data.batch_size)
        windows = streams.Windows(cut.shape[1], data.window, data.horizon)
        drawn = itertools.islice(streams.windows_dataset(cut, windows), count)
        return sum(ids.shape[0] * ids.shape[1] for ids, _ in drawn)

    print("| | seconds | tokens | tokens/s | peak MiB |\n| --- | ---: | ---: | ---: | ---: |")
    measure("encode", load, length)
    corpus = measure("load again", load, length)
    batches(corpus.validation, 1)  # TensorFlow starts with the first
    measure(f"draw {FLAGS.steps:,} batches", lambda: batches(corpus.train, FLAGS.steps), int)
    return 0


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_enum(
        "task",
        "wikitext103",
        list(registry.of_kind(LanguageTask)),
        "Whose corpus, and whose batches.",
    )
    flags.DEFINE_string("data_dir", None, "The folder of the corpus's text files.")
    flags.DEFINE_string("cache_dir", None, "For the encoded ids.", required=True)
    flags.DEFINE_integer("steps", 1000, "Batches to draw.", lower_bound=1)


if __name__ == "__main__":
    define_flags()
    sys.exit(app.run(main))
