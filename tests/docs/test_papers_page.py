"""docs/notes/papers.md: no row is silent, what is named exists, and each small form trains."""

import ast
import importlib.util
import pkgutil
import re
import shlex
import types

import numpy as np
import pytest
from etils import epath

from docs.studies import ablations
from tests import ROOT
from trainers.data import images
from trainers.data.image_files import Images
from trainers.data.names import flatten
from trainers.data.vocabulary import EOS, UNKNOWN, Vocabulary
from trainers.drawing.experiment import DrawingExperiment
from trainers.language import corpora
from trainers.language.corpora import Corpus
from trainers.learned_optimizers.experiment import MetaExperiment
from trainers.studies import experiments
from trainers.studies.search import apply
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import runs

PAGE = (ROOT / "docs/notes/papers.md").read_text()
_, LEGEND, *PAPERS = re.split(r"^(?:## .*|\| word .*)$", PAGE, flags=re.MULTILINE)
STATES = re.findall(r"^\| ([a-z ]+) \|", LEGEND, re.MULTILINE)


def rows(header):
    """The cells of each row of the tables whose first column has a header."""
    found = re.findall(rf"^\| {header} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.M)
    lines = "".join(found).splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


BUILT, EXPERIMENTS = rows("item"), rows("experiment")
SPANS = sorted(set(re.findall("`([^`]+)`", "\n".join(PAPERS))))
COMMANDS = [span for span in SPANS if span.startswith("python -m ")]
TESTS = [span for span in SPANS if span.startswith("test_")]
NAMES = [span for span in SPANS if re.match(r"(keras_trellis|trainers)\.", span)]
OTHERS = {"reset_after=False", "means.png"}


def test_all_that_is_marked_as_code_is_looked_at():
    assert set(SPANS) == {*COMMANDS, *TESTS, *NAMES, *OTHERS}
    assert len(BUILT) > 40 and len(EXPERIMENTS) > 40 and len(PAPERS) == 3


def test_no_row_is_silent():
    for row in [*BUILT, *EXPERIMENTS]:
        assert len(row) == 4 and all(row), row
    for row in BUILT:
        _, _, state, how = row
        assert state in ("tested", "quoted", "drawn", "left out"), row
        if state == "tested":
            assert "`test_" in how, row
        if state == "drawn":
            assert "`python -m " in how, row
    for row in EXPERIMENTS:
        for cell in row[2:]:
            state = re.match("[a-z ]+", cell)[0].strip()
            (state,) = [each for each in STATES if re.match(rf"{each}\b", state)]
            assert state in ("run", "begun", "not run", "none"), row
            assert (state == "none") != ("`python -m " in cell), row
    assert {row[2] for row in BUILT} < set(STATES)


def test_each_paper_begins_with_what_was_not_reached():
    for paper in PAPERS:
        assert paper.strip().startswith("**Not reached: ")


def test_the_tests_and_names_exist():
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    names = re.findall(r"^def (test_\w+)\(", "\n".join(texts), re.MULTILINE)
    assert not set(TESTS) - set(names)
    for name in NAMES:
        assert pkgutil.resolve_name(name)


def test_the_quoted_tables_are_those_of_the_trainers():
    text = (ROOT / "docs/notes/quoted.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    for task in registry.TASKS.values():
        for result in task.quoted:
            own = [line for line in lines if line.startswith(f"| {result.name}")]
            numbers = {float(n) for line in own for n in re.findall(r"[\d.]*\d", line)}
            assert result.value in numbers, (task.name, result)
            if result.parameters:
                size = f"| {result.parameters / 1e6:g}"
                assert any(size in line for line in own), (task.name, result)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_preset_exist(command):
    module, flags = parsed(command)
    assert importlib.util.find_spec(module)
    if "task" in flags:
        assert module in (registry.get(flags["task"]).program, "trainers.reproduce")
        schema.check(config_of(flags))


def parsed(command):
    """Returns a command's module, and its flags by name."""
    _, _, module, *rest = shlex.split(command)
    flags = [flag for flag in rest if flag.startswith("--")]
    return module, dict(flag.removeprefix("--").split("=", 1) for flag in flags)


def config_of(flags):
    """Returns the config of a command that trains."""
    prefix = "config."
    fields = {
        name.removeprefix(prefix): value(text)
        for name, text in flags.items()
        if name.startswith(prefix)
    }
    config = configs.load(flags["task"], flags["preset"])
    assert not fields.keys() - flatten(config).keys(), flags
    return apply(config, fields)


def value(text):
    """The value of a flag."""
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


# What a small form's ten steps need not have: its batches, and its time steps of text.
LESS = {
    "trainers.lm": {"data.batch_size": 2, "data.window": 20},
    "trainers.pixels": {"data.batch_size": 2, "data.validation": 2},
    "trainers.draw": {"data.batch_size": 2, "data.validation": 2},
    # An optimization of ten steps, of which each trains.
    "trainers.meta": {
        "data.batch_size": 2,
        "data.validation": 2,
        "data.steps": 10,
        "data.unroll": 1,
    },
}


# The rows of the ablations that are another network; the others have another rate or window.
NETWORKS = (
    "all",
    "mixed group convolution",
    "input at every 2nd level",
    "a GRU's gate",
)


def small_forms():
    """Yields the module, the config and the name of each small form that trains."""
    cells = "\n".join(row[3] for row in EXPERIMENTS)
    for command in sorted(set(re.findall("`(python -m [^`]+)`", cells))):
        module, flags = parsed(command)
        if module in LESS:
            yield module, config_of(flags), command
    for row in ablations.ROWS:
        if row.name in NETWORKS:
            fields = {**ablations.WHOLE, **row.changes}
            config = apply(configs.load("pydoc", "small"), fields)
            yield "trainers.lm", config, f"ablations: {row.name}"


def networks():
    """Returns the small forms, one of those that are one network on several data."""
    different = {}
    for module, config, name in small_forms():
        values = flatten(config).items()
        network = [each for each in values if re.match(r"(model|optimizer)\.", each[0])]
        kind = type(registry.get(config.task)).__name__
        different.setdefault(
            repr((module, kind, network)), pytest.param(module, config, id=name)
        )
    return list(different.values())


def made_corpus(config, data_dir, path=None):
    """Stands in for a published text: all words of its vocabulary in turn."""
    size = registry.configured(config).vocabulary_size or 5000
    words = (f"w{number}" for number in range(2, min(size, 80_000)))
    vocabulary = Vocabulary([EOS, UNKNOWN, *words])
    ids = np.arange(3000, dtype=np.int32) % vocabulary.size
    texts = dict.fromkeys(("train", "validation", "test"), "made")
    source = types.SimpleNamespace(labels=texts, checksums=texts)
    return Corpus(vocabulary, ids, ids, ids, source)


def made_images(source, steps=None):
    """Stands in for published images, of their own size or read in fewer steps."""
    size, channels = source.sequence_shape
    pixels = np.random.default_rng(0).integers(0, 256, (24, steps or size, channels))
    part = Images(pixels.astype(np.uint8), np.arange(24, dtype=np.int32) % 10)
    return images.ImageSet(part, part, source.classes)


@pytest.mark.parametrize("module, config", networks())
def test_ten_steps_of_a_small_form(module, config, tmp_path, monkeypatch):
    steps = 64 if module == "trainers.pixels" else None
    monkeypatch.setattr(corpora, "load_corpus", made_corpus)
    monkeypatch.setattr(images, "load", lambda source, *_: made_images(source, steps))
    fields = {"training.jit_compile": False, **LESS[module]}
    known = flatten(config)
    config = apply(config, {n: v for n, v in fields.items() if n in known})
    path = epath.Path(tmp_path)
    if module == "trainers.draw":
        experiment = DrawingExperiment(config, None, path)
    elif module == "trainers.meta":
        experiment = MetaExperiment(config, None, path)
    else:
        experiment = experiments.load(config, None, path)
    task = experiment.task(experiment.build())
    trainer = runs.make_trainer(config, task, runs.make_optimizer(config))
    state = trainer.spread(task.initial_state())
    metrics, _ = trainer.steps(trainer.batches(0), state, 10, stage=0)
    losses = metrics["loss"].numpy()
    assert losses.shape == (10,) and np.isfinite(losses).all()
