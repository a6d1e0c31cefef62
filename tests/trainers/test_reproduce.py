"""`trainers.reproduce`: the steps, scores and folders of the other trainers, on JAX alone."""

import contextlib
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from numpy.testing import assert_allclose, assert_array_equal

from configs import papers
from configs.papers import ROWS
from tests import ROOT
from tests.fresh_flags import fresh_flags
from tests.trainers.calls import config_of
from trainers import reproduce
from trainers.data import datasets, penn_treebank, shuffling
from trainers.data.names import flatten, nested
from trainers.data.text import sha256
from trainers.language import corpora, experiment, exporting, writing
from trainers.language.protocols import PROTOCOLS
from trainers.papers import rows
from trainers.sequences.experiment import SequenceExperiment
from trainers.tasks import config as configs
from trainers.tasks import registry, run_folders, schema
from trainers.training import checkpoints, run_state, runs, schedules, strategies
from trainers.training.workdir import open_workdir, read_result

pytest.importorskip("jax", reason="trainers.reproduce needs JAX")

WORDS = {
    "model.units": 6,
    "model.depth": 2,
    "model.embedding_units": 4,
    "model.output_units": 4,
    "model.dilation_rate": "1,2",
    "model.auxiliary_every": 1,
    "model.auxiliary_weight": 0.1,
    "model.activation_weight": 1.0,
    "model.temporal_weight": 1.0,
    "data.batch_size": 2,
    "data.window": 6,
    "data.horizon": 0,
    "data.history": "carried",
    "optimizer.name": "sgd",
    "optimizer.learning_rate": 1.0,
    "optimizer.weight_decay": 1e-3,
    "schedule.epochs": "1",
    "schedule.average_after": 2,
    "training.epochs": 3,
    "training.steps": 0,
    "training.depths": "()",
    "evaluation.batch_size": 2,
    "evaluation.exact_batch_size": 2,
    "evaluation.exact_chunk": 8,
}
NO_DROPOUT = {
    f"model.{name}": 0.0
    for name in ("embedding_dropout", "dropout", "recurrent_dropout", "output_dropout")
}
DROPOUT = {
    "model.embedding_dropout": 0.1,
    "model.dropout": 0.1,
    "model.recurrent_dropout": 0.1,
    "model.weight_dropout": 0.2,
    "model.output_dropout": 0.1,
}
# As where TensorFlow is not installed.
PROGRAM = """
import runpy, sys
sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = None
sys.argv[0] = "reproduce"
runpy.run_module("trainers.reproduce", run_name="__main__")
"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    words = np.random.default_rng(0).choice(list("abcdefgh"), 500)
    for split, count in (("train", 125), ("valid", 60), ("test", 40)):
        lines = [" ".join(words[i : i + 4]) for i in range(0, count, 4)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


# What makes the rows tiny, by the beginnings of their names: the model, the data, and three steps.
TINY = {
    "": {
        "optimizer.learning_rate": 0.01,
        "training.epochs": 1,
        "training.steps": 3,
        "data.batch_size": 2,
        "evaluation.batch_size": 2,
    },
    "ptb-mos": {"model.mixture.experts": 2, "data.horizon": 2},
    "wikitext-103": {"model.adaptive.cutoffs": (2, 4, 6)},
    "seq-cifar10": {
        "model.units": 12,
        "model.depth": 3,
        "model.dilation_rate": (1, 8, 64),
        "data.validation": 3,
    },
    "gated-": {"model.units": 4, "model.embedding_units": 4, "data.window": 12},
}
SMALL_TRELLIS = {
    "model.units": 6,
    "model.depth": 2,
    "model.output_units": 4,
    "model.embedding_units": 4,
    "model.auxiliary_every": 1,
    "data.window": 6,
}
TINY["ptb-mos"] |= SMALL_TRELLIS
TINY["wikitext-103"] |= SMALL_TRELLIS
OTHER_ROWS = [
    *("ptb-mos", "wikitext-103", "seq-cifar10", "gated-lstm", "gated-irc-gru"),
    *("gated-t-lstm", "gated-irc-fast-grnn", "gated-sru"),
]
# Rows one after the other in one process, which imports JAX once.
SEVERAL = """
import sys
sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = None
from etils import epath
from trainers.data import penn_treebank
from trainers.papers import training
from configs.papers import ROWS
from trainers.tasks import config as configs, schema
from trainers.data.names import nested

