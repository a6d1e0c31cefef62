"""Answers requests from exported models in a process that cannot import `keras_trellis`.

    python -m tests.serving.without_package CALLS ANSWERS

Both are pickles: of calls, each a folder, a signature and its inputs by name; and of their outputs.
"""

import importlib
import pickle
import sys

from tests.serving.served import Served

PACKAGE = "keras_trellis"


class Absent:
    """Finds no module of the package, wherever it is installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r}")


def forget_package():
    """Makes the package one that is not installed, and sees that it is."""
    sys.meta_path.insert(0, Absent)
    try:
        importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        return
    raise RuntimeError(f"{PACKAGE} has been imported")


def main(calls, answers):
    forget_package()
    with open(calls, "rb") as file:
        requests = pickle.load(file)
    models = {
        folder: Served(folder) for folder in {folder for folder, _, _ in requests}
    }
    results = [
        models[folder](signature, request) for folder, signature, request in requests
    ]
    with open(answers, "wb") as file:
        pickle.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
