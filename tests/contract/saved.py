"""Saves a model of every entry of the registry, with inputs and what it makes of them.

    python -m tests.contract.saved

writes those of a release into `testdata`, where they stay: every later release has to load them.
`before_stacked_lstm-...` was written in the same way between two releases, of the entry
"EquilibriumTrellisLayer, groups", with its weights alone besides.
"""

import importlib.metadata
import pathlib
import re
import sys

import numpy as np
from keras import ops

from tests.contract.registry import ENTRIES

VERSION = importlib.metadata.version("keras_trellis")
RELEASED = pathlib.Path(__file__).parent / "testdata"


def stem(name: str) -> str:
    """Returns the name of an entry as one of files."""
    return re.sub(r"\W+", "-", name).lower()


def save(folder: pathlib.Path, prefix: str = "") -> None:
    """Writes NAME.keras and NAME.npz for every entry that is a model by itself."""
    for name, entry in ENTRIES.items():
        if entry.as_model is None:
            continue
        model = entry.as_model(entry.built("float32"))
        inputs = entry.draw(np.random.default_rng(1), 3, 7)
        inputs = inputs.astype("float32") if inputs.dtype == np.float64 else inputs
        path = folder / f"{prefix}{stem(name)}"
        model.save(f"{path}.keras")
        outputs = ops.convert_to_numpy(model(inputs))
        np.savez(f"{path}.npz", inputs=inputs, outputs=outputs)


def main() -> None:
    """Writes the files of the version that is installed."""
    if any(RELEASED.glob(f"{VERSION}-*")):
        sys.exit(
            f"{RELEASED} has the files of version {VERSION}, which stay as they are"
        )
    RELEASED.mkdir(exist_ok=True)
    save(RELEASED, f"{VERSION}-")


if __name__ == "__main__":
    main()