penn_treebank.checksums = lambda: {checksums!r}
for name, fields in {fields!r}.items():
    row = ROWS[name]
    config = configs.load(row.task, row.preset)
    config.update(nested(fields))
    schema.check(config)
    assert training.reproduce(config, {data!r}, epath.Path({runs!r}) / name, row)
"""


@pytest.fixture(scope="module")
def published(data_dir, tmp_path_factory):
    """A folder with made-up data under the names of the published files."""
    folder = tmp_path_factory.mktemp("published")
    for split in ("train", "valid", "test"):
        text = pathlib.Path(data_dir, f"{split}.txt").read_text()
        (folder / f"ptb.{split}.txt").write_text(text)
        # A blank line and a heading, as that text has them.
        (folder / f"wiki.{split}.tokens").write_text(f" \n = a = \n{text}")
    rng = np.random.default_rng(0)
    for name, count in (("data_batch_1", 12), ("test_batch", 4)):
        images = rng.integers(0, 256, (count, 1 + 3 * 1024)).astype("uint8")
        images[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(images.tobytes())
    return folder


def test_the_other_rows_reach_a_card(
    published, environment, tmp_path, capsys, monkeypatch
):
    """In tiny forms of the presets at the paper's size; the other trainers score them the same."""
    fields = {}
    for name in OTHER_ROWS:
        given = [values for start, values in TINY.items() if name.startswith(start)]
        fields[name] = {n: v for values in given for n, v in values.items()}
    files = penn_treebank.FILES.items()
    checksums = {split: sha256(epath.Path(published / name)) for split, name in files}
    monkeypatch.setattr(penn_treebank, "checksums", lambda: checksums)
    program = SEVERAL.format(
        checksums=checksums, fields=fields, data=str(published), runs=str(tmp_path)
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for name in OTHER_ROWS:
        path, row = epath.Path(tmp_path / name), ROWS[name]
        card = (path / "card.md").read_text()
        assert f"Published ({row.table}: {row.what}) | {row.published:.2f}" in card
        options = {} if row.task == "seq_cifar10" else {"protocols": PROTOCOLS}
        part = registry.TASKS[row.task].part("experiment")
        loaded = part.load(run_folders.load_config(path), str(published), path)
        capsys.readouterr()
        loaded.evaluate(path, **options)
        printed = capsys.readouterr().out
        measure = registry.TASKS[row.task].measure
        for scores in read_result(path)["scores"].values():
            for score in scores.values():
                assert f"{score[measure.name]:.2f}" in printed, name


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    home = str(tmp_path_factory.mktemp("home"))
    own = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "HOME": home}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT)}


def flags(task, fields, **others):
    given = {"task": task, **others, **{f"config.{n}": v for n, v in fields.items()}}
    return [f"--{name}={value}" for name, value in given.items()]


def start(environment, *arguments):
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=ROOT, **streams)


def run(environment, *arguments, status=0):
    """Runs the program without TensorFlow; returns what it prints."""
    process = start(environment, *arguments)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == status, output + errors
    return output if status == 0 else errors


def newest(path):
    """The arrays of the newest checkpoint, but for those of the machine."""
    with np.load(max((path / "checkpoints").glob("step-*.npz"))) as file:
        names = [n for n in file if not n.startswith(("cost/", "run_id"))]
        return {name: file[name] for name in names}


def assert_equal(path, other):
    for file in ("step", "best"):
        arrays, expected = ({}, {})
        for folder, into in ((path, arrays), (other, expected)):
            with np.load(max((folder / "checkpoints").glob(f"{file}*.npz"))) as found:
                names = [n for n in found if not n.startswith(("cost/", "run_id"))]
                into.update({name: found[name] for name in names})
        assert arrays.keys() == expected.keys()
        for name, array in expected.items():
            assert_array_equal(arrays[name], array, err_msg=name)
    scores = [read_result(epath.Path(each))["scores"] for each in (path, other)]
    assert scores[0] == scores[1]


