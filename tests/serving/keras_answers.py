"""What the signatures shall answer, from the Keras models' own methods, one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_trellis import TrellisLM
from keras_trellis.formats import sampling
from keras_trellis.types import Cache
from tests.serving import models
from tests.serving.served import Arrays


def answer(
    name: str, model: keras.Model, signature: str, row: Mapping[str, Any]
) -> Arrays:
    """Returns what a row gets from a signature of one of `KINDS`, without padding."""
    if name in models.VOCABULARIES:
        answers = _LanguageModel(model, models.VOCABULARIES[name])
        return getattr(answers, signature.removesuffix("_v2"))(**row)
    if name == "images":
        return _classes(model, models.pixels(row["images"][None]), range(3))
    return _classes(model, row["sequences"][None, : row["lengths"]], models.LABELS)


def _classes(model: keras.Model, sequences: Any, labels: Any) -> Arrays:
    probabilities = tf.nn.softmax(model(sequences))[0].numpy()
    best = np.argsort(-probabilities)
    names = np.array([str(label).encode() for label in labels], object)
    return {"probabilities": probabilities, "classes": best, "labels": names[best]}


def cache_arrays(cache: Any, steps: Any) -> Arrays:
    """Returns a cache's tensors under the names that they have in a request.

    Args:
        cache: a model's cache.
        steps: the tokens read so far, one number a row.
    """
    if not isinstance(cache, Cache):
        named = {f"cache_{index}": each for index, each in enumerate(cache)}
        named["cache_steps"] = np.asarray(steps, np.int32)
        return {name: np.asarray(value) for name, value in named.items()}
    named = {"cache_inputs": cache.inputs, "cache_steps": cache.steps}
    named |= {f"cache_levels_{index}": each for index, each in enumerate(cache.levels)}
    named |= {f"cache_state_{index}": each for index, each in enumerate(cache.state)}
    return {name: np.asarray(value) for name, value in named.items()}


class _LanguageModel:
    """The signatures, of one row each: a row's inputs in, its outputs back."""

    def __init__(self, model: TrellisLM, vocabulary: list[str]) -> None:
        self._model, self._vocabulary = model, vocabulary
        self._eos = vocabulary.index("<eos>")

    def tokenize(self, text: bytes) -> Arrays:
        words = self._split(text.decode(errors="replace"))
        known = [word if word in self._vocabulary else "<unk>" for word in words]
        ids = np.array([self._vocabulary.index(word) for word in known], int)
        unknown = sum(word not in self._vocabulary for word in words)
        return {"ids": ids, "lengths": len(ids), "unknown": unknown}

    def _split(self, text: str) -> list[str]:
        if " " in self._vocabulary:
            return ["<eos>" if symbol == "\n" else symbol for symbol in text]
        return text.replace("\n", " <eos> ").split()

    def score_ids(self, ids: np.ndarray, lengths: int, **_: Any) -> Arrays:
        ids, nll = ids[:lengths], np.zeros(lengths)
        if lengths > 1:
            nll[1:] = self._model.score(ids[None, :-1], ids[None, 1:])[0][0]
        return {"nll": nll, "total": nll.sum(), "count": max(lengths - 1, 0)}

    def score(self, text: bytes, **_: Any) -> Arrays:
        read = self.tokenize(text)
        ids = read["ids"]
        scored = self.score_ids(np.array([self._eos, *ids]), len(ids) + 1)
        words = [word.encode() for word in self._split(text.decode(errors="replace"))]
        return {
            **scored,
            "nll": scored["nll"][1:],
            "tokens": self._tokens(ids),
            "words": np.array(words, object),
            "unknown": read["unknown"],
        }

    def serving_default(self, text: bytes) -> Arrays:
        nll = self.score(text)["nll"]
        ids = np.array([self._eos, *self.tokenize(text)["ids"]])
        probabilities = np.exp(self.prefill(ids, len(ids))["log_probs"])
        best = np.argsort(-probabilities)[:10]
        return {
            "perplexity": np.exp(nll.mean()) if len(nll) else 1.0,
            "unknown": self.tokenize(text)["unknown"],
            "next_tokens": self._tokens(best),
            "next_probabilities": probabilities[best],
        }

    serve = serving_default

    def prefill(self, ids: np.ndarray, lengths: int) -> Arrays:
        cache = self._model.get_initial_cache(1)
        if not lengths:  # zeros are what the head is given of no text
            features = tf.zeros([1, self._model.trellis.output_units])
            log_probs = self._model.head.log_probs(
                features, self._model.embedding.embeddings
            )
        else:
            log_probs, cache = self._model.prefill(ids[None, :lengths], cache)
        return _first_row({"log_probs": log_probs, **cache_arrays(cache, [lengths])})

    def step(self, ids: int, **cache: np.ndarray) -> Arrays:
        log_probs, after = self._model.step([ids], self._cache(cache))
        steps = [cache["cache_steps"] + 1]
        return _first_row({"log_probs": log_probs, **cache_arrays(after, steps)})

    def generate(self, ids: np.ndarray, lengths: int, **settings: Any) -> Arrays:
        """After no text only; without stops and alternatives."""
        prompt = ids[:lengths]
        unknown = self._vocabulary.index("<unk>") if "<unk>" in self._vocabulary else -2
        forbidden = [
            unknown if index == -1 else index for index in settings["forbidden_ids"]
        ]
        forbidden = [index for index in forbidden if index >= 0]
        size = len(self._vocabulary)
        how = sampling.Sampling(
            *(np.array([settings[name]]) for name in sampling.Sampling._fields)
        )
        how = how._replace(top_k=np.where(how.top_k == 0, size, how.top_k))
        # Draws are numbered by position.
        noise = sampling.Noise(how.seed, np.array([lengths]), size)
        log_probs, cache = self._model.prefill(
            prompt[None], self._model.get_initial_cache(1)
        )
        drawn, own = [], []
        for _ in range(settings["max_length"]):
            if drawn:
                log_probs, cache = self._model.step([drawn[-1]], cache)
            scores = np.array(log_probs)
            scores[:, forbidden] = -np.inf
            drawn.append(int(sampling.draw(scores, how, noise)[0]))
            own.append(float(log_probs[0, drawn[-1]]))
        # The model's own loop draws the same.
        whole = self._model.generate(
            prompt[None],
            lengths + len(drawn),
            temperature=float(how.temperature[0]),
            top_k=int(how.top_k[0]),
            top_p=float(how.top_p[0]),
            seed=int(how.seed[0]),
            forbidden_ids=forbidden,
            strip_prompt=True,
        )
        np.testing.assert_array_equal(whole[0], drawn)
        steps = [lengths + len(drawn) - 1]
        return {
            "ids": np.array(drawn),
            "lengths": len(drawn),
            "log_probs": np.array(own),
            "stopped": False,
            "text": self._decode(prompt[-1], np.array(drawn)),
            **_first_row(cache_arrays(cache, steps)),
        }

    def _cache(self, given: Mapping[str, np.ndarray]) -> Any:
        """Returns the cache of a request; it has a fingerprint, and lacks what nothing reads."""
        initial = self._model.get_initial_cache(1)
        named = {
            name: given.get(name, value)
            for name, value in _first_row(cache_arrays(initial, [0])).items()
        }
        if "cache_inputs" not in named:
            return tuple(
                named[each][None] for each in sorted(named) if each != "cache_steps"
            )

        def states(name: str) -> tuple:
            return tuple(
                named[each][None] for each in sorted(named) if each.startswith(name)
            )

        levels, state = states("cache_levels"), states("cache_state")
        return Cache(
            named["cache_inputs"][None], levels, state, named["cache_steps"][None]
        )

    def _tokens(self, ids: np.ndarray) -> np.ndarray:
        return np.array([self._vocabulary[index].encode() for index in ids], object)

    def _decode(self, before: int, ids: np.ndarray) -> bytes:
        text, line_begins = "", before == self._eos
        for index in ids:
            ends = index == self._eos
            word = "\n" if ends else self._vocabulary[index]
            text += (
                word if ends or line_begins or " " in self._vocabulary else f" {word}"
            )
            line_begins = ends
        return text.encode()


def _first_row(tensors: Mapping[str, Any]) -> Arrays:
    return {name: np.asarray(value)[0] for name, value in tensors.items()}
