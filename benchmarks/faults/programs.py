"""The commands to disturb, and the folders in which they begin."""

import random
import shutil
import signal
from pathlib import Path

from benchmarks.faults import quick, shim
from benchmarks.faults.processes import KILLED, Disturbance, Program

RUN, TEXT, MODELS = "run", "text", "models"
# Files of users and their file managers, which no command may touch.
STRAYS = ("notes.txt", "metrics (copy).csv")
STRAY_CHECKPOINTS = ("step-foo.npz", "step-00000004 (copy).npz", "best.npz~")
_SMALL_TEXT_MODEL = {
    "model.units": 4,
    "model.output_units": 4,
    "model.embedding_units": 4,
    "model.depth": 2,
    "model.auxiliary_every": 1,
    "model.dilation_rate": "(1,)",
    "data.batch_size": 2,
    "data.window": 20,
    "data.horizon": 2,
    "data.history": "zero",
    "evaluation.batch_size": 2,
    "evaluation.exact_batch_size": 2,
    "evaluation.exact_chunk": 100,
    "training.epochs": 2,
    "training.log_every_steps": 2,
    "training.checkpoint_every_steps": 2,
}


class PreparationError(Exception):
    """An undisturbed command failed."""


def _nothing(runner, folder):
    del runner, folder


def _run(runner, program, folder, killed_after="", operation="rename", at=1):
    """Runs a command to its end, or kills it after the `at`-th operation on a file."""
    fault = shim.Fault()
    if killed_after:
        fault = shim.Fault(shim.Action.AFTER, signal.SIGKILL, operation, killed_after, at)
    ended = runner.run(program, folder, Disturbance(fault))
    if ended.status != (KILLED if killed_after else 0):
        raise PreparationError(f"{program.name} with {fault}: {ended}")


def _half_run(runner, folder):
    """A run that was killed after its second epoch of three, with files of the user."""
    _run(runner, TRAIN, folder, f"{RUN}/checkpoints/step-00000006*")
    _add_strays(folder / RUN)


def _finished_run(runner, folder):
    _run(runner, TRAIN, folder)
    _add_strays(folder / RUN)


def _exported_run(runner, folder):
    """A finished run, and a model's folder with a version in it."""
    _run(runner, TRAIN, folder)
    _run(runner, EXPORT, folder)
    (folder / MODELS / "notes.txt").write_text("mine\n")


def _text(runner, folder):
    """A text of ten words, drawn at random, with a line break after each sixth."""
    del runner
    generator = random.Random(0)
    (folder / TEXT).mkdir()
    for split, count in {"train": 200, "valid": 40, "test": 40}.items():
        words = [f"word{generator.randrange(10)}" for _ in range(count)]
        lines = [" ".join(words[start : start + 6]) for start in range(0, count, 6)]
        (folder / TEXT / f"{split}.txt").write_text("\n".join(lines) + "\n")


def _encoded_text(runner, folder):
    _text(runner, folder)
    _run(runner, ENCODE, folder)


def _half_encoded_text(runner, folder):
    """A text whose encoding was killed in its second file of ids."""
    _text(runner, folder)
    _run(runner, ENCODE, folder, "*/validation.ids", operation="write")


def _half_text_run(runner, folder):
    """A run of a language model that was killed after its second checkpoint."""
    _text(runner, folder)
    _run(runner, LANGUAGE, folder, f"{RUN}/checkpoints/step-*", at=2)


def _add_strays(run):
    for name in STRAYS:
        (run / name).write_text("mine\n")
    for name in STRAY_CHECKPOINTS:
        (run / "checkpoints" / name).write_text("mine\n")


_TRAINING = (*quick.flags(), f"--workdir={{folder}}/{RUN}")
_TEXT_RUN = (
    "--task=text",
    "--preset=small",
    f"--data_dir={{folder}}/{TEXT}",
    f"--workdir={{folder}}/{RUN}",
    *(f"--config.{name}={value}" for name, value in _SMALL_TEXT_MODEL.items()),
)
TRAIN = Program("train", "trainers.pixels", _TRAINING, _nothing, 10)
RESUME = Program("resume", "trainers.pixels", _TRAINING, _half_run, 10)
AGAIN = Program("again", "trainers.pixels", _TRAINING, _finished_run, 2)
EVALUATE = Program(
    "evaluate",
    "trainers.pixels",
    ("--task=adding", "--mode=evaluate", f"--workdir={{folder}}/{RUN}"),
    _finished_run,
    3,
)
_ENCODING = (f"--data_dir={{folder}}/{TEXT}",)
ENCODE = Program("encode", "benchmarks.faults.encode", _ENCODING, _text, 3)
ENCODE_ON = Program("encode-on", "benchmarks.faults.encode", _ENCODING, _half_encoded_text, 3)
ENCODED = Program("encoded", "benchmarks.faults.encode", _ENCODING, _encoded_text, 1)
EXPORT = Program(
    "export",
    "trainers.export",
    (f"--workdir={{folder}}/{RUN}", f"--output={{folder}}/{MODELS}"),
    _exported_run,
    3,
    graphs=True,
)
LANGUAGE = Program("language", "trainers.lm", _TEXT_RUN, _half_text_run, 1)
_ALL = (TRAIN, RESUME, AGAIN, EVALUATE, ENCODE, ENCODE_ON, ENCODED, EXPORT, LANGUAGE)
PROGRAMS = {program.name: program for program in _ALL}


def copied(program: Program, templates: Path, place: Path) -> Path:
    """Returns a place, which becomes a copy of the folder in which a program begins.

    Args:
        program: the program.
        templates: holds such a folder for each program.
        place: what it holds is removed.
    """
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(templates / program.name, place)
    return place