@pytest.fixture(scope="module")
def finished(data_dir, environment, tmp_path_factory):
    """A run with every dropout, to its end, and what it printed."""
    path = tmp_path_factory.mktemp("finished") / "run"
    given = flags("text", WORDS | DROPOUT, data_dir=data_dir, workdir=path)
    return path, run(environment, *given)


def trained_by_trainers(config, data_dir, path):
    """Writes the checkpoint of step 0, trains in this process; returns it and its losses."""
    strategies.make_deterministic(config.seed)
    language = registry.get(config.task).program == "trainers.lm"
    kind = experiment.LanguageExperiment if language else SequenceExperiment
    made = kind(config, data_dir, epath.Path(path))
    task = made.task(made.build())
    optimizer = runs.make_optimizer(config)
    trainer = runs.make_trainer(config, task, optimizer)
    with open_workdir(path, config.to_dict()) as folder:
        store = checkpoints.Checkpoints(
            epath.Path(path) / "checkpoints", run_id=folder.run.run_id
        )
        store.begin(run_state.RunState(trainer).arrays())
    schedule, batches = schedules.make_schedule(config), trainer.batches(0)
    training = config.training
    length = training.steps or training.epochs * task.steps_per_epoch
    losses, shown, state = [], [], task.initial_state()
    for step in range(length):
        if step % task.steps_per_epoch == 0:
            state = task.initial_state()
        metrics, state = trainer.step(next(batches), state)
        weight = float(metrics["weight"])
        shown.append((weight, float(metrics.get("prediction", metrics["loss"]))))
        if (step + 1) == (len(losses) + 1) * length // training.epochs:
            with optimizer.evaluation_weights(task.model.trainable_variables):
                losses.append(task.evaluate()["loss"])
            schedule.after_epoch(losses, optimizer)
    return run_state.RunState(trainer), losses, shown


@pytest.mark.parametrize(
    "task, fields",
    [
        ("text", WORDS | NO_DROPOUT | {"data.history": "zero", "data.horizon": 2}),
        ("text", WORDS | DROPOUT),
        (
            "text",
            WORDS
            | NO_DROPOUT
            | {
                "model.layer": "weight_drop_lstm",
                "model.auxiliary_weight": 0.0,
                "model.weight_dropout": 0.2,
                "data.window": 12,
                "data.lengths": "drawn",
            },
        ),
        (
            "copy_memory",
            {
                "model.units": 6,
                "model.depth": 2,
                "model.kernel_size": 2,
                "model.dilation_rate": "1,2",
                "model.recurrent_dropout": 0.1,
                "data.steps": 3,
                "data.batch_size": 8,
                "data.train": 20,
                "data.validation": 6,
                "data.test": 7,
                "optimizer.name": "adam",
                "optimizer.learning_rate": 0.01,
                "schedule.average_after": 1,
                "training.epochs": 2,
                "training.steps": 7,
                "evaluation.batch_size": 4,
            },
        ),
    ],
    ids=["plain", "dropout", "drawn lengths", "examples"],
)
def test_its_steps_are_those_of_the_other_trainers(
    task, fields, data_dir, environment, tmp_path
):
    """From their own first checkpoint; our layers' dropout masks are the same, too."""
    config = config_of(*flags(task, fields))
    given_dir = data_dir if task == "text" else None
    state, losses, _ = trained_by_trainers(config, given_dir, tmp_path / "run")
    others = {"data_dir": given_dir} if given_dir else {}
    run(environment, *flags(task, fields, **others, workdir=tmp_path / "run"))
    arrays = newest(tmp_path / "run")
    assert_allclose(arrays["losses"], losses, atol=1e-4)
    expected = state.arrays()
    compared = [name for name in expected if name.startswith(("model/", "optimizer/"))]
    assert any(name.endswith("/average") for name in compared)
    for name in compared:
        if "seed" in name:
            continue
        assert_allclose(arrays[name], expected[name], atol=1e-4, err_msg=name)


