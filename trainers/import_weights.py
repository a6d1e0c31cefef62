"""Makes a run's folder from weights that the authors' scripts saved.

    python -m trainers.import_weights --task=ptb --checkpoint=FILE.pkl --workdir=DIR --data_dir=TEXT
    python -m trainers.lm --workdir=DIR --data_dir=TEXT --mode=evaluate

With `--score` the import ends with the score on test data; a text's is by the authors' protocol.
The default preset is `released`, which has the defaults of those scripts. The shapes in the file
give most sizes. Depth and dilation come from the preset; if the shapes are not the preset's, flags
must give them. The file has no vocabulary either: it is that of the training text, in order of
first appearance. `--permutation` gives the order of permuted MNIST's pixels.
"""

import contextlib
import re
from collections.abc import Callable, Mapping

import keras
from absl import flags
from etils import epath
from ml_collections.config_flags import get_override_values

from trainers.authors import released
from trainers.cli import command, config_flags, run_flags
from trainers.data import files
from trainers.data.stores import to_path
from trainers.data.text import sha256
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import checkpoints, runs, variables
from trainers.training.workdir import (
    NotKeptError,
    Workdir,
    WorkdirError,
    open_workdir,
    read_record,
)

FLAGS = flags.FLAGS
_BEST = f"checkpoints/{checkpoints.BEST}"
_TASKS = registry.with_part("authors")  # those that the authors have networks of
# What an import that was killed may have left, with the temporary files of the same names.
_OURS = re.compile(
    r"lock|checkpoints|\.?((config|imported|corpus|data)\.json|vocabulary\.txt|best\.npz)(\.part)?"
)

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string(
    "checkpoint", None, "The file of weights that the authors' script saved."
)
flags.DEFINE_string(
    "permutation",
    None,
    "For permuted_mnist: the .npy file of the order in which it reads pixels.",
)
flags.DEFINE_bool(
    "score",
    False,
    "Score the weights at the end on validation and test data, on texts by the protocol of the "
    "authors' scripts, trellisnet.",
)


def main(argv: list[str]) -> int:
    """Imports the weights; returns the exit status."""
    return command.exit_status(argv, _import)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    # Put the preset first, since the last one counts. Tasks of our own have no such preset.
    theirs = not _is_other(config_flags.last_value(argv, "task"))
    preset = ["--preset=released"] if theirs else []
    return command.parse([argv[0], *preset, *argv[1:]], _check_flags, _TASKS)


def _check_flags() -> None:
    config_flags.require(FLAGS.task, _TASKS)
    command.require("checkpoint", "workdir")
    if _is_other(FLAGS.task):
        raise ValueError(
            f"--task={FLAGS.task} is none of the authors' trellis networks"
        )
    part = registry.get(FLAGS.task).part("authors")
    if FLAGS.permutation is not None and not part.is_permuted(FLAGS.task):
        raise ValueError(
            f"--permutation has no use for --task={FLAGS.task}, only for permuted_mnist"
        )


def _is_other(task: str | None) -> bool:
    """Returns whether the authors have no network of a task."""
    return task in {*registry.EVERY} - {*_TASKS}


def _import() -> None:
    released.check_kind(FLAGS.config)
    schema.check_read(FLAGS.config)
    path = to_path(FLAGS.workdir)
    checkpoint = to_path(FLAGS.checkpoint)
    files.check_regular(checkpoint, "checkpoint")
    provenance = {"checkpoint": checkpoint.name, "sha256": sha256(checkpoint)}
    _refuse_other(path, provenance)
    files.check_folder("workdir", path)
    task = registry.get(FLAGS.config.task)
    part, given = task.part("authors"), get_override_values(FLAGS["config"]).keys()
    weights = released.Weights(
        checkpoint, FLAGS.config, given, FLAGS.data_dir, FLAGS.permutation, path
    )
    model, config, keep, summary = part.imported(weights)
    new = not files.exists(path)
    with open_workdir(path, config.to_dict(), upgrade=configs.upgrade) as folder:
        if files.exists(path / _BEST):  # a former command came to its end
            checkpoints.load_best(path, model)
        else:
            with contextlib.ExitStack() as failed:
                if new:
                    failed.callback(path.rmtree, missing_ok=True)
                _write(model, keep, provenance, folder)
                failed.pop_all()
    print(
        f"{path}: {variables.parameters(model):,} parameters, {summary}, "
        f"depth {config.model.depth}, dilation {config.model.dilation_rate}",
        flush=True,
    )
    if FLAGS.score:
        experiment = task.part("experiment").load(config, FLAGS.data_dir, path)
        experiment.evaluate(path, **part.SCORED)


def _refuse_other(path: epath.Path, provenance: Mapping[str, str]) -> None:
    """Raises WorkdirError if a folder has more than an import of these weights has written."""
    if not files.exists(path):
        return
    imported = read_record(path / runs.IMPORTED) if path.is_dir() else None
    if files.exists(path / _BEST) and imported == provenance:
        return
    folders = [folder for folder in (path, path / "checkpoints") if folder.is_dir()]
    names = [entry.name for folder in folders for entry in folder.iterdir()]
    ours = bool(folders) and all(map(_OURS.fullmatch, names))
    if not ours or files.exists(path / _BEST) or imported not in (None, provenance):
        raise WorkdirError(f"{path} is there already; choose a new --workdir")


def _write(
    model: keras.Model,
    keep: Callable[[epath.Path], None],
    provenance: Mapping[str, str],
    folder: Workdir,
) -> None:
    """Writes a run's files, the weights last."""
    path = folder.path
    files.write_json(path / runs.IMPORTED, provenance)
    keep(path)
    weights = variables.arrays(variables.model_variables(model))
    store = checkpoints.Checkpoints(path / "checkpoints", run_id=folder.run.run_id)
    if not store.save_best(weights):
        raise NotKeptError(
            f"the weights could not be written to {path}; make room, and give the same command "
            "again"
        )


if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
