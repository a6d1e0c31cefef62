"""The commands to disturb, and the folders in which they begin."""

import contextlib
import dataclasses
import json
import math
import random
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import drawing, quick, shim, stores
from benchmarks.faults.processes import Command, Disturbance, Runner

# A sum over workers waits in a thread, and what it waits for takes another.
_THREADS = {"TF_NUM_INTEROP_THREADS": "4"}
RUN, MODELS, TABLE, STUDY = "run", "models", "table", "study"
COMPARISON, SCORES = "comparison", "scores"
DATA = "data"  # files of the user that may have any content
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


_SMALL_DRAWING = {
    "data.batch_size": 8,
    "data.validation": 8,
    "evaluation.batch_size": 8,
    "training.epochs": 3,
    "training.log_every_steps": 2,
    "training.checkpoint_every_steps": 1,
}
_SMALL_LEARNING = {
    "model.units": 2,
    "model.layers": 1,
    "data.dimensions": 2,
    "data.batch_size": 2,
    "data.steps": 4,
    "data.unroll": 2,
    "data.episodes": 1,
    "data.evaluated": 2,
    "training.epochs": 3,
    "training.log_every_steps": 2,
    "training.checkpoint_every_steps": 1,
}
_SMALL_SERIES = {
    "model.units": 4,
    "model.output_units": 4,
    "model.depth": 2,
    "model.kernel_size": 2,
    "model.dilation_rate": "(1,)",
    "data.batch_size": 2,
    "evaluation.batch_size": 2,
    "training.epochs": 2,
    "training.log_every_steps": 2,
    "training.checkpoint_every_steps": 2,
}
_SMALL_IMPORT = {
    "model.depth": 2,
    "model.dilation_rate": "(1,)",
    "data.window": 9,
    "data.horizon": 3,
    "data.history": "zero",
}
Prepare = Callable[[Runner, Path], None]


def _nothing(runner, folder):
    del runner, folder


@dataclasses.dataclass(frozen=True)
class Program:
    """A command, and the folder in which it begins.

    Attributes:
        name: what cases call it.
        module: what is run.
        arguments: its flags; `{folder}` stands for the folder, in its store if it has one, and
            `{disk}` for the folder on the disk.
        prepare: fills the empty folder, once for all cases.
        begin: what is done in the folder of each case, where files have the folder's name.
        share: its share of the cases.
        graphs: whether it runs TensorFlow's graphs.
        on_jax: whether it computes on JAX.
        workers: how many processes run it together.
        store: the scheme of the object store that has its folders; "": they are on the disk.
        imports: modules that are imported before, so that its process need not.
        shared: whether several processes share its work, and the end depends on which was first.
        own_end: whether the last line that it prints is another each time.
        crashes: faults, as cases have them, with which TensorFlow's own code may crash.
        draw: draws an input of the command; returns the command that has it.
    """

    name: str
    module: str
    arguments: Sequence[str]
    prepare: Prepare = _nothing
    begin: Prepare = _nothing
    share: int = 1
    graphs: bool = False
    on_jax: bool = False
    workers: int = 1
    store: str = ""
    imports: Sequence[str] = ()
    shared: bool = False
    own_end: bool = False
    crashes: Sequence[str] = ()
    draw: Callable[[Command, random.Random], Command] | None = None

    @property
    def kind(self) -> str:
        """The only kind of its cases, or "" if it has all usual kinds."""
        if self.workers > 1:
            return "workers"
        if self.draw:
            return "drawn"
        return "stores" if self.store else ""

    def command(self, folder: Path) -> Command:
        """Returns the command, with its folder."""
        place = f"{self.store}://{stores.BUCKET}" if self.store else folder
        arguments = [
            argument.format(folder=place, disk=folder) for argument in self.arguments
        ]
        return Command(self.module, arguments, folder, self.graphs, self.on_jax)

    def commands(self, folder: Path) -> list[Command]:
        """Returns the commands of all workers, the chief's first, on ports that are free."""
        alone = self.command(folder)
        if self.workers == 1:
            return [alone]
        *ports, extra = _free_ports(self.workers + 1)
        addresses = [f"localhost:{port}" for port in ports]
        commands = []
        for index in range(self.workers):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": {"worker": addresses}, "task": task})
            arguments = [*alone.arguments, f"--workers_port={extra}"]
            environment = {"TF_CONFIG": config, **_THREADS}
            commands.append(
                dataclasses.replace(alone, arguments=arguments, environment=environment)
            )
        return commands


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("", 0))) for _ in range(count)
        ]
        return [server.getsockname()[1] for server in servers]


class PreparationError(Exception):
    """An undisturbed command failed."""