def test_fifty_steps_without_dropout(data_dir, environment, tmp_path):
    fields = WORDS | NO_DROPOUT | {"training.epochs": 1, "training.steps": 50}
    fields = {n: v for n, v in fields.items() if not n.startswith("schedule.")}
    config = config_of(*flags("text", fields))
    _, losses, shown = trained_by_trainers(config, data_dir, tmp_path / "run")
    assert len(shown) == 50
    run(
        environment, *flags("text", fields, data_dir=data_dir, workdir=tmp_path / "run")
    )
    assert_allclose(newest(tmp_path / "run")["losses"], losses, atol=1e-4)
    table = (tmp_path / "run/metrics.csv").read_text().splitlines()
    header, epoch = table[0].split(","), table[1].split(",")
    train = float(epoch[header.index("loss")])
    weights, values = zip(*shown, strict=True)
    assert train == pytest.approx(np.average(values, weights=weights), abs=1e-4)


def test_its_folder_is_one_of_the_trainers(finished, data_dir, tmp_path, capsys):
    path, _ = finished
    config = run_folders.load_config(epath.Path(path))
    loaded = experiment.load(config, data_dir, epath.Path(path))
    loaded.evaluate(epath.Path(path))
    printed = capsys.readouterr().out
    result = read_result(epath.Path(path))
    corpus = corpora.load_corpus(config, data_dir)
    model, *_ = experiment.load_trained(epath.Path(path))
    evaluator = experiment.evaluation.Evaluator(model, config.data, config.evaluation)
    for split in ("validation", "test"):
        for protocol in ("exact", "trellisnet"):
            score = evaluator.score(protocol, getattr(corpus, split))
            own = result["scores"][split][protocol]
            assert own["tokens"] == score.tokens
            assert own["nll"] / own["tokens"] == pytest.approx(score.mean, abs=1e-5)
            assert f"{own['perplexity']:.2f}" in printed
    assert len(writing.generate(epath.Path(path), "a", 5).split()) >= 1
    options = run_folders.ExportOptions(str(tmp_path / "served"))
    assert (epath.Path(exporting.export(epath.Path(path), options))).exists()


def test_the_card_and_what_is_printed(finished):
    path, printed = finished
    card, result = (path / "card.md").read_text(), read_result(epath.Path(path))
    for protocols in result["scores"].values():
        for score in protocols.values():
            assert f"{score['perplexity']:.2f} |" in card
    assert f"| Parameters | {result['parameters']:,} |" in card
    assert (
        "| Recipe | --task=text --preset=" in card and "--config.model.units=6 " in card
    )
    assert "epoch 3 of 3: training loss" in printed
    assert "weights are averaged from here on" in printed
    assert "learning rate 1 -> " in printed
    assert result["summary"] in printed


def test_a_run_that_is_killed_goes_on_bit_for_bit(
    finished, data_dir, environment, tmp_path
):
    """At random moments after the start, by SIGKILL and SIGTERM in turn."""
    path, fields = tmp_path / "run", WORDS | DROPOUT
    fields |= {"training.checkpoint_every_steps": 1}
    given = flags("text", fields, data_dir=data_dir, workdir=path)
    rng, undisturbed = random.Random(0), tmp_path / "undisturbed"
    run(environment, *flags("text", fields, data_dir=data_dir, workdir=undisturbed))
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        done = (
            len(list((path / "checkpoints").glob("step-*.npz"))) if path.exists() else 0
        )
        process, deadline = start(environment, *given), time.monotonic() + 200
        names = set((path / "checkpoints").glob("step-*.npz")) if done else set()
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                if set((path / "checkpoints").glob("step-*.npz")) - names:
                    break
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(number)
        process.communicate()
    run(environment, *given)
    assert_equal(path, undisturbed)


