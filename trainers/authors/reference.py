"""A training step of the authors' scripts: their model, loss, clipping and optimizer.

Importing the scripts would read flags, text and a GPU, so this module repeats what their `train`
does with a batch. Everything is in float64, without dropout. The module needs torch and a clone of
their repository.
"""

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ml_collections import ConfigDict
from torch.nn import functional

from trainers.authors import clone as authors
from trainers.optimizers import OPTIMIZERS

Arrays = dict[str, np.ndarray]
_TERMS = ("prediction", "auxiliary", "activation", "temporal")


class _InTraining:
    """Modules of theirs and their optimizer.

    Args:
        modules: the modules.
        config: the run's config.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], config: ConfigDict):
        self._modules, self._config = modules, config
        self._parameters = [
            parameter for module in modules for parameter in module.parameters()
        ]
        rate = config.optimizer.learning_rate
        decay = config.optimizer.weight_decay
        make = _optimizer(config.optimizer.name)
        self._optimizer = make(self._parameters, lr=rate, weight_decay=decay)

    def weights(self) -> Arrays:
        """Returns the weights as `convert` takes them."""
        return {name: _array(tensor) for name, tensor in self._named().items()}

    def _update(self, loss: Any) -> tuple[Arrays, Any]:
        """Takes a training step; returns the gradients before clipping, and their norm."""
        loss.backward()
        gradients = {
            name: _array(tensor.grad) for name, tensor in self._named().items()
        }
        norm = torch.nn.utils.clip_grad_norm_(
            self._parameters, self._config.optimizer.clip_norm
        )
        self._optimizer.step()
        return gradients, norm

    def _named(self) -> dict[str, torch.nn.Parameter]:
        """Returns parameters by the names of the state dict; some have two names."""
        named: dict[str, torch.nn.Parameter] = {}
        for module in self._modules:
            named |= module.state_dict(keep_vars=True)
        return named


class Reference(_InTraining):
    """The authors' language model in training, with weights that their own code draws.

    Args:
        clone: the folder of their repository.
        config: the run's config, without dropout.
        vocabulary_size: V.

    Raises:
        ValueError: the clone is not one of their repository, or their code cannot build the model,
            or torch has no such optimizer.
    """

    def __init__(self, clone: str | None, config: ConfigDict, vocabulary_size: int):
        _begin(config)
        self._horizon = config.data.horizon
        with contextlib.redirect_stdout(io.StringIO()):  # they print
            self._model = _model(clone, config.model, vocabulary_size)
        self._split_softmax = _split_softmax(clone, config.model)
        modules = [self._model]
        if self._split_softmax:
            modules.append(self._split_softmax)
        super().__init__(modules, config)
        self.start_epoch()

    def start_epoch(self) -> None:
        """Resets the state."""
        self._hidden = self._model.init_hidden(self._config.data.batch_size)

    def step(self, ids: np.ndarray, targets: np.ndarray) -> tuple[Arrays, Arrays]:
        """Trains on a batch.

        Args:
            ids: `[B, T]`.
            targets: `[B, T]`, the next tokens.

        Returns:
            what the step computed, by the names of `verify.Ours.step`; the gradients before
            clipping, by the names of `weights`.
        """
        self._optimizer.zero_grad()
        if self._config.data.history == "zero":
            self.start_epoch()
        (raw, output, decoded), hidden, auxiliary = self._model(
            torch.tensor(ids, dtype=torch.int64),
            tuple(part.detach() for part in self._hidden),
            decode=self._split_softmax is None,
        )
        terms = self._terms(
            raw, output, decoded, auxiliary, torch.tensor(targets).long()
        )
        loss = sum(terms.values())
        gradients, norm = self._update(loss)
        self._hidden = hidden
        hidden, cell = (part[:, :, 0] for part in hidden)
        values = {"outputs": raw[:, self._horizon :], "hidden": hidden, "cell": cell}
        values |= {**terms, "loss": loss, "gradient_norm": norm}
        return {name: _array(tensor) for name, tensor in values.items()}, gradients

    def _terms(
        self, raw: Any, output: Any, decoded: Any, auxiliary: Any, targets: Any
    ) -> dict[str, Any]:
        """Returns their loss terms; `auxiliary` is `[B, M, T, ...]`, the others `[B, T, ...]`."""
        settings = self._config.model
        horizon = self._horizon
        terms = dict.fromkeys(_TERMS, torch.zeros(()))
        terms["prediction"] = self._nll(decoded, targets)
        if settings.auxiliary_weight:
            levels = [self._nll(level, targets) for level in auxiliary.unbind(1)]
            terms["auxiliary"] = settings.auxiliary_weight * sum(levels)
        if settings.activation_weight:
            terms["activation"] = (
                settings.activation_weight * output[:, horizon:].pow(2).mean()
            )
        if settings.temporal_weight:
            raw = raw[:, horizon:]
            steps = raw[:, 1:] - raw[:, :-1]
            terms["temporal"] = settings.temporal_weight * steps.pow(2).mean()
        return terms

    def _nll(self, decoded: Any, targets: Any) -> Any:
        """Returns the mean nll after the horizon; `decoded` is the input of the script's loss."""
        horizon = self._horizon
        decoded = decoded[:, horizon:].flatten(0, 1)
        targets = targets[:, horizon:].flatten()
        if self._split_softmax:
            decoder = self._model.decoder
            return self._split_softmax(decoder.weight, decoder.bias, decoded, targets)
        if self._model.n_experts:
            return functional.nll_loss(decoded, targets)
        return functional.cross_entropy(decoded, targets)


