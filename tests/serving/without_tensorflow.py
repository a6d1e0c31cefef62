"""Runs exports in a process that can import neither Keras nor TensorFlow.

    python -m tests.serving.without_tensorflow CALLS ANSWERS
    python -m tests.serving.without_tensorflow serve MODEL ...

Both files are pickles: of calls, each a folder, a method of the runtime and its arguments by name;
and of what the methods return. The second form is the command `keras-trellis serve`.
"""

import pickle
import sys

BLOCKED = ("keras", "tensorflow")


class Absent:
    """Finds none of the blocked packages, wherever they are installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def call(calls, answers):
    from keras_trellis.serving import runtime

    with open(calls, "rb") as file:
        requests = pickle.load(file)
    models = {folder: runtime.load(folder) for folder in {each[0] for each in requests}}
    results = [
        getattr(models[folder], method)(**arguments)
        for folder, method, arguments in requests
    ]
    with open(answers, "wb") as file:
        pickle.dump([_plain(result) for result in results], file)


def _plain(result):
    """Returns what a method returns without classes of the package."""
    return result._asdict() if hasattr(result, "_asdict") else vars(result)


def main(arguments):
    sys.meta_path.insert(0, Absent)
    if arguments[0] == "serve":
        from keras_trellis.serving.server import command

        status = command.main(arguments)
    else:
        call(*arguments)
        status = 0
    assert not {name.partition(".")[0] for name in sys.modules} & {*BLOCKED}
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
