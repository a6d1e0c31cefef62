"""An exported language model of random weights, which the benchmarks of serving load."""

import contextlib
import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import authors as released
from benchmarks import report, workers
from benchmarks.workers import Contender, Results

FLAGS = flags.FLAGS
FULL = "float32"
Tensors = dict[str, Any]  # by their names in a signature
NAMES = ("vocabulary_size", "units", "embedding_units", "depth")


@dataclasses.dataclass(frozen=True)
class Model:
    """A language model of kernel size 2, and the folder of its exports."""

    vocabulary_size: int
    units: int
    embedding_units: int
    depth: int
    threads: int
    folder: str
    dilation_rate: tuple[int, ...] = (1,)

    def sizes(self) -> dict[str, int]:
        """Returns the sizes by name, as the flags have them."""
        return {name: getattr(self, name) for name in NAMES}

    @property
    def receptive_field(self) -> int:
        """How many tokens a prediction depends on."""
        return 1 + sum(itertools.islice(itertools.cycle(self.dilation_rate), self.depth))

    @property
    def input_weights(self) -> int:
        """The number of the input kernel's weights, both taps."""
        return 2 * self.embedding_units * 4 * self.units

    @property
    def tap_weights(self) -> int:
        """The number of weights of one tap of the hidden kernel."""
        return self.units * 4 * self.units

    @property
    def head_weights(self) -> int:
        """The number of what the softmax reads: the word vectors, and a bias a word."""
        return self.vocabulary_size * (self.embedding_units + 1)

    @property
    def parameters(self) -> int:
        """The number of all weights."""
        return self.head_weights + self.input_weights + 2 * self.tap_weights + 4 * self.units

    def arrays(self) -> dict[str, Any]:
        """Returns the weights, by the authors' names."""
        return released.language_model_arrays(
            self.vocabulary_size, self.embedding_units, self.units
        )

    def build(self) -> Any:
        """Returns the `TrellisLM`."""
        from keras_trellis import convert

        return convert.language_model_from_torch(
            self.arrays(), depth=self.depth, dilation_rate=self.dilation_rate
        )

    def vocabulary(self) -> list[str]:
        """Returns the words, in the order of the ids."""
        return ["<eos>", *(f"w{index}" for index in range(1, self.vocabulary_size))]

    def path(self, precision: str = FULL) -> Path:
        """Returns the folder of the model, kept in a precision, in which its version lies."""
        return Path(self.folder) / precision

    def size(self, precision: str) -> int:
        """Returns the bytes of an export's files."""
        files = self.path(precision).rglob("*")
        return sum(file.stat().st_size for file in files)

    def load(self, precision: str = FULL) -> Any:
        """Returns the export, loaded; its `signatures` live as long as it does."""
        import tensorflow as tf

        return tf.saved_model.load(str(self.path(precision) / "1"))


def empty_cache(loaded: Any, batch_size: int) -> tuple[Any, Tensors]:
    """Returns the log-probabilities [B, V] before the first token, and the cache of no tokens."""
    import tensorflow as tf

    ids = tf.zeros([batch_size, 0], tf.int32)
    lengths = tf.zeros([batch_size], tf.int32)
    return split(loaded.signatures["prefill"](ids=ids, lengths=lengths))


def split(outputs: Tensors) -> tuple[Any, Tensors]:
    """Returns the log-probabilities of `prefill` or `step`, and the cache."""
    return outputs["log_probs"], cache_of(outputs)


def cache_of(outputs: Tensors) -> Tensors:
    """Returns what of a signature's outputs is the cache."""
    return {name: value for name, value in outputs.items() if name.startswith("cache_")}


def sampling(batch_size: int, max_length: int, temperature: float) -> Tensors:
    """Returns inputs of `generate`: all but ids, their lengths and the cache."""
    import tensorflow as tf

    settings = {
        "temperature": (temperature, tf.float32),
        "top_k": (0, tf.int32),
        "top_p": (1, tf.float32),
        "seed": (0, tf.int64),
        "max_length": (max_length, tf.int32),
        "stop_id": (-1, tf.int32),
    }
    rows = {
        name: tf.fill([batch_size], tf.constant(value, dtype))
        for name, (value, dtype) in settings.items()
    }
    return {**rows, "forbidden_ids": tf.fill([batch_size, 1], -1)}


def write(model: Model, precisions: Sequence[str] = (FULL,)) -> Results:
    """Exports a model in processes of their own, one after another.

    Returns:
        For each precision one reading, of the export without the building of the model.

    Raises:
        RuntimeError: an export failed.
    """
    return {
        precision: workers.once(
            f"the export in {precision}",
            functools.partial(export, precision),
            model,
            model.threads,
        )
        for precision in precisions
    }


def export(precision: str, model: Model) -> Contender:
    """A step writes a model, which the contender has built."""
    from keras_trellis.export import export_language_model

    built, vocabulary = model.build(), model.vocabulary()
    return Contender(
        lambda: export_language_model(
            built, vocabulary, model.path(precision), precision=precision
        ),
        {},
    )


def define_flags() -> None:
    """Defines the flags of a model's sizes, by default those of the paper's word-level model."""
    flags.DEFINE_integer("vocabulary_size", 10_000, "Tokens.", lower_bound=2)
    flags.DEFINE_integer("units", 1400, "Hidden channels, q.", lower_bound=1)
    flags.DEFINE_integer("embedding_units", 400, "Of a word vector.", lower_bound=1)
    flags.DEFINE_integer("depth", 55, "Levels, L.", lower_bound=1)
    flags.DEFINE_list("dilation_rate", ["1"], "The cycle of dilations.")


@contextlib.contextmanager
def from_flags(threads: int) -> Iterator[Model]:
    """Yields the model that the flags say, with a folder for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        rate = report.integers("dilation_rate")
        sizes = report.values(NAMES)
        yield Model(**sizes, threads=threads, folder=folder, dilation_rate=rate)
