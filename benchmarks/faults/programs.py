"""The commands to disturb, and the folders in which they begin."""

import contextlib
import dataclasses
import json
import random
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.faults import quick, shim, stores
from benchmarks.faults.processes import Command, Disturbance, Runner

# A sum over workers waits in a thread, and what it waits for takes another.
_THREADS = {"TF_NUM_INTEROP_THREADS": "4"}
RUN, TEXT, MODELS = "run", "text", "models"
# Files of users and their file managers, which no command may touch.
STRAYS = ("notes.txt", "metrics (copy).csv")
STRAY_CHECKPOINTS = ("step-foo.npz", "step-00000004 (copy).npz", "best.npz~")
# The renaming of the last checkpoint of the second epoch, of three.
_HALF = shim.Fault(
    shim.Action.AFTER, signal.SIGKILL, "rename", f"{RUN}/checkpoints/step-00000006*"
)
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


@dataclasses.dataclass(frozen=True)
class Program:
    """A command, and the folder in which it begins.

    Attributes:
        name: what cases call it.
        module: what is run.
        arguments: its flags; `{folder}` stands for the folder.
        prepare: fills the empty folder.
        share: its share of the cases.
        graphs: whether it runs TensorFlow's graphs.
        workers: how many processes run it together.
        store: the scheme of the object store that has its folders; "": they are on the disk.
    """

    name: str
    module: str
    arguments: Sequence[str]
    prepare: Callable[[Runner, Path], None]
    share: int
    graphs: bool = False
    workers: int = 1
    store: str = ""

    @property
    def kind(self) -> str:
        """The only kind of its cases, or "" if it has all usual kinds."""
        if self.workers > 1:
            return "workers"
        return "stores" if self.store else ""

    def command(self, folder: Path) -> Command:
        """Returns the command, with its folder."""
        place = f"{self.store}://{stores.BUCKET}" if self.store else folder
        arguments = [each.format(folder=place) for each in self.arguments]
        return Command(self.module, arguments, folder, self.graphs)

    def commands(self, folder: Path) -> list[Command]:
        """Returns the commands of all workers, the chief's first, on ports that are free."""
        alone = self.command(folder)
        if self.workers == 1:
            return [alone]
        *ports, extra = _free_ports(self.workers + 1)
        addresses = [f"localhost:{port}" for port in ports]
        found = []
        for index in range(self.workers):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": {"worker": addresses}, "task": task})
            arguments = [*alone.arguments, f"--workers_port={extra}"]
            environment = {"TF_CONFIG": config, **_THREADS}
            found.append(
                dataclasses.replace(alone, arguments=arguments, environment=environment)
            )
        return found


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("", 0))) for _ in range(count)
        ]
        return [server.getsockname()[1] for server in servers]


class PreparationError(Exception):
    """An undisturbed command failed."""


def _nothing(runner, folder):
    del runner, folder


def _half_run(runner, folder):
    """A run that was killed after its second epoch, with files of the user."""
    ended = runner.run(TRAIN.command(folder), Disturbance(_HALF))
    if ended.status != 128 + signal.SIGKILL:
        raise PreparationError(f"no checkpoint of step 6: {ended}")
    _add_strays(folder / RUN)


def _finished_run(runner, folder):
    _finish(runner, TRAIN, folder)
    _add_strays(folder / RUN)


def _exported_run(runner, folder):
    """A finished run, and a model's folder with a version in it."""
    _finish(runner, TRAIN, folder)
    _finish(runner, EXPORT, folder)
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
    _finish(runner, ENCODE, folder)


def _half_encoded_text(runner, folder):
    """A text whose encoding was killed in its second file of ids."""
    _text(runner, folder)
    fault = shim.Fault(shim.Action.AFTER, signal.SIGKILL, "write", "*/validation.ids")
    ended = runner.run(ENCODE.command(folder), Disturbance(fault))
    if ended.status != 128 + signal.SIGKILL:
        raise PreparationError(f"no second file of ids: {ended}")


def _half_text_run(runner, folder):
    _text(runner, folder)
    fault = dataclasses.replace(_HALF, path=f"{RUN}/checkpoints/step-*", at=2)
    ended = runner.run(LANGUAGE.command(folder), Disturbance(fault))
    if ended.status != 128 + signal.SIGKILL:
        raise PreparationError(f"no second checkpoint: {ended}")


def _finish(runner, program, folder):
    ended = runner.run(program.command(folder))
    if ended.status:
        raise PreparationError(f"{program.name} failed: {ended}")


def _add_strays(run):
    for name in STRAYS:
        (run / name).write_text("mine\n")
    for name in STRAY_CHECKPOINTS:
        (run / "checkpoints" / name).write_text("mine\n")


_TRAINING = (*quick.flags(), f"--workdir={{folder}}/{RUN}")
_TEXT_FLAGS = ("--task=text", "--preset=small_levels", f"--data_dir={{folder}}/{TEXT}")
_TEXT_RUN = (
    *_TEXT_FLAGS,
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
ENCODE_ON = Program(
    "encode-on", "benchmarks.faults.encode", _ENCODING, _half_encoded_text, 3
)
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
TOGETHER = Program(
    "together",
    "trainers.pixels",
    (*_TRAINING, "--distribute=workers", "--workers_wait=15"),
    _nothing,
    1,
    graphs=True,
    workers=2,
)
IN_S3 = Program("in-s3", "trainers.pixels", _TRAINING, _nothing, 2, store="s3")
# Its client waits for seconds after each failure.
IN_GS = Program("in-gs", "trainers.pixels", _TRAINING, _nothing, 1, store="gs")
_ENCODERS = (ENCODE, ENCODE_ON, ENCODED)
_ALL = (
    TRAIN,
    RESUME,
    AGAIN,
    EVALUATE,
    *_ENCODERS,
    EXPORT,
    LANGUAGE,
    TOGETHER,
    IN_S3,
    IN_GS,
)
PROGRAMS = {program.name: program for program in _ALL}


class Templates:
    """The folders in which programs begin; each is made once.

    Args:
        folder: where they stand.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, program: Program, runner: Runner) -> None:
        """Makes the folder of a program."""
        # The cases run here too, so paths inside of files stay the same.
        place = self.copy(None, self._folder / "place")
        program.prepare(runner, place)
        shutil.move(place, self._folder / program.name)

    def copy(self, program: Program | None, place: Path) -> Path:
        """Returns a copy of a program's folder; an empty folder for None."""
        shutil.rmtree(place, ignore_errors=True)
        if program is None:
            place.mkdir(parents=True)
        else:
            shutil.copytree(self._folder / program.name, place)
        return place
