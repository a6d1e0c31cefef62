"""An export at work, by ONNX Runtime and NumPy alone.

    from keras_trellis.serving import runtime

    model = runtime.load("models/pydoc")
    print(model.complete(["the with statement"], max_length=40, top_k=10, seed=1).text[0])

A language model's methods are the signatures of the SavedModel: they take and return arrays under
the same names, whose first axis is the batch, and the same numbers to rounding, for the same seed
the same tokens. A cache is a dictionary of arrays, and goes from one to the other. Texts are
strings. What cannot be right is refused by a ValueError before anything is computed.

Nothing here changes once it is loaded: threads may share a model.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_trellis.formats import manifest, sampling
from keras_trellis.formats.checks import MODERATE, moderate, require
from keras_trellis.formats.limits import MOST_TOKENS
from keras_trellis.formats.tokenizer import Encoded, Tokenizer
from keras_trellis.serving.batch import Batch
from keras_trellis.serving.caches import Caches
from keras_trellis.serving.reading import Prediction, Reader
from keras_trellis.serving.requests import Vocabulary
from keras_trellis.serving.sessions import Arrays, Session, Spec
from keras_trellis.serving.writing import Continuation, continued


@dataclasses.dataclass(frozen=True)
class Scores:
    """How probable tokens are, in rows with zeros, -1 and empty strings after their ends.

    Attributes:
        tokens: `[B, T]`, as the model reads them; empty where ids were scored.
        words: `[B, T]`, the text's own, which differ where the vocabulary lacks them.
        nll: float32 `[B, T]`, in nats.
        ranks: int32 `[B, T]`, 1 for the most probable token.
        likeliest_ids: int32 `[B, T, K]`, the most probable tokens in the place of each.
        likeliest_log_probs: float32 `[B, T, K]`.
        total: float32 `[B]`, the sum of `nll`.
        count: int32 `[B]`, how many tokens are scored.
        unknown: int32 `[B]`, how many of them the vocabulary does not have.
    """

    tokens: np.ndarray
    words: np.ndarray
    nll: np.ndarray
    ranks: np.ndarray
    likeliest_ids: np.ndarray
    likeliest_log_probs: np.ndarray
    total: np.ndarray
    count: np.ndarray
    unknown: np.ndarray


def load(
    path: str | os.PathLike[str], *, threads: int = 1
) -> LanguageModel | Classifier:
    """Loads an export.

    Args:
        path: the folder of a version, or of a model, whose newest version is loaded.
        threads: how many threads compute an operation; 0: as many as there are cores. A small model
            is fastest, and costs least, with one.

    Raises:
        ManifestError: there is no export; its files are not those that were written; or it has no
            form that runs without TensorFlow, and the message says why.

    Examples:
        After the example of `keras_trellis.export.export_language_model`:

        >>> from keras_trellis.serving import runtime
        >>> model = runtime.load("models/toy")
        >>> model.tokenizer.tokens
        ['<eos>', '<unk>', 'to', 'be']
        >>> scores = model.score(["to be to be"])
        >>> int(scores.count[0])
        4
        >>> continuation = model.complete(["to be"], max_length=3, seed=1)
        >>> len(continuation.text)
        1
    """
    folder = manifest.newest(path)
    entries = manifest.read(folder)
    if entries.runtime.refused:
        reason = entries.runtime.refused
        raise manifest.ManifestError(f"{folder} runs in TensorFlow alone: {reason}")
    manifest.check(folder, entries, entries.runtime.files)
    kind = LanguageModel if entries.kind == "language_model" else Classifier
    return kind(folder, entries, threads)


class LanguageModel:
    """A language model; `load` makes it.

    Args:
        folder: the version's folder.
        entries: its manifest.
        threads: see `load`.

    Attributes:
        tokenizer: its tokens.
        fingerprint: that of its caches.
        reader: reads ids that have been checked.
        vocabulary: checks requests.
    """

    def __init__(self, folder: Path, entries: manifest.Manifest, threads: int) -> None:
        self.fingerprint = entries.fingerprint
        self.tokenizer = Tokenizer.load(folder)
        self._caches = Caches(entries.runtime.cache, entries.fingerprint)
        size = len(self.tokenizer.tokens)
        if size != entries.runtime.vocabulary_size:
            raise manifest.ManifestError(
                f"{folder / manifest.NAME} must have the size of the vocabulary, {size}. "
                f"Received: {entries.runtime.vocabulary_size}"
            )
        step, chunk = (
            _graph(folder / name, threads, entries.runtime)
            for name in ("step.onnx", "chunk.onnx")
        )
        self.reader = Reader(step, chunk, size)
        self.vocabulary = Vocabulary(size, self.tokenizer.unknown_id)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, V."""
        return self.vocabulary.size

    def tokenize(self, texts: Sequence[str]) -> Encoded:
        """Returns the ids of texts, how many there are, their words, and how many are unknown."""
        return self.tokenizer.encode(_listed(texts))

    def detokenize(self, ids: Any, before: int | None = None) -> str:
        """Returns the text of ids `[T]`, as in print.

        Of words, the spaces that stand between them alone are left out, as far as the export says
        how. U+FFFD at the end stands for a character that pieces begin and do not end.

        Args:
            ids: the ids; negative ones add nothing.
            before: the token before them; None: a line break.
        """
        ids = self.vocabulary.tokens("ids", np.ravel(ids), least=-1)
        before = self.tokenizer.eos_id if before is None else before
        return self.tokenizer.detokenize(before, ids.tolist())

    def empty_cache(self, rows: int) -> Arrays:
        """Returns the cache of no text, for so many rows."""
        return self._caches.empty(rows)

    def batch(self) -> Batch:
        """Returns what advances rows together, as yet none."""
        return Batch(self.reader, self.vocabulary_size, self.empty_cache(0))

    def prefill(self, ids: Any, lengths: Any) -> Prediction:
        """Reads prompts.

        Args:
            ids: `[B, T]`, at most 65,536 tokens.
            lengths: `[B]`, how many of a row count; 0 for an empty prompt.
        """
        ids, lengths = self.vocabulary.rows(ids, lengths, least=0, most=MOST_TOKENS)
        return self.reader.read(ids, lengths, self.empty_cache(len(ids)))

    def step(self, ids: Any, cache: Mapping[str, np.ndarray]) -> Prediction:
        """Reads one token a row, at a cost that does not grow with the text.

        Args:
            ids: `[B]`.
            cache: of an earlier call.
        """
        ids = self.vocabulary.tokens("ids", ids)
        if ids.ndim != 1:
            raise ValueError(f"`ids` must be of shape [B]. Received: {list(ids.shape)}")
        return self.reader.step(ids, self._caches.checked(cache, len(ids)))

    def score(self, texts: Sequence[str], alternatives: Any = 0) -> Scores:
        """Scores texts, each token given those before it and the line break before the text.

        Args:
            texts: the texts.
            alternatives: how many of the most probable tokens to return in the place of each, from
                0 to 100; a number, or one for each text.
        """
        encoded = self.tokenize(texts)
        begun = np.pad(
            encoded.ids, [(0, 0), (1, 0)], constant_values=self.tokenizer.eos_id
        )
        scores = self.score_ids(begun, encoded.lengths + 1, alternatives)
        width = encoded.ids.shape[1]
        names = np.array([*self.tokenizer.tokens, ""], object)
        inside = np.arange(width) < encoded.lengths[:, None]
        words = np.full(encoded.ids.shape, "", object)
        for index, row in enumerate(encoded.words):
            words[index, : len(row)] = row
        each = ("nll", "ranks", "likeliest_ids", "likeliest_log_probs")
        return dataclasses.replace(
            scores,
            tokens=names[np.where(inside, encoded.ids, -1)],
            words=words,
            unknown=encoded.unknown,
            **{name: getattr(scores, name)[:, 1:] for name in each},
        )

    def score_ids(self, ids: Any, lengths: Any, alternatives: Any = 0) -> Scores:
        """Scores ids, each given those before it in its row.

        The first has no context, and no score.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`, how many of a row count.
            alternatives: see `score`.
        """
        ids, lengths = self.vocabulary.rows(ids, lengths, least=0)
        asked = self.vocabulary.alternatives(alternatives, len(ids))
        count = int(asked.max(initial=0))
        shape = ids.shape
        nll = np.zeros(shape, np.float32)
        ranks = np.zeros(shape, np.int32)
        likeliest = np.full([*shape, count], -1, np.int32)
        best = np.zeros([*shape, count], np.float32)

        def compare(
            rows: np.ndarray, places: np.ndarray, log_probs: np.ndarray
        ) -> None:
            scored = (rows, places + 1)
            targets = ids[scored]
            nll[scored] = -log_probs[np.arange(len(rows)), targets]
            ranks[scored] = sampling.ranks(log_probs, targets)
            found = sampling.likeliest(log_probs, count, asked[rows])
            likeliest[scored], best[scored] = found

        read = np.maximum(lengths - 1, 0)  # the last id of a row is only a target
        self.reader.read(ids, read, self.empty_cache(len(ids)), compare)
        empty = np.full(shape, "", object)
        return Scores(
            tokens=empty,
            words=empty,
            nll=nll,
            ranks=ranks,
            likeliest_ids=likeliest,
            likeliest_log_probs=best,
            total=nll.sum(axis=1, dtype=np.float64).astype(np.float32),
            count=np.maximum(lengths - 1, 0),
            unknown=np.zeros(len(ids), np.int32),
        )

    def next(
        self, texts: Sequence[str], count: int = 10
    ) -> tuple[list[list[str]], np.ndarray]:
        """Returns the `count` most probable tokens after texts, and their probabilities `[B, N]`.

        At most 100, and no more than the vocabulary has.
        """
        count = int(self.vocabulary.alternatives(count, 1, "count")[0])
        encoded = self._begun(texts)
        prediction = self.reader.read(
            encoded.ids, encoded.lengths, self.empty_cache(len(texts))
        )
        ids, log_probs = sampling.likeliest(prediction.log_probs, count)
        tokens = [[self.tokenizer.tokens[index] for index in row] for row in ids]
        return tokens, np.exp(log_probs)

    def complete(
        self, texts: Sequence[str], *, max_length: Any, **settings: Any
    ) -> Continuation:
        """Continues texts, each of which begins a line; see `generate` for the settings."""
        encoded = self._begun(texts)
        cache = self.empty_cache(len(encoded.ids))
        return self.generate(
            encoded.ids, encoded.lengths, cache, max_length=max_length, **settings
        )

    def generate(
        self,
        ids: Any,
        lengths: Any,
        cache: Mapping[str, np.ndarray],
        *,
        max_length: Any,
        seed: Any,
        temperature: Any = 1.0,
        top_k: Any = 0,
        top_p: Any = 1.0,
        stop_ids: Any = (),
        stop: Any = (),
        forbidden_ids: Any = (),
        alternatives: Any = 0,
    ) -> Continuation:
        """Reads ids and continues them.

        The same row with the same seed is continued alike, whatever row or batch it is in, and in
        two calls as in one. A setting is one value for all rows, or one for each.

        Args:
            ids: `[B, T]`, at most 65,536 tokens, which have not been read yet.
            lengths: `[B]`, how many of a row count, at least 1.
            cache: of what came before; `empty_cache` where nothing did.
            max_length: how many tokens to add, from 1 to 65,536.
            seed: of the draws, an integer of 64 bits.
            temperature: divides the log-probabilities; 0: the most probable token.
            top_k: choose from so many of the most probable tokens; 0: from all.
            top_p: choose from the fewest tokens of this probability, in (0, 1].
            stop_ids: tokens that end a row, `[S]` or `[B, S]`; -1: none.
            stop: texts that end a row, each of at most 256 bytes: a list for all rows, or a list of
                one list a row; an empty text stops nothing.
            forbidden_ids: tokens not to write, `[F]` or `[B, F]`; -1: `<unk>`, if the vocabulary
                has it; -2: nothing.
            alternatives: see `score`.
        """
        ids, lengths = self.vocabulary.rows(ids, lengths, least=1, most=MOST_TOKENS)
        count = len(ids)
        settings = self.vocabulary.settings(
            count,
            max_length=max_length,
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            stop_ids=stop_ids,
            stop=stop,
            forbidden_ids=forbidden_ids,
            alternatives=alternatives,
        )
        before = self._caches.checked(cache, count)
        prediction = self.reader.read(ids, lengths, before)
        last = ids[np.arange(count), lengths - 1]
        return continued(self.batch(), self.tokenizer, settings, last, prediction)

    def _begun(self, texts: Sequence[str]) -> Encoded:
        """Returns texts after a line break."""
        return self.tokenizer.encode(f"\n{text}" for text in _listed(texts))


