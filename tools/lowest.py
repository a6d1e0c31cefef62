"""Prints the lowest versions that keras_trellis says it runs with, for pip: `keras==3.12.4 ...`."""

import importlib.metadata

from packaging.requirements import Requirement


def lowest(requirements: list[str]) -> list[str]:
    """Returns each requirement of the library itself with its lower bound as the only version."""
    found = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is None:  # it is of no extra
            (bound,) = (
                each.version for each in requirement.specifier if each.operator == ">="
            )
            found.append(f"{requirement.name}=={bound}")
    return found


if __name__ == "__main__":
    print(*lowest(importlib.metadata.requires("keras_trellis") or []))