def test_a_run_ends_in_time_and_goes_on(finished, data_dir, environment, tmp_path):
    path, _ = finished
    copy = tmp_path / "run"
    given = flags("text", WORDS | DROPOUT, data_dir=data_dir, workdir=copy)
    printed = run(environment, *given, "--minutes=0.0001")
    assert "saved after step 0; the same command goes on" in printed
    assert not (copy / "result.json").exists()
    run(environment, *given)
    assert_equal(copy, path)
    assert "holds a finished run" in run(environment, *given)


def test_weights_without_a_run_are_not_replaced(
    finished, data_dir, environment, tmp_path
):
    """As those that were imported, or of a run whose checkpoints are lost."""
    copy = shutil.copytree(finished[0], tmp_path / "run")
    for path in [*(copy / "checkpoints").glob("step-*.npz"), copy / "result.json"]:
        path.unlink()
    weights = (copy / "checkpoints/best.npz").read_bytes()
    given = flags("text", WORDS | DROPOUT, data_dir=data_dir, workdir=copy)
    told = run(environment, *given, status=2)
    assert "best.npz is there without a checkpoint of its run" in told
    assert (copy / "checkpoints/best.npz").read_bytes() == weights


def test_two_devices_train_as_one_does(finished, data_dir, environment, tmp_path):
    path, _ = finished
    two = {
        "XLA_FLAGS": environment["XLA_FLAGS"]
        + " --xla_force_host_platform_device_count=2"
    }
    given = flags("text", WORDS | DROPOUT, data_dir=data_dir, workdir=tmp_path / "run")
    assert ", 2 x cpu, step 0" in run(environment | two, *given)
    arrays = newest(tmp_path / "run")
    for name, expected in newest(path).items():
        assert_allclose(arrays[name], expected, atol=1e-5, err_msg=name)


def test_a_run_that_diverges_ends_with_a_sentence(data_dir, environment, tmp_path):
    fields = WORDS | NO_DROPOUT | {"optimizer.learning_rate": 1e6}
    fields |= {"optimizer.clip_norm": 1e30}
    given = flags("text", fields, data_dir=data_dir, workdir=tmp_path / "run")
    told = run(environment, *given, status=3)
    assert "epoch 1: the validation loss is" in told or "the gradient's norm" in told
    assert "checkpoints from before it, if any, are kept in" in told
    assert "Traceback" not in told


def test_half_precision_trains(data_dir, environment, tmp_path):
    fields = WORDS | DROPOUT | {"model.dtype": "mixed_bfloat16", "training.epochs": 1}
    path = tmp_path / "run"
    run(environment, *flags("text", fields, data_dir=data_dir, workdir=path))
    assert math.isfinite(newest(path)["losses"][0])
    assert all(
        a.dtype != np.dtype("V2") for n, a in newest(path).items() if "model/" in n
    )


