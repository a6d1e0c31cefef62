"""The classes of tasks. A task is one value, in its own module, that `registry` lists."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from ml_collections import ConfigDict

from configs import baselines as settings
from keras_trellis.formats.manifest import NOT_STATED
from keras_trellis.formats.standardizer import Standardizer
from trainers.data import plain, tokens
from trainers.data.encoding import Source
from trainers.data.images import ImageSource
from trainers.data.long_memory import Examples
from trainers.data.pieces import LEAST
from trainers.data.plain import Parts
from trainers.data.recordings import SeriesData
from trainers.models.fields import Condition, Field, integer, one_of, or_none
from trainers.models.layers import LAYERS
from trainers.tasks import search as spaces
from trainers.tasks.measures import (
    ACCURACY,
    CROSS_ENTROPY,
    PIECES,
    SYMBOLS,
    WORDS,
    Measure,
    Metric,
    TokenMeasure,
)
from trainers.tasks.search import Space

TOKENS = ("words", "pieces")
PIECE_FIELDS = {
    "data.tokens": one_of(*TOKENS)._replace(default="words"),
    # None: with pieces, the usual number
    "data.vocabulary_size": or_none(integer(LEAST))._replace(default=None),
}
"""The fields of a task of words whose text may be cut in pieces of words instead."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A result of the paper on test data, in the task's measure, under the authors' protocol.

    Attributes:
        name: the paper's name for the model.
        parameters: the number of the model's parameters; None if it is not published.
        value: the result.
    """

    name: str
    parameters: float | None
    value: float


@dataclasses.dataclass(frozen=True)
class Measured:
    """A result of this repository on test data, in the task's measure, by the protocol `exact`.

    Attributes:
        preset: the preset that was trained.
        value: the mean over the seeds.
        deviation: the standard deviation over the seeds.
        seeds: the number of seeds.
        tokens: the number of scored tokens.
        sha256: the checksums of the splits' texts, where the task does not check them itself.
    """

    preset: str
    value: float
    deviation: float
    seeds: int
    tokens: int
    sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def matches(self, checksums: Mapping[str, str], tokens: int) -> bool:
        """Returns whether a text with these checksums and scored tokens is the measured one."""
        same = all(
            checksums[split] == checksum for split, checksum in self.sha256.items()
        )
        return same and tokens == self.tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task: data, a measure, published results and presets.

    Attributes:
        name: the value of `--task`.
        presets: functions that return config values, by the value of `--preset`; the first is the
            default. They give the values that differ from the defaults of `schema`.
        former_presets: the names that presets had in the release before, with those of today. They
            work for one release, and name a run's folder as they did.
        measure: the measure of results.
        data: a description of the data, for model cards.
        licence: what the data's publisher says; nothing here is advice on the law.
        metrics: numbers that are scored beside the measure. They need the whole distribution over
            the tokens, also where the loss needs less. An `OwnTask` has none.
        published: the paper's results.
        quoted: results of other models, which the paper's tables have beside its own.
        sizes: the paper's number of parameters, by preset.
        fields: fields of the config that this task alone has, by their dotted names.
        conditions: when those of its `fields` are read that are not always.
        search: what `trainers.tune` searches.
        baselines: the settings that `trainers.compare` begins with, by layer.
        folds: how many folds of its data the seeds choose among in turn, unless `config.data.fold`
            does; None: the data have none.
        program: the command that trains it.
    """

    program: ClassVar[str]

    name: str
    presets: Mapping[str, Callable[[], dict]]
    former_presets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    measure: Measure
    data: str = ""
    licence: str = NOT_STATED
    metrics: tuple[Metric, ...] = ()
    published: tuple[Published, ...] = ()
    quoted: tuple[Published, ...] = ()
    sizes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    search: Space = dataclasses.field(default_factory=dict)
    baselines: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    folds: int | None = None

    def network(self, config: ConfigDict) -> str:
        """Returns in words the network that a config of the task trains."""
        model = config.model
        return LAYERS[model.layer].network(model, self.output_channels(model))

    def output_channels(self, model: ConfigDict) -> int:
        """Returns the channels of the outputs of the layer in the group `model`."""
        return model.output_units or model.units


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask(Task):
    """A task of a command of its own, whose model has no sequence layer.

    Its `fields` are all that its groups `model`, `data` and `evaluation` have, beside
    `data.batch_size`.

    Attributes:
        evaluation: the command that evaluates its runs.
    """

    evaluation: ClassVar[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Language modelling: a model predicts the next token of a text.

    Attributes:
        source: finds the text. Takes the task, `data_dir`, `cache_dir` and the values of the
            config's group `corpus`.
        standardize: makes any text like the task's own; None: texts stay as they are.
        made_ready: the same in words, for model cards.
        printed: writes a text of the task, whose words single spaces separate, with the spaces of
            print; None: it has them.
        characters: whether tokens are characters; else they are words.
        pieces: how many pieces of words to learn, which are the tokens then; None: they are words
            or characters.
        parts: cuts a text of the task, before it is made ready, into what its words stand for.
        vocabulary_size: the published text's number of words, if there is such a text.
        lengths: tokens of each split of the published text, if the files may be others.
        measured: results of this repository to compare a run with.
    """

    program = "trainers.lm"

    source: Callable[..., Source]
    measure: TokenMeasure = WORDS
    search: Space = dataclasses.field(default_factory=lambda: spaces.WORDS)
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: settings.WORDS
    )
    standardize: Standardizer | None = None
    made_ready: str | None = None
    printed: Standardizer | None = None
    characters: bool = False
    pieces: int | None = None
    parts: Parts | None = None
    vocabulary_size: int | None = None
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    measured: tuple[Measured, ...] = ()

    def output_channels(self, model: ConfigDict) -> int:
        """Returns the channels of the outputs, by default the size of a word vector."""
        return model.output_units or model.embedding_units

    def list_tokens(self, text: str) -> list[str]:
        """Returns the tokens of a text."""
        ready = self.standardize.apply(text) if self.standardize else text
        cut = tokens.split_characters if self.characters else tokens.split_words
        return cut(ready)

    def in_print(self, text: str) -> str:
        """Returns a text of the task with the spaces of print."""
        return self.printed.apply(text) if self.printed else text

    def text_parts(self) -> Parts | None:
        """Returns what cuts the task's text into what its words stand for.

        By that, models of different tokens compare. None: they do not, as the text has no other
        form, or nobody has said what its words stand for.
        """
        if self.parts or not PIECE_FIELDS.keys() <= self.fields.keys():
            return self.parts
        return None if self.standardize else plain.split

    def with_pieces(self, count: int) -> "LanguageTask":
        """Returns the task with so many pieces of words as tokens of its text as it is."""
        return dataclasses.replace(
            self,
            pieces=count,
            measure=PIECES,
            standardize=None,
            made_ready=None,
            printed=None,
            measured=(),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageTask(Task):
    """Classification of images after the last pixel.

    Attributes:
        images: their source.
        permuted: whether pixels are read in an order drawn from the seed.
    """

    program = "trainers.pixels"

    images: ImageSource
    measure: Measure = ACCURACY
    permuted: bool = False
    search: Space = dataclasses.field(default_factory=lambda: spaces.IMAGES)
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: settings.IMAGES
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesTask(Task):
    """Recordings of several channels, with one answer each or one a step.

    Attributes:
        load: takes the run's config and `data_dir`.
        objective: what the network learns: one of `trainers.time_series.objectives.OBJECTIVES`.
        unit: the text after a predicted number.
        shape: takes the config; returns the channels of a recording, and how many numbers the
            network returns for one target. None: the user's files say it.
    """

    program = "trainers.series"

    load: Callable[[Any, str | None], SeriesData]
    objective: str
    unit: str = ""
    shape: Callable[[Any], tuple[int, int]] | None = None
    search: Space = dataclasses.field(default_factory=lambda: spaces.SERIES)
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: settings.SERIES
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawnTask(Task):
    """A task whose data are drawn from the seed."""

    program = "trainers.pixels"

    search: Space = dataclasses.field(default_factory=lambda: spaces.GENERATED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratedTask(DrawnTask):
    """A number of sequences, to test how long a network remembers.

    Attributes:
        draw: takes a number of sequences, `config.data.steps` and a generator.
        outputs: how many numbers the network returns for one target.
    """

    draw: Callable[[int, int, np.random.Generator], Examples]
    outputs: int
    measure: Measure = CROSS_ENTROPY


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmTask(DrawnTask):
    """An algorithm to learn from examples, each of which a run sees once.

    Attributes:
        algorithm: takes the config's group `data`; returns one of `trainers.data.algorithms`.
    """

    algorithm: Callable[[Any], Any]
    measure: Measure = SYMBOLS
    baselines: Mapping[str, dict] = dataclasses.field(
        default_factory=lambda: settings.ALGORITHMS
    )
