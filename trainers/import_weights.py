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
import functools
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from absl import flags
from etils import epath
from ml_collections import ConfigDict
from ml_collections.config_flags import get_override_values

from trainers.authors import released
from trainers.authors.torch_files import read_state_dict
from trainers.cli import command, config_flags, run_flags, task_flags
from trainers.data import files
from trainers.data.stores import to_path
from trainers.data.text import sha256
from trainers.language import experiment as language_runs
from trainers.language import models, texts
from trainers.sequences import experiment as sequence_runs
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.tasks.task import DrawnTask, ImageTask, SeriesTask, Task
from trainers.training import checkpoints, runs, variables
from trainers.training.workdir import (
    NotKeptError,
    Workdir,
    WorkdirError,
    open_workdir,
    read_record,
)

FLAGS = flags.FLAGS
# The corpora whose vocabulary has the order of the authors' scripts.
_NUMBERED_AS_THEIRS = {"order": ("appearance",), "form": ("released", "paper")}
_BEST = f"checkpoints/{checkpoints.BEST}"
# What an import that was killed may have left, with the temporary files of the same names.
_OURS = re.compile(
    r"lock|checkpoints|\.?((config|imported|corpus|data)\.json|vocabulary\.txt|best\.npz)(\.part)?"
)
_PERMUTED = "permuted_mnist"
_PIXELS = 28 * 28

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


# What becomes a run: the config's model, with the file's weights; the config, with the sizes that
# the file tells; what binds a run's folder to its data; and a count, such as "10,000 words".
_Imported = tuple[keras.Model, ConfigDict, Callable[[epath.Path], None], str]


def main(argv: list[str]) -> int:
    """Imports the weights; returns the exit status."""
    return command.exit_status(argv, _import)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    # Put the preset first, since the last one counts. Tasks of our own have no such preset.
    theirs = config_flags.last_value(argv, "task") not in _others()
    preset = ["--preset=released"] if theirs else []
    return command.parse([argv[0], *preset, *argv[1:]], _check_flags, _theirs())


def _check_flags() -> None:
    task_flags.require(FLAGS.task, _theirs())
    command.require("checkpoint", "workdir")
    if FLAGS.task in _others():
        raise ValueError(
            f"--task={FLAGS.task} is none of the authors' trellis networks"
        )
    if FLAGS.permutation is not None and FLAGS.task != _PERMUTED:
        raise ValueError(
            f"--permutation has no use for --task={FLAGS.task}, only for {_PERMUTED}"
        )


def _theirs() -> list[str]:
    """Returns the tasks that the authors have networks of."""
    return [name for name in registry.TASKS if name not in _others()]


def _others() -> dict[str, Task]:
    """Returns the tasks that the authors have no networks of."""
    return {**registry.by_kind(DrawnTask), **registry.by_kind(SeriesTask)}


def _import() -> None:
    released.check_kind(FLAGS.config)
    schema.check_read(FLAGS.config)
    path = to_path(FLAGS.workdir)
    checkpoint = to_path(FLAGS.checkpoint)
    files.check_regular(checkpoint, "checkpoint")
    provenance = {"checkpoint": checkpoint.name, "sha256": sha256(checkpoint)}
    _refuse_other(path, provenance)
    files.check_folder("workdir", path)
    is_images = FLAGS.config.task in registry.by_kind(ImageTask)
    read = _classifier if is_images else _language_model
    model, config, keep, summary = read(checkpoint, path)
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
        f"{path}: {runs.parameters(model):,} parameters, {summary}, depth {config.model.depth}, "
        f"dilation {config.model.dilation_rate}",
        flush=True,
    )
    if not FLAGS.score:
        return
    if is_images:
        sequence_runs.evaluate(path, FLAGS.data_dir)
    else:
        language_runs.evaluate(path, FLAGS.data_dir, ("trellisnet",))


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


def _language_model(checkpoint: epath.Path, path: epath.Path) -> _Imported:
    del path
    _check_numbering(FLAGS.config)
    source, config = _read(checkpoint, released.language_model)
    corpus = texts.load_corpus(config, FLAGS.data_dir)
    types = registry.configured(config).measure.types
    words = corpus.vocabulary.size
    if source.vocabulary_size != words:
        raise ValueError(
            f"{checkpoint} has vectors of {source.vocabulary_size:,} {types}, and the training "
            f"text ({corpus.labels['train']}) has {words:,}; give the text that the weights were "
            "trained on by --data_dir"
        )
    model = models.build(config, words)
    released.give_weights(model, source)
    keep = functools.partial(texts.keep_corpus, corpus=corpus)
    return model, config, keep, f"{words:,} {types}"


def _classifier(checkpoint: epath.Path, path: epath.Path) -> _Imported:
    order = _permutation()
    source, config = _read(
        checkpoint, functools.partial(released.classifier, permutation=order)
    )
    experiment = sequence_runs.SequenceExperiment(config, FLAGS.data_dir, path, order)
    model = experiment.build()
    released.give_weights(model, source)
    return model, config, experiment.keep, f"{source.classes} classes"


def _read(checkpoint: epath.Path, make: Callable[..., Any]) -> tuple[Any, ConfigDict]:
    """Returns the model that `make` makes of a file's arrays, and the config with its sizes."""
    arrays = read_state_dict(checkpoint)
    try:
        source = make(arrays, FLAGS.config)
    except ValueError as error:
        raise ValueError(
            f"{checkpoint} has not the weights of the authors' network for "
            f"--task={FLAGS.task}: {error}"
        ) from error
    given = get_override_values(FLAGS["config"]).keys()
    return source, released.with_sizes_from_shapes(FLAGS.config, source, given)


def _permutation() -> list[int] | None:
    """Returns the order of the pixels; None for their own order."""
    if FLAGS.config.task != _PERMUTED:
        return None
    if not FLAGS.permutation:
        raise ValueError(
            "--permutation is missing: the authors' script draws the order of the pixels anew in "
            "each process and does not save it; expected the file of "
            '`np.save("order.npy", permute.cpu().numpy())`, from the process that trained'
        )
    file = to_path(FLAGS.permutation)
    files.check_regular(file, "permutation")
    try:
        with file.open("rb") as stream:
            order = np.load(stream, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file} is no file of integers that `np.save` wrote, or is cut short"
        ) from error
    # An .npz file is no array.
    is_array = isinstance(order, np.ndarray) and order.dtype.kind in "iu"
    numbers = order.ravel().tolist() if is_array else []
    if sorted(numbers) != list(range(_PIXELS)):
        raise ValueError(
            f"{file} must have each of the integers 0, ..., {_PIXELS - 1} once"
        )
    return numbers


def _check_numbering(config: ConfigDict) -> None:
    """Raises ValueError if rows of the weights would go to other words."""
    for name, value in config.get("corpus", {}).items():
        theirs = _NUMBERED_AS_THEIRS.get(name, (value,))
        if value not in theirs:
            raise ValueError(
                f"`config.corpus.{name}` must be {' or '.join(map(repr, theirs))}: the authors' "
                "scripts number the vocabulary in that order. Received: "
                f"config.corpus.{name}={value!r}"
            )


if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