class Classifier:
    """A classifier of sequences; `load` makes it.

    Args:
        folder: the version's folder.
        entries: its manifest.
        threads: see `load`.

    Attributes:
        labels: the names of the classes.
    """

    def __init__(self, folder: Path, entries: manifest.Manifest, threads: int) -> None:
        self.labels: list[str] = list(entries.runtime.labels)
        self._classify = Session(folder / "classify.onnx", threads)

    def classify(self, **inputs: Any) -> np.ndarray:
        """Returns the probabilities of the classes, float32 `[B, classes]`.

        Args:
            **inputs: those of the signature `serve`: `sequences` `[B, T, p]` and their `lengths`
                `[B]`, at least 1, or what the export makes sequences of, such as `images`.
        """
        return self._classify(_classifiable(inputs, self._classify))["probabilities"]


def _graph(path: Path, threads: int, runtime: manifest.Runtime) -> Session:
    """Returns one of a language model's two functions.

    Raises:
        ManifestError: it is not what the manifest says.
    """
    session = Session(path, threads)
    ids = {"ids", "mask"} if path.stem == "chunk" else {"ids"}
    if session.specs.keys() - runtime.cache.keys() != ids or (
        session.returned.keys() != {"log_probs", *runtime.cache}
    ):
        raise manifest.ManifestError(
            f"{path} must read {', '.join(sorted(ids))} and the cache of {manifest.NAME}, and "
            f"return it with log_probs. Received: {', '.join(session.specs)}; "
            f"{', '.join(session.returned)}"
        )
    rows = ["rows"]
    scores = [*rows, "steps"] if path.stem == "chunk" else rows
    expected = {
        "log_probs": Spec(np.dtype(np.float32), [*scores, runtime.vocabulary_size])
    }
    for name, tensor in runtime.cache.items():
        expected[name] = Spec(np.dtype(tensor.dtype), [*rows, *tensor.sizes])
    for name, spec in (*session.specs.items(), *session.returned.items()):
        if name in expected and not spec.fits(expected[name]):
            raise manifest.ManifestError(
                f"{path} must have {name} as {manifest.NAME} lists it, {expected[name]}. "
                f"Received: {spec}"
            )
    return session


