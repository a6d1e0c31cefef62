"""The authors' code, imported from a clone and made to run without a GPU."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

from benchmarks.workers import LeftOutError


def load(clone: str | None, name: str) -> Any:
    """Returns a module of the authors' folder `TrellisNet`.

    Their network puts its zeros on a GPU by name; that word is left out when its source is read.

    Raises:
        LeftOutError: there is no clone.
    """
    if clone is None:
        raise LeftOutError(
            "it needs --reference_dir=DIR, a clone of https://github.com/locuslab/trellisnet"
        )
    folder = Path(clone) / "TrellisNet"
    if not (folder / f"{name}.py").is_file():
        raise LeftOutError(f"--reference_dir={clone} has no TrellisNet/{name}.py")
    sys.path.insert(0, str(folder))  # they import each other
    network = folder / "trellisnet.py"
    module = sys.modules["trellisnet"] = types.ModuleType("trellisnet")
    source = network.read_text(encoding="utf-8").replace(".cuda()", "")
    exec(compile(source, network, "exec"), vars(module))
    return importlib.import_module(name)


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


def language_model_arrays(vocabulary_size: int, embedding_units: int, units: int) -> dict[str, Any]:
    """Returns weights as `keras_trellis.convert.language_model_from_torch` takes them.

    They are random, and large enough for the hidden states to carry something up the levels.
    """
    import numpy as np

    random = np.random.default_rng(0)

    def normal(deviation: float, *shape: int) -> Any:
        return (deviation * random.standard_normal(shape)).astype("float32")

    table = normal(0.1, vocabulary_size, embedding_units)
    return {
        "encoder.weight": table,
        "decoder.weight": table,
        "decoder.bias": normal(0.1, vocabulary_size),
        "full_conv.weight1": normal((2 * embedding_units) ** -0.5, 4 * units, embedding_units, 2),
        "full_conv.weight2": normal((2 * units) ** -0.5, 4 * units, units, 2),
        "full_conv.bias2": normal(0.1, 4 * units),
    }