# What fills a folder before a program begins: functions of a runner and the folder.


def _after(*steps: Prepare) -> Prepare:
    """Returns what takes steps one after the other."""

    def prepare(runner, folder):
        for step in steps:
            step(runner, folder)

    return prepare


def _finished(program: Program) -> Prepare:
    """Returns what runs a program to its end."""

    def prepare(runner, folder):
        ended = runner.run(program.command(folder))
        if ended.status:
            raise PreparationError(f"{program.name} failed: {ended}")

    return prepare


def _killed(program: Program, operation: str, path: str, at: int = 1) -> Prepare:
    """Returns what kills a program after a file operation."""
    fault = shim.Fault(shim.Action.AFTER, signal.SIGKILL, operation, path, at)

    def prepare(runner, folder):
        ended = runner.run(program.command(folder), Disturbance(fault))
        if ended.status != 128 + signal.SIGKILL:
            raise PreparationError(f"{program.name} has no {operation} {path}: {ended}")

    return prepare


def _flags(*own: str, **fields: Any) -> tuple[str, ...]:
    """Returns the flags of a run, with values of its config."""
    values = (f"--config.{name}={value}" for name, value in fields.items())
    return (*own, *values, f"--workdir={{folder}}/{RUN}")


def _strays(runner, folder):
    """Adds files of the user to a run's folder."""
    del runner
    for name in STRAYS:
        (folder / RUN / name).write_text("mine\n")
    for name in STRAY_CHECKPOINTS:
        (folder / RUN / "checkpoints" / name).write_text("mine\n")


def _stray_beside_models(runner, folder):
    del runner
    (folder / MODELS / "notes.txt").write_text("mine\n")


def _text(runner, folder):
    """A text of ten words, drawn at random, with a line break after each sixth."""
    del runner
    generator = random.Random(0)
    (folder / DATA).mkdir()
    for split, count in {"train": 200, "valid": 40, "test": 40}.items():
        words = [f"word{generator.randrange(10)}" for _ in range(count)]
        lines = [" ".join(words[start : start + 6]) for start in range(0, count, 6)]
        (folder / DATA / f"{split}.txt").write_text("\n".join(lines) + "\n")


def _images(runner, folder):
    """MNIST's files, with a few images drawn at random."""
    del runner
    generator = random.Random(0)
    (folder / DATA).mkdir()
    for split, count in {"train": 24, "t10k": 8}.items():
        for kind, shape in {
            "images-idx3": (count, 28, 28),
            "labels-idx1": (count,),
        }.items():
            header = bytes([0, 0, 8, len(shape)])
            header += b"".join(size.to_bytes(4, "big") for size in shape)
            items = bytes(generator.randrange(10) for _ in range(math.prod(shape)))
            (folder / DATA / f"{split}-{kind}-ubyte").write_bytes(header + items)


def _configs(runner, folder):
    """The configs of the models that are compared."""
    del runner
    (folder / DATA).mkdir()
    for layer in ("trellis", "lstm"):
        file = folder / DATA / f"{layer}.json"
        file.write_text(json.dumps(quick.config(layer)))


def _documents(runner, folder):
    """Documents in two files, some of which cannot be read; what made the model goes."""
    del runner
    shutil.rmtree(folder / RUN)
    shutil.rmtree(folder / ".cache")
    for name in ("one", "two"):
        lines = [json.dumps({"text": f"word{n} word3 {name}"}) for n in range(4)]
        (folder / DATA / f"{name}.jsonl").write_text("\n".join([*lines, "no JSON\n"]))


def _versions(runner, folder):
    """Leaves a served model, and what will be its next version."""
    del runner
    shutil.copytree(folder / DATA / "model" / "1", folder / DATA / "new")
    shutil.rmtree(folder / RUN)
    shutil.rmtree(folder / ".cache")


def _forged(command, generator):
    """Changes a JSON file of the served version: a value, or a bit."""
    files = sorted((command.folder / DATA / "model" / "1").rglob("*.json"))
    drawing.change_json(generator.choice(files), generator)
    return command


def _asked(command, generator):
    """Asks the server what no client should."""
    requests = f"--requests={generator.randrange(2**31)},30"
    return dataclasses.replace(command, arguments=[*command.arguments, requests])


def _table(runner, folder):
    """A table of eight short series."""
    del runner
    (folder / DATA).mkdir()
    drawing.write_table(folder / DATA / "table.csv", drawing.table(random.Random(0)))


def _changed_table(command, generator):
    """Changes a table."""
    drawing.change_table(command.folder / DATA / "table.csv", generator)
    return command