def _listed(texts: Sequence[str]) -> list[str]:
    """Returns texts as a list; one text alone would be read letter by letter."""
    if isinstance(texts, str):
        raise ValueError(f"`texts` must be a list of texts. Received: {texts!r}")
    return list(texts)


def _classifiable(inputs: Mapping[str, Any], session: Session) -> Arrays:
    """Returns the inputs of a classifier as arrays of its dtypes.

    Raises:
        ValueError: they are others, or cannot be right.
    """
    if inputs.keys() != session.specs.keys():
        raise ValueError(
            f"a request must have {', '.join(session.specs)}. Received: {', '.join(inputs)}"
        )
    arrays = {}
    for name, spec in session.specs.items():
        arrays[name] = spec.checked(name, inputs[name])
    rows = {name: len(value) for name, value in arrays.items()}
    if len({*rows.values()}) > 1:
        raise ValueError(
            f"{', '.join(rows)} must have one row each for every request. Received: "
            f"{[*rows.values()]} rows"
        )
    if "lengths" in arrays:
        lengths, steps = arrays["lengths"], arrays["sequences"].shape[1]
        fits = (lengths >= 1) & (lengths <= steps)
        require("lengths", lengths, fits, "from 1 to the number of steps")
        inside = np.arange(steps) < lengths[:, None]
        values = arrays["sequences"][inside]
        require("sequences", values, moderate(values), MODERATE)
    return arrays
