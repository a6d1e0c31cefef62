"""Prints the lowest versions of Keras, NumPy and TensorFlow that keras_trellis says it runs with.

They are for pip: `keras==3.12.4 ...`.
"""

import importlib.metadata

from packaging.requirements import Requirement


def lowest(requirements: list[str]) -> list[str]:
    """Returns what the library and its extra `tensorflow` require, at the lower bounds."""
    found = []
    for requirement in map(Requirement, requirements):
        marker = requirement.marker  # of an extra's requirements
        if marker is None or marker.evaluate({"extra": "tensorflow"}):
            (bound,) = (
                each.version for each in requirement.specifier if each.operator == ">="
            )
            found.append(f"{requirement.name}=={bound}")
    return found


if __name__ == "__main__":
    print(*lowest(importlib.metadata.requires("keras_trellis") or []))