def _weights(runner, folder):
    """A text, and a file of weights for its words, as quick.py lets them be read."""
    _text(runner, folder)
    words, units, taps, embedding = 12, 4, 2, 2  # words: <eos> and <unk>, too
    shapes = {
        "encoder.weight": (words, embedding),
        "decoder.weight": (words, embedding),
        "decoder.bias": (words,),
        "tnet.module.full_conv.bias2": (4 * units,),
        "tnet.module.full_conv.weight1_raw": (4 * units, embedding, taps),
        "tnet.module.full_conv.weight2_raw": (4 * units, units, taps),
    }
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    with open(folder / DATA / "weights.pkl", "wb") as file:
        np.savez(file, **arrays)


def _another_run(runner, folder):
    """A copy of a run under another name."""
    del runner
    shutil.copytree(folder / RUN, folder / DATA)


_TRAINING = (*quick.flags(), f"--workdir={{folder}}/{RUN}")
_DATA = f"--data_dir={{disk}}/{DATA}"
_TEXT_RUN = _flags("--task=text", "--preset=small", _DATA, **_SMALL_TEXT_MODEL)
_DRAWING = _flags("--task=mnist", "--preset=small", _DATA, **_SMALL_DRAWING)
_SERIES = _flags("--task=csv", "--preset=small", _DATA, **_SMALL_SERIES)
_LEARNING = _flags("--task=quadratic", "--preset=small", **_SMALL_LEARNING)
_IMPORTING = _flags(
    *("--task=text", _DATA, f"--checkpoint={{disk}}/{DATA}/weights.pkl"),
    **_SMALL_IMPORT,
)
_CHECKPOINT = f"{RUN}/checkpoints/step-*"

# The programs

