"""Language modelling as a kind of task: its fields and its rules."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from ml_collections import ConfigDict

from configs import baselines as settings
from keras_trellis.formats.standardizer import Standardizer
from trainers.data import plain, tokens
from trainers.data.encoding import Source
from trainers.data.pieces import LEAST, USUAL
from trainers.data.plain import Parts
from trainers.kinds import search as spaces
from trainers.kinds.measures import PIECES, WORDS, TokenMeasure
from trainers.kinds.search import Space
from trainers.kinds.task import EXPORT, STEM, Task
from trainers.models.fields import (
    COUNT,
    Field,
    Rule,
    Values,
    changing,
    integer,
    one_of,
    or_none,
)

TOKENS = ("words", "pieces")
PIECE_FIELDS = {
    "data.tokens": one_of(*TOKENS)._replace(default="words"),
    # None: with pieces, the usual number
    "data.vocabulary_size": or_none(integer(LEAST))._replace(default=None),
}
"""The fields of a task of words whose text may be cut in pieces of words instead."""
EVALUATION_FLAGS = (
    "protocol",
    "dynamic_rate",
    "dynamic_decay",
    "cache_size",
    "cache_theta",
    "cache_lambda",
)

_FIELDS: dict[str, Field] = {
    "data.window": COUNT,
    "data.horizon": integer(0),
    "data.history": one_of("zero", "carried"),
    "data.lengths": one_of("equal", "drawn")._replace(default="equal"),
    # The streams of the validation loss, which decides on the best epoch.
    "evaluation.batch_size": COUNT,
    # The pieces of a text and the time steps in a call of the protocol `exact`. They change no
    # score.
    "evaluation.exact_batch_size": changing(COUNT)._replace(default=12),
    "evaluation.exact_chunk": changing(COUNT)._replace(default=128),
}


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
    folder = "trainers.language"
    evaluation_flags = EVALUATION_FLAGS
    takes_workers = True
    reproduction = "trainers.papers.texts"
    kind_fields = _FIELDS
    unread_fields = (STEM,)
    next_commands = (
        ("write; --prompt=TEXT begins the text", "trainers.generate {workdir}"),
        EXPORT,
        ("show the export in a browser", "trainers.demo --model=models/{name}"),
    )

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

    def configured(self, config: Values) -> "LanguageTask":
        """Returns the task with the tokens that a config names."""
        data = config["data"]
        if data.get("tokens") != "pieces":
            return self
        return self.with_pieces(data["vocabulary_size"] or USUAL)

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of windows, of a vocabulary and of word vectors."""
        yield from _window_rules(values)
        yield from _piece_rules(values)
        yield from _vector_rules(values)

    def data_facts(self, checksums: Mapping[str, str]) -> dict[str, str]:
        """Returns what a model card says about its text, and how that is made ready."""
        ready = {"Text is made ready": self.made_ready} if self.made_ready else {}
        return super().data_facts(checksums) | ready

    def format_loss(self, loss: float) -> str:
        """Returns a validation loss in the task's measure."""
        return f"{self.measure.name} {self.measure.text(self.measure.from_nats(loss))}"


def _window_rules(values: Values) -> Iterator[Rule]:
    """Yields what is refused of the windows of a text."""
    window, horizon = values["data.window"], values["data.horizon"]
    overlaps = horizon and values["data.history"] == "carried"
    expected = (
        "0 with config.data.history='carried': "
        "windows that overlap have no state to go on from"
    )
    yield overlaps, "data.horizon", expected
    drawn = horizon and values["data.lengths"] == "drawn"
    expected = "0 with config.data.lengths='drawn', whose windows do not overlap"
    yield drawn, "data.horizon", expected
    expected = (
        f"below config.data.window={window}, so that a window has something to score"
    )
    yield horizon >= window, "data.horizon", expected
    expected = "False with config.data.lengths='drawn': XLA would compile each length"
    compiled = values["training.jit_compile"] and values["data.lengths"] == "drawn"
    yield compiled, "training.jit_compile", expected, "data.lengths"


def _piece_rules(values: Values) -> Iterator[Rule]:
    """Yields what is refused of a vocabulary."""
    counted = values.get("data.tokens") == "words"
    sized = values.get("data.vocabulary_size") is not None
    expected = "None with config.data.tokens='words': the training text has its words"
    yield counted and sized, "data.vocabulary_size", expected


def _vector_rules(values: Values) -> Iterator[Rule]:
    """Yields what is refused of word vectors."""
    lacking = values["model.embedding_units"] is None
    yield lacking, "model.embedding_units", COUNT.expected
    least, most = (
        f"model.embeddings_initializer.config.{end}" for end in ("minval", "maxval")
    )
    yield values[least] > values[most], least, f"at most config.{most}", most
