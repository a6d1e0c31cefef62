"""Writes a run's best model for TensorFlow Serving.

    python -m trainers.export --workdir=RUN --output=models/ptb
    python -m trainers.export --workdir=RUN --output=models/ptb --precision=int8 --data_dir=TEXT

Each call writes a new version: a folder in `--output` whose name is a number. It runs without
TensorFlow too, by `keras_trellis.serving.runtime`.
"""

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf
from absl import flags, logging
from etils import epath

from keras_trellis.export import PRECISIONS, versions
from keras_trellis.formats import manifest
from trainers.cli import command, flag_errors, run_flags
from trainers.data import files, stores, terminal
from trainers.tasks import registry, run_folders
from trainers.training.workdir import NotKeptError, check_output

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string("output", None, "The folder of the served model.")
flags.DEFINE_enum(
    "precision", "float32", PRECISIONS, "How to store kernels and word vectors."
)
flags.DEFINE_boolean(
    "runtime", True, "Write the form that runs without TensorFlow, too."
)


def _check_flags() -> None:
    command.require("workdir", "output")
    for name in ("task", "preset"):
        if FLAGS[name].present:
            raise ValueError(f"--{name} has no use here: --workdir says which run")
    if FLAGS.data_dir is not None and FLAGS.precision == "float32":
        raise ValueError(
            "--data_dir has no use with --precision=float32: it is to measure what less changes"
        )


def _export() -> None:
    if not FLAGS["verbosity"].present:  # hide TensorFlow's notes on graphs
        logging.set_verbosity(logging.WARNING)
        tf.get_logger().setLevel("WARNING")
    path, output = stores.to_path(FLAGS.workdir), stores.to_path(FLAGS.output)
    with _folder_or_image(output) as folder:
        # Check all of this before the long measurement of a lower precision.
        with flag_errors.naming("output", "path"):
            versions.check_folder(folder)
        files.check_folder("output", output)
        check_output(os.path.expanduser(FLAGS.output))
        task = registry.get(run_folders.load_config(path).task)
        if not task.has_part("exporting"):
            raise ValueError(
                f"only runs of {', '.join(registry.with_part('exporting'))} are exported. "
                f"Received: a run of {task.name}, in {path}"
            )
        try:
            version = _written(task.part("exporting").export, path, folder)
        except versions.NotWrittenError as error:
            raise NotKeptError(str(error)) from error
        if stores.is_store(output):
            version = _sent(version, output)
    print(f"exported to {version}; assets.extra/model_card.md there describes it")


def _written(export: Callable[..., str], path: epath.Path, folder: str) -> str:
    """Writes a version; says so where it has no form that runs without TensorFlow."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model has no form")  # the library's own
        version = export(
            path,
            run_folders.ExportOptions(
                folder, FLAGS.precision, FLAGS.data_dir, FLAGS.runtime
            ),
        )
    refused = manifest.read(Path(version)).runtime.refused
    if FLAGS.runtime and refused:
        print(f"note: {terminal.line(refused)}", file=sys.stderr, flush=True)
    return version


@contextlib.contextmanager
def _folder_or_image(output: epath.Path) -> Iterator[str]:
    """Yields a served model's folder: itself, or for one in a store an image of it.

    The image has the names of what is there, from which the number of the new version follows.
    """
    if not stores.is_store(output):
        yield os.path.expanduser(FLAGS.output)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.join(temporary, output.name)
        os.mkdir(folder)
        for entry in output.iterdir():
            os.mkdir(os.path.join(folder, entry.name))
        yield folder


def _sent(written: str, output: epath.Path) -> str:
    """Writes a version to a store, its graph last: a server ignores a folder without it."""
    version = output / os.path.basename(written)
    try:
        stores.send(epath.Path(written), version, last="saved_model.pb")
    except OSError as error:
        raise NotKeptError(f"{version} is not written whole: {error}") from error
    return os.fspath(version)


main, parse_flags = command.program(_export, _check_flags, parser=run_flags.parse)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