def test_the_table_measures_a_row(environment):
    small = {"units": 4, "output_units": 4, "embedding_units": 4, "depth": 2}
    small |= {"auxiliary_every": 1}
    fields = {f"config.model.{name}": value for name, value in small.items()}
    given = [f"--{name}={value}" for name, value in fields.items()]
    arguments = ("--table", "--row=ptb-word", *given)
    head, line = run(environment, *arguments).splitlines()
    values = dict(zip(head.split()[:7], line.split()[:7], strict=True))
    assert values["published"] == "56.97" and values["preset"] == "paper"
    parameters = 4 * 10_000 + 10_000 + 4 * 16 + 4 * 16 + 16
    assert float(values["hours"]) > 0 and float(values["GiB"]) > 0
    assert int(values["parameters"].replace(",", "")) == pytest.approx(
        parameters, rel=0.01
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--row is missing; expected one of ptb-word, "),
        (["--row=ptb-words"], "unknown --row 'ptb-words'; did you mean 'ptb-word'?"),
        (["--row=ptb-word"], "--data_dir must be the folder of ptb.train.txt, "),
        (["--row=seq-mnist"], "Received: no --data_dir"),
        (
            ["--row=ptb-char", "--minutes=0", "--data_dir=x"],
            "--minutes must be above 0",
        ),
        (["--table", "--minutes=3"], "--minutes has no use with --table"),
        (["--task=addition"], "--task must be one of "),
        (["--small", "--task=ptb"], "--small has no use without --row"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    arguments, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with fresh_flags(reproduce), pytest.raises(SystemExit, match="2"):
        reproduce.parse_flags(["reproduce", *arguments])
    assert message in capsys.readouterr().err


def test_a_small_form_has_fewer_steps_and_its_own_folder(tmp_path, monkeypatch):
    """So that no other command with its preset goes on with its run."""
    monkeypatch.chdir(tmp_path)
    small = ["reproduce", "--row=ptb-word", "--small", "--data_dir=x"]
    values = reproduce.FLAGS
    with fresh_flags(reproduce):
        reproduce.parse_flags(small)
        assert values.workdir == "runs/ptb-word-small"
        given = {f: flatten(values.config)[f] for f in papers.SMALL["ptb-word"]}
        assert given == papers.SMALL["ptb-word"] and values.config.preset == "small"
    with fresh_flags(reproduce):
        reproduce.parse_flags([*small, "--config.training.steps=7", "--workdir=y"])
        assert (values.workdir, values.config.training.steps) == ("y", 7)
    with fresh_flags(reproduce):
        reproduce.parse_flags(["reproduce", "--table", "--row=ptb-char", "--small"])
        few = papers.SMALL["ptb-char"]["training.steps"]
        assert values.config.training.steps == few


@pytest.mark.parametrize("name", ROWS)
def test_the_small_form_of_a_row_is_a_config(name):
    row = ROWS[name]
    config = configs.load(row.task, row.small)
    config.update(nested(papers.SMALL[name]))
    schema.check(config)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_presets_and_a_published_number(name):
    row = ROWS[name]
    task = registry.TASKS[row.task]
    assert {row.preset, row.small} <= task.presets.keys()
    gated = row.table.startswith("Kuo")
    if row.published is not None and not gated:
        assert row.published in {result.value for result in task.published}
    assert row.task in papers.SIZES and row.task in papers.FILES
    assert rows.of_recipe(row.task, row.preset) in ROWS.values()
    assert all(math.isfinite(loss) for loss in rows.expected(row).values())


def test_the_rows_have_all_published_numbers_of_their_tasks():
    for name in papers.SIZES:
        numbers = {result.value for result in registry.TASKS[name].published}
        drafts = {
            1.159,
            30.35,
        }  # of the paper's anonymous draft, which has other recipes
        own = {row.published for row in ROWS.values() if row.task == name}
        assert numbers - drafts <= own, name


@pytest.mark.parametrize("seed", [0, 1, 1111, 2**31 + 5, 2**32 - 1])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_orders_are_tensorflows(seed, count):
    for epoch in (0, 3):
        order = shuffling.order(count, seed, epoch)
        other = datasets.order(count, seed, tf.constant(epoch, "int64"))
        assert_array_equal(order, other)


def test_the_flops_of_products_in_loops():
    import jax

    from trainers.papers.step import product_flops

    def program(x, kernel):
        def turn(state, _):
            return jax.numpy.tanh(state @ kernel), None

        return jax.lax.scan(turn, x, None, length=5)[0].sum()

    x, kernel = np.ones([3, 4], "float32"), np.ones([4, 4], "float32")
    forward = jax.make_jaxpr(program)(x, kernel)
    assert product_flops(forward) == 5 * 2 * 3 * 4 * 4
    backward = jax.make_jaxpr(jax.grad(jax.jit(program), argnums=1))(x, kernel)
    assert product_flops(backward) == 3 * 5 * 2 * 3 * 4 * 4
    convolved = jax.make_jaxpr(
        lambda x, k: jax.lax.conv_general_dilated(
            x, k, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
        )
    )(np.ones([2, 9, 3], "float32"), np.ones([4, 3, 5], "float32"))
    assert product_flops(convolved) == 2 * (2 * 6 * 5) * (4 * 3)
