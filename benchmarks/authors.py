"""The authors' language model, and random weights for it and for ours."""

from typing import Any

from benchmarks.workers import LeftOutError
from trainers.authors import clone as authors


def load(clone: str | None, name: str) -> Any:
    """Returns a module of the authors' folder `TrellisNet`.

    Raises:
        LeftOutError: there is no clone.
    """
    try:
        return authors.load(clone, name)
    except ValueError as error:
        raise LeftOutError(str(error)) from error


def language_model(clone: str | None, arrays: dict[str, Any], depth: int) -> Any:
    """Returns their language model with the weights of `language_model_arrays`, for evaluation."""
    import torch

    module = load(clone, "model")
    vocabulary_size, embedding_units = arrays["encoder.weight"].shape
    units = arrays["full_conv.weight2"].shape[1]
    model = module.TrellisNetModel(
        vocabulary_size,
        embedding_units,
        units - embedding_units,
        embedding_units,
        depth,
        wnorm=False,
        aux=False,
    )
    state = {}
    for name in model.state_dict():
        # Each tensor of the network comes under two names, with its wrappers' prefixes.
        short = name.removesuffix("_raw")
        short = short[max(short.find("full_conv"), 0) :]
        state[name] = torch.tensor(arrays[short])
    model.load_state_dict(state)
    return model.eval()


def language_model_arrays(
    vocabulary_size: int, embedding_units: int, units: int
) -> dict[str, Any]:
    """Returns weights as `keras_trellis.convert.language_model_from_torch` takes them.

    They are random, and large enough for hidden states to change from level to level.
    """
    import numpy as np

    random = np.random.default_rng(0)

    def normal(deviation, *shape):
        return (deviation * random.standard_normal(shape)).astype("float32")

    table = normal(0.1, vocabulary_size, embedding_units)
    return {
        "encoder.weight": table,
        "decoder.weight": table,
        "decoder.bias": normal(0.1, vocabulary_size),
        "full_conv.weight1": normal(
            (2 * embedding_units) ** -0.5, 4 * units, embedding_units, 2
        ),
        "full_conv.weight2": normal((2 * units) ** -0.5, 4 * units, units, 2),
        "full_conv.bias2": normal(0.1, 4 * units),
    }