class PixelReference(_InTraining):
    """The authors' classifier of pixel sequences in training; each sequence begins anew.

    Args:
        clone: the folder of their repository.
        config: the run's config, without dropout.
        channels: the channels of a pixel.

    Raises:
        ValueError: as for `Reference`.
    """

    def __init__(self, clone: str | None, config: ConfigDict, channels: int):
        _begin(config)
        module = authors.load(clone, "seq_MNIST_CIFAR/model")
        with contextlib.redirect_stdout(io.StringIO()):
            self._model = module.TrellisNetModel(
                channels,
                config.model.units - config.model.output_units,
                config.model.output_units,
                config.model.depth,
                kernel_size=config.model.kernel_size,
                dilation=list(config.model.dilation_rate),
                wnorm=config.model.weight_normalization,
            )
        super().__init__([self._model], config)

    def start_epoch(self) -> None:
        """Does nothing: there is no state."""

    def step(self, images: np.ndarray, labels: np.ndarray) -> tuple[Arrays, Arrays]:
        """Trains on a batch.

        Args:
            images: `[B, T, p]`, normalised, the pixels in the order in which they are read.
            labels: `[B]`.

        Returns:
            as `Reference.step`, by the names of `verify.OurClassifier.step`.
        """
        self._optimizer.zero_grad()
        sequences = torch.tensor(images, dtype=torch.float64).transpose(1, 2)
        hidden = self._model.init_hidden(len(images))
        log_probs, _ = self._model(sequences, hidden)
        loss = functional.nll_loss(log_probs, torch.tensor(labels).long())
        gradients, norm = self._update(loss)
        values = {"log_probs": log_probs, "loss": loss, "gradient_norm": norm}
        return {name: _array(tensor) for name, tensor in values.items()}, gradients


def _begin(config: ConfigDict) -> None:
    torch.manual_seed(config.seed)
    # Their code creates tensors of the default dtype.
    torch.set_default_dtype(torch.float64)


def _optimizer(name: str) -> type[torch.optim.Optimizer]:
    """Returns torch's optimizer of the same formula."""
    theirs = OPTIMIZERS[name].torch_name
    if theirs is None:
        known = [key for key, kind in OPTIMIZERS.items() if kind.torch_name]
        raise ValueError(
            f"`config.optimizer.name` must be one that torch has too, of {known}. "
            f"Received: config.optimizer.name={name!r}"
        )
    return getattr(torch.optim, theirs)


def _model(clone: str | None, model: ConfigDict, vocabulary_size: int) -> Any:
    return authors.load(clone, "model").TrellisNetModel(
        vocabulary_size,
        model.embedding_units,
        model.units - model.output_units,
        model.output_units,
        model.depth,
        kernel_size=model.kernel_size,
        dilation=list(model.dilation_rate),
        wnorm=model.weight_normalization,
        aux=bool(model.auxiliary_weight),
        aux_frequency=model.auxiliary_every,
        n_experts=model.mixture.experts if model.head == "mixture" else 0,
    )


def _split_softmax(clone: str | None, model: ConfigDict) -> Any:
    """Returns their adaptive softmax, which is not part of their model, or None."""
    if model.head != "adaptive":
        return None
    module = authors.load(clone, "word_WT103/splitcross")
    return module.SplitCrossEntropyLoss(
        model.embedding_units, list(model.adaptive.cutoffs)
    )


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy().copy()
