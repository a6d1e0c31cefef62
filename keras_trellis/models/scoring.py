"""What a language model is trained on, and how it scores a text."""

from __future__ import annotations

from typing import Any

import keras

from keras_trellis import heads
from keras_trellis.core import checks
from keras_trellis.models import losses, passes
from keras_trellis.models.losses import LossTerms, OwnLoss
from keras_trellis.models.streaming import Streaming
from keras_trellis.models.targets import next_tokens, scored, where_valid
from keras_trellis.types import Tensor


class Scoring(Streaming, OwnLoss):
    """The part of a language model that compares its predictions with the next tokens.

    Attributes:
        head: what turns features into log-probabilities.
        auxiliary_every: how many levels apart the auxiliary outputs are; None: there are none.
        auxiliary_from: where these levels are counted from.
        auxiliary_weight: the weight of their loss; 0: it is off.
    """

    head: Any
    auxiliary_every: int | None
    auxiliary_from: str
    auxiliary_weight: float

    def loss_terms(
        self,
        ids: Tensor,
        targets: Tensor,
        *,
        initial_state: Any = None,
        mask: Any = None,
        sample_weight: Any = None,
        training: bool = False,
        discard: int = 0,
        depth: int | None = None,
    ) -> tuple[LossTerms, Any]:
        """Returns the terms of the paper's loss and the new state.

        Args:
            ids: integers `[B, T]`.
            targets: integers `[B, T]`, the token after each; not read where it is not scored.
            initial_state: None (zeros), or a state that an earlier call returned. Gradients flow
                through it: to carry history as the paper does, pass it through
                `keras.ops.stop_gradient`.
            mask: None, or booleans `[B, T]`; masked steps are skipped and not scored.
            sample_weight: None, or weights `[B]` or `[B, T]` of the positions; means are weighted
                means.
            training: whether to drop.
            discard: how many positions at the start are context only, not scored.
            depth: how many levels of a trellis network to run; None: all. See `TrellisLayer.call`.

        Returns:
            `LossTerms`, whose sum is the loss, and the state after the last step.

        Raises:
            ValueError: ids or targets are not tokens of the vocabulary, or the shape of `targets`,
                `mask` or `sample_weight` is not that of `ids`.
        """
        ids, mask = self.checked_tokens("ids", ids, mask)
        if ids.shape[1] is not None and discard >= ids.shape[1]:
            raise ValueError(
                f"`discard` must leave some of the {ids.shape[1]} positions to score. "
                f"Received: discard={discard}"
            )
        targets, weights = scored(self, targets, ids, mask, sample_weight)
        features = self._features(
            ids,
            training,
            initial_state=initial_state,
            mask=mask,
            discard=discard,
            depth=depth,
        )
        targets = targets[:, discard:]
        weights = weights[:, discard:]
        terms, totals = losses.sums(self, features, targets, weights, training)
        return losses.means(terms, totals), features.state

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        *,
        initial_state: Any = None,
        cache: Any = None,
        mask: Any = None,
        epsilon: float | None = None,
    ) -> tuple[Tensor, Any]:
        """Returns the negative log-likelihood of each target in nats, and what to continue with.

        Args:
            ids: integers `[B, T]`.
            targets: integers `[B, T]`, the token after each.
            initial_state: the paper's history, small and lossy; None: zeros.
            cache: the exact past instead: a text scored in chunks is scored as in one pass.
            mask: None, or booleans `[B, T]`; masked steps are skipped, and have nll 0.
            epsilon: what a mixture of softmaxes adds to each probability; None: its own `epsilon`.

        Returns:
            nll `[B, T]` in at least float32, and the new cache where one was given, else the new
            state.

        Raises:
            ValueError: both a state and a cache are given, ids or targets are not tokens of the
                vocabulary, the shape of `targets` or `mask` is not that of `ids`, or `epsilon` is
                given for another head.
        """
        options = _mixture_options(self.head, epsilon)
        if cache is not None and initial_state is not None:
            raise ValueError(
                "`score` takes `initial_state` or `cache`, not both. Received: both of them"
            )
        ids, mask = self.checked_tokens("ids", ids, mask)
        targets = next_tokens("targets", targets, "ids", ids)
        targets = where_valid(mask, targets)
        targets = checks.within("targets", targets, self.vocabulary_size)
        outputs, after = passes.read(
            self, ids, cache=cache, initial_state=initial_state, mask=mask
        )
        nll = passes.nll(self, outputs, targets, **options)
        return where_valid(mask, nll), after

    def own_loss(
        self, data: Any, training: bool
    ) -> tuple[LossTerms, LossTerms, Tensor]:
        """Returns the sums of the loss terms of a batch, their weights, and the logits."""
        ids, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if targets is None:
            raise ValueError(
                "compile() without a loss trains the language model's own loss, which needs the "
                "next token at each position: fit(ids, targets). Received: y=None"
            )
        ids, _ = self.checked_tokens("x", ids)
        targets, weights = scored(self, targets, ids, None, sample_weight, ("y", "x"))
        features = self._features(ids, training)
        terms, totals = losses.sums(self, features, targets, weights, training)
        return terms, totals, passes.logits(self, features.dropped, training)

    def _features(
        self,
        ids: Tensor,
        training: bool,
        **how: Any,
    ) -> passes.Features:
        """Returns what the loss is made of; of inner levels, only if their loss is on."""
        if self.auxiliary_weight:
            how["auxiliary_every"] = self.auxiliary_every
            how["auxiliary_from"] = self.auxiliary_from
        return passes.features(self, ids, training=training, **how)


def _mixture_options(head: heads.Head, epsilon: float | None) -> dict[str, Any]:
    """Returns the argument `epsilon` of a mixture's `nll`; no other head has it."""
    if epsilon is None:
        return {}
    if not isinstance(head, heads.MixtureOfSoftmaxes):
        raise ValueError(
            "`epsilon` must be None unless the head is a keras_trellis.heads.MixtureOfSoftmaxes. "
            f"Received: epsilon={epsilon!r}, head={head!r}"
        )
    return {"epsilon": epsilon}
