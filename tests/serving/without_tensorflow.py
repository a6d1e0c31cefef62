"""Runs exports in a process that can import neither Keras nor TensorFlow.

    python -m tests.serving.without_tensorflow CALLS ANSWERS

Both are pickles: of calls, each a folder, a method of the runtime and its arguments by name; and of
what the methods return.
"""

import pickle
import sys

BLOCKED = ("keras", "tensorflow")


class Absent:
    """Finds none of the blocked packages, wherever they are installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}")


def main(calls, answers):
    sys.meta_path.insert(0, Absent)
    from keras_trellis.serving import runtime

    with open(calls, "rb") as file:
        requests = pickle.load(file)
    models = {folder: runtime.load(folder) for folder in {each[0] for each in requests}}
    results = [
        getattr(models[folder], method)(**arguments)
        for folder, method, arguments in requests
    ]
    assert not {name.partition(".")[0] for name in sys.modules} & {*BLOCKED}
    with open(answers, "wb") as file:
        pickle.dump([_plain(result) for result in results], file)


def _plain(result):
    """Returns what a method returns without classes of the package."""
    return result._asdict() if hasattr(result, "_asdict") else vars(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