TRAIN = Program("train", "trainers.pixels", _TRAINING, share=10)
# Killed after the renaming of the last checkpoint of the second epoch, of three.
_HALF = _after(_killed(TRAIN, "rename", f"{RUN}/checkpoints/step-00000006*"), _strays)
_WHOLE = _after(_finished(TRAIN), _strays)
RESUME = Program("resume", "trainers.pixels", _TRAINING, _HALF, share=10)
AGAIN = Program("again", "trainers.pixels", _TRAINING, _WHOLE, share=2)
EVALUATE = Program(
    "evaluate",
    "trainers.pixels",
    ("--task=adding", "--mode=evaluate", f"--workdir={{folder}}/{RUN}"),
    _WHOLE,
    share=3,
)
ENCODE = Program("encode", "benchmarks.faults.encode", (_DATA,), _text, share=3)
ENCODE_ON = dataclasses.replace(
    ENCODE,
    name="encode-on",
    prepare=_after(_text, _killed(ENCODE, "write", "*/validation.ids")),
)
ENCODED = dataclasses.replace(
    ENCODE, name="encoded", prepare=_after(_text, _finished(ENCODE)), share=1
)
EXPORT = Program(
    "export",
    "trainers.export",
    (f"--workdir={{folder}}/{RUN}", f"--output={{folder}}/{MODELS}"),
    share=3,
    graphs=True,
    own_end=True,
    crashes=("EIO-lasting",),
)
EXPORT = dataclasses.replace(
    EXPORT,
    prepare=_after(_finished(TRAIN), _finished(EXPORT), _stray_beside_models),
)
LANGUAGE = Program("language", "trainers.lm", _TEXT_RUN, _text)
LANGUAGE = dataclasses.replace(
    LANGUAGE, prepare=_after(_text, _killed(LANGUAGE, "rename", _CHECKPOINT, 2))
)
REPRODUCE = Program("reproduce", "trainers.reproduce", _TEXT_RUN, _text, on_jax=True)
REPRODUCE = dataclasses.replace(
    REPRODUCE,
    prepare=_after(_text, _killed(REPRODUCE, "rename", _CHECKPOINT, 2), _strays),
    own_end=True,
)
GENERATE = Program(
    "generate",
    "trainers.generate",
    (f"--workdir={{folder}}/{RUN}", "--max_length=12", "--seed=1"),
    _after(LANGUAGE.prepare, _finished(LANGUAGE)),
)
DRAW = Program("draw", "trainers.draw", _DRAWING, _images)
DRAW = dataclasses.replace(
    DRAW, prepare=_after(_images, _killed(DRAW, "rename", _CHECKPOINT, 3), _strays)
)
META = Program("meta", "trainers.meta", _LEARNING)
META = dataclasses.replace(
    META, prepare=_after(_killed(META, "rename", _CHECKPOINT, 3), _strays)
)
META_EVALUATE = Program(
    "meta-evaluate",
    "trainers.meta_evaluate",
    (
        *(f"{{folder}}/{RUN}", f"{{folder}}/{DATA}"),
        *(f"--output={{folder}}/{TABLE}", "--draws=2"),
    ),
    _after(_finished(META), _another_run, _strays),
)
_STUDY = (
    *quick.flags("optimizer.learning_rate"),
    *(f"--study={{folder}}/{STUDY}", "--trials=3", "--trial_seconds=6"),
)
TUNE = Program(
    "tune", "trainers.tune", _STUDY, share=2, imports=("optuna",), shared=True
)
TUNE_ON = dataclasses.replace(
    TUNE,
    name="tune-on",
    prepare=_killed(TUNE, "rename", f"{STUDY}/trials/0001/checkpoints/step-*", 2),
)
COMPARE = Program(
    "compare",
    "trainers.compare",
    (
        *("--tasks=adding", "--models=trellis,lstm", "--seeds=1", "--validations=3"),
        f"--config_files={{folder}}/{DATA}/trellis.json,{{folder}}/{DATA}/lstm.json",
        *(f"--output={{folder}}/{COMPARISON}", "--seconds=6"),
    ),
    _configs,
)
COMPARE_ON = dataclasses.replace(
    COMPARE,
    name="compare-on",
    prepare=_after(
        _configs, _killed(COMPARE, "close", f"{COMPARISON}/adding/lstm/.0.lock")
    ),
)
IMPORT = Program("import", "trainers.import_weights", _IMPORTING, _weights)
IMPORT_ON = dataclasses.replace(
    IMPORT,
    name="import-on",
    prepare=_after(_weights, _killed(IMPORT, "rename", f"{RUN}/corpus.json")),
)
_SERVED = Program(
    "served",
    "trainers.export",
    (f"--workdir={{folder}}/{RUN}", f"--output={{folder}}/{DATA}/model"),
    graphs=True,
)
BATCH = Program(
    "batch",
    "trainers.batch",
    (
        *(f"--model={{folder}}/{DATA}/model", f"--input={{folder}}/{DATA}/*.jsonl"),
        *(f"--output={{folder}}/{SCORES}", "--keep=perplexity<1000"),
        "--max_failures=2",
    ),
    _after(LANGUAGE.prepare, _finished(LANGUAGE), _finished(_SERVED), _documents),
    graphs=True,
    imports=("trainers.scoring.pipeline",),
    # Where TensorFlow cannot count the lines of a vocabulary, it asks for a table of -1 entries.
    crashes=("EIO-once", "EIO-lasting"),
)
BATCH_ON = dataclasses.replace(
    BATCH,
    name="batch-on",
    begin=_killed(BATCH, "rename", f"{SCORES}/*.jsonl"),
)
SERVE = Program(
    "serve",
    "benchmarks.faults.serve",
    (f"--model={{folder}}/{DATA}/model", f"--new={{folder}}/{DATA}/new"),
    _after(LANGUAGE.prepare, _finished(LANGUAGE), _finished(_SERVED), _versions),
    share=3,
    imports=("keras_trellis.serving.server.app",),
)
EXPORTED = dataclasses.replace(SERVE, name="exported", draw=_forged, share=5)
ASKED = dataclasses.replace(SERVE, name="asked", draw=_asked, share=5)
SERIES = Program("series", "trainers.series", _SERIES, _table, share=3)
TABLES = dataclasses.replace(
    SERIES, name="tables", draw=_changed_table, own_end=True, share=5
)
TOGETHER = Program(
    "together",
    "trainers.pixels",
    (*_TRAINING, "--distribute=workers", "--workers_wait=15"),
    graphs=True,
    workers=2,
)
IN_S3 = Program("in-s3", "trainers.pixels", _TRAINING, share=2, store="s3")
# Its client waits for seconds after each failure.
IN_GS = Program("in-gs", "trainers.pixels", _TRAINING, store="gs")


def _in_s3(program: Program, prepare: Prepare = _nothing) -> Program:
    name = f"{program.name}-in-s3"
    return dataclasses.replace(program, name=name, prepare=prepare, store="s3")


_ALL = (
    *(TRAIN, RESUME, AGAIN, EVALUATE),
    *(ENCODE, ENCODE_ON, ENCODED),
    EXPORT,
    *(LANGUAGE, GENERATE),
    REPRODUCE,
    *(DRAW, META, META_EVALUATE),
    *(TUNE, TUNE_ON),
    *(COMPARE, COMPARE_ON),
    *(IMPORT, IMPORT_ON),
    *(BATCH, BATCH_ON),
    *(SERVE, EXPORTED, ASKED),
    *(SERIES, TABLES),
    *(TOGETHER, IN_S3, IN_GS),
    *(_in_s3(DRAW, _images), _in_s3(META), _in_s3(IMPORT, _weights)),
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
