"""What a run refuses before it begins, and the text that it is bound to."""

import contextlib
import csv
import errno
import functools
import json
import os
import re
import shutil
import signal
import sys
import types

import numpy as np
import pytest
from etils import epath

from tests.refusals import refuses
from tests.trainers.training import stopped_run
from trainers.data.files import read_json
from trainers.language import experiment, exporting, writing
from trainers.studies import search
from trainers.tasks import config as configs
from trainers.tasks import run_folders
from trainers.tasks.run_folders import ExportOptions
from trainers.training import (
    announcing,
    checkpoints,
    resources,
    runs,
    schedules,
    stopping,
    strategies,
)
from trainers.training.trainer import Trainer
from trainers.training.workdir import NotKeptError, WorkdirError, open_workdir

SIZES = dict(
    units=4,
    output_units=4,
    embedding_units=4,
    depth=2,
    auxiliary_every=1,
    dilation_rate=(1,),
)
WITHOUT_DROPOUT = dict.fromkeys(
    ("embedding_dropout", "dropout", "recurrent_dropout", "output_dropout"), 0.0
)


def small_corpus(folder):
    """Texts of 102 tokens: two streams of whole windows, whose steps are traced once."""
    (folder / "corpus").mkdir()
    for name in ("train", "valid", "test"):
        (folder / "corpus" / f"{name}.txt").write_text("a b c d\n" * 20 + "a\n")
    return folder / "corpus"


@pytest.fixture
def corpus(tmp_path):
    return small_corpus(tmp_path)


def small_config():
    loaded = configs.load("text", "small")
    loaded.model.update(SIZES | WITHOUT_DROPOUT)
    loaded.data.update(batch_size=2, window=10, horizon=2, history="zero")
    loaded.evaluation.update(batch_size=2, exact_batch_size=2, exact_chunk=8)
    loaded.training.epochs = 1
    return loaded


@pytest.fixture
def config():
    return small_config()


def train_run(config, path, corpus):
    load = functools.partial(experiment.LanguageExperiment, config, str(corpus))
    runs.train(load, config, epath.Path(path), "none", rules=configs)


@pytest.fixture
def train(config, corpus, own_settings, eagerly, tmp_path, monkeypatch):
    """Trains in this process, whose generators are left as they are."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return lambda: train_run(config, tmp_path / "run", corpus)


def assert_refused(train, config, changes, message):
    """Trains with changed groups of a config, which must end with a line."""
    with config.unlocked():
        for group, values in changes.items():
            config[group].update(values)
    with refuses(message) as error:
        train()
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("group", "values", "named"),
    [
        (
            "optimizer",
            {"name": "adm"},
            "`config.optimizer.name` must be .*Received: .*=.adm",
        ),
        ("schedule", {"factor": 2.0}, "config.schedule.factor"),
        ("data", {"history": "none"}, "config.data.history"),
        ("data", {"horizon": 10}, "config.data.horizon"),
        ("model", {"layer": "rnn"}, "config.model.layer"),
        ("evaluation", {"exact_chunk": 0}, "config.evaluation.exact_chunk=0"),
        (
            "model",
            {"head": "mixed"},
            "`config.model.head` must be one of .*mixture.*adaptive.*Received: .*='mixed'",
        ),
        (
            "model",
            {"mixture": {"experts": 0}},
            "`config.model.mixture.experts`.*experts=0",
        ),
        (
            "model",
            {"units": 3},
            "`config.model.output_units` must be at most config.model.units=3",
        ),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_named_before_the_text_is_read(
    train, config, corpus, tmp_path, group, values, named
):
    shutil.rmtree(corpus)
    assert_refused(train, config, {group: values}, named)
    assert not (tmp_path / "run").exists()


def test_a_run_may_leave_the_test_text_unread(
    config, corpus, own_settings, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    load = functools.partial(experiment.LanguageExperiment, config, str(corpus))
    runs.train(
        load,
        config,
        epath.Path(tmp_path / "run"),
        "none",
        rules=configs,
        splits=("validation",),
    )
    assert list(read_json(tmp_path / "run" / "result.json")["scores"]) == ["validation"]


@pytest.mark.parametrize(
    ("group", "values", "named"),
    [
        (
            "data",
            {"batch_size": 800},
            r"the training text \(.*train.txt\) holds 102 tokens, 0 in each of "
            "config.data.batch_size=800 streams; .*at least 11 .* config.data.window=10: "
            "use --config.data.batch_size=9, or give more text",
        ),
        (
            "data",
            {"window": 60},
            "51 in each of config.data.batch_size=2 streams; .*at least 61 .*: use "
            "--config.data.batch_size=1 or --config.data.window=50, or give more text",
        ),
        ("data", {"window": 200}, ": use --config.data.window=50, or give more text"),
        (
            "data",
            {"window": 200, "horizon": 150},
            "config.data.window=200: give more text",
        ),
        (
            "model",
            {"head": "adaptive", "adaptive": {"cutoffs": (2, 9)}},
            r"`config.model.adaptive.cutoffs` must be below the vocabulary's size, 6. .*\(2, 9\)",
        ),
        (
            "model",
            {"untrained_input_id": 6},
            "`config.model.untrained_input_id` must be from -6 to 5, .* size, 6. .*id=6",
        ),
    ],
)
def test_what_does_not_suit_the_text_is_told_before_the_model_is_built(
    train, config, tmp_path, monkeypatch, group, values, named
):
    monkeypatch.setattr(experiment.models, "TrellisLM", None)
    assert_refused(train, config, {group: values}, named)
    assert not (tmp_path / "run").exists()


def test_a_batch_that_replicas_cannot_share_is_told_before_the_model_is_built(
    train, config, tmp_path, monkeypatch
):
    class ThreeReplicas:
        num_replicas_in_sync = 3

    monkeypatch.setattr(strategies, "get_strategy", lambda *_: ThreeReplicas())
    with refuses("`config.data.batch_size` must be .* the 3 devices.*=2"):
        train()
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_fit_is_told_before_it_is_built(
    train, config, tmp_path, monkeypatch
):
    room = resources.Room(1, "cgroup limit")
    monkeypatch.setattr(resources, "room", lambda: room)
    monkeypatch.setattr(experiment.models, "build", None)
    with refuses("takes about 0.3 GiB of memory, .* .cgroup limit.;"):
        train()
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_workdir(tmp_path / "run", config.to_dict()):
        (tmp_path / "run" / "vocabulary.txt").write_text("<eos>\na\n")
    monkeypatch.setattr(resources, "room", lambda: room)
    monkeypatch.setattr(experiment.models, "build", None)
    with refuses("parameters is read in .* .cgroup limit"):
        experiment.load_trained(epath.Path(tmp_path / "run"))


@pytest.mark.parametrize(
    ("file", "named"),
    [
        (
            "valid",
            "the validation text .*valid.txt. holds 5 tokens; expected at least 8, 4",
        ),
        (
            "test",
            "the test text .*test.txt. .*: use --config.evaluation.batch_size=1, or give",
        ),
    ],
)
def test_evaluation_text_that_is_too_short_is_told_before_training(
    train, corpus, tmp_path, file, named
):
    (corpus / f"{file}.txt").write_text("a b c d\n")
    with refuses(named):
        train()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [
        (experiment.corpora, "load", signal.SIGINT),
        (experiment.models, "build", signal.SIGTERM),
        (experiment.evaluation.Evaluator, "exact", signal.SIGHUP),
    ],
)
def test_a_signal_outside_the_steps_ends_the_run_where_it_is(
    train, tmp_path, capfd, monkeypatch, owner, name, number
):
    """While loading, while building, and in the final evaluation."""
    original, ended = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        signal.raise_signal(number)
        ended.append(name)

    with monkeypatch.context() as patch, listening():
        patch.setattr(owner, name, interrupted)
        with pytest.raises(stopping.StoppedError) as stopped:
            train()
    assert stopped.value.code == 128 + number
    assert capfd.readouterr().err == f"stopped by {number.name}\n"
    assert not ended and not (tmp_path / "run" / "result.json").exists()
    if owner is experiment.evaluation.Evaluator:
        train()
        assert "best of epoch 1: validation perplexity" in capfd.readouterr().out
    assert getattr(owner, name) is original


@contextlib.contextmanager
def listening():
    """As a command listens; then as before."""
    former = {number: signal.getsignal(number) for number in stopping.NUMBERS}
    hook = sys.unraisablehook
    for number in stopping.NUMBERS:  # in the background some would be ignored
        signal.signal(number, signal.SIG_DFL)
    stopping.listen()
    try:
        yield
    finally:
        stopping.listen()  # forgets what has come
        sys.unraisablehook = hook
        for number, handler in former.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_was_stopped_has_the_status_of_the_signal(
    train, monkeypatch, capfd, number
):
    steps = Trainer.steps

    def interrupted(*args):
        signal.raise_signal(number)
        return steps(*args)

    with monkeypatch.context() as patch, listening():
        patch.setattr(Trainer, "steps", interrupted)
        with pytest.raises(stopping.StoppedError) as stopped:
            train()
    assert stopped.value.code == 128 + number
    output = capfd.readouterr()
    line = (
        f"stopped by {number.name} after step 1; the same command goes on from step 1"
    )
    assert (output.out.splitlines()[-1], output.err) == (line, "")


@pytest.fixture
def introduction(train, monkeypatch, capsys):
    """Returns what a run prints before its first step."""

    class BegunError(Exception):
        pass

    def begin(*args):
        raise BegunError

    def introduced():
        monkeypatch.setattr(Trainer, "steps", begin)
        with pytest.raises(BegunError):
            train()
        return capsys.readouterr().out

    return introduced


def choose_layer(config, layer):
    config.update(search.apply(config, {"model.layer": layer}).to_dict())


@pytest.mark.parametrize(("layer", "told"), [("trellis", False), ("gru", True)])
def test_a_layer_that_xla_may_slow_is_told_before_training(
    introduction, config, layer, told
):
    choose_layer(config, layer)
    config.training.jit_compile = True
    advice = "try --config.training.jit_compile=False"
    assert (advice in introduction()) == told


@pytest.mark.parametrize(
    ("dtype", "slowdown", "told"),
    [
        ("mixed_bfloat16", 3.3, True),
        ("mixed_bfloat16", 0.5, False),
        ("float32", 3.3, False),
    ],
)
def test_a_precision_that_is_slow_here_is_told_before_training(
    introduction, config, monkeypatch, dtype, slowdown, told
):
    monkeypatch.setattr(announcing, "slowdown", lambda: slowdown)
    config.model.dtype = dtype
    advice = "take 3.3 times as long as in float32 on this processor"
    assert (advice in introduction()) == told


@pytest.mark.parametrize(
    ("layer", "network"), [("trellis", "trellis network"), ("gru", "GRU")]
)
def test_the_first_line_names_the_network(introduction, config, layer, network):
    choose_layer(config, layer)
    first = introduction().splitlines()[0]
    assert re.fullmatch(rf"{network}: .* of \d+ units; [\d,]+ parameters", first)


def test_fewer_levels_are_told_before_training(introduction, config):
    config.training.update(steps=9, depths=(1, 2))
    told = "the run has 3 equal parts: they train at most 1, 2 levels, the last one all"
    assert told in introduction().splitlines()


def test_a_model_that_may_not_fit_is_trained_with_a_warning(introduction, monkeypatch):
    warning = "warning: it may be too large"
    monkeypatch.setattr(announcing.memory, "check_training", lambda *_: warning)
    assert warning in introduction().splitlines()


def test_a_run_in_bfloat16_with_a_head_goes_on_as_if_it_had_never_stopped(
    train, config, tmp_path, capsys, monkeypatch
):
    build = experiment.models.build

    def build_the_same(*arguments):
        model = build(*arguments)
        generator = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(generator.normal(0, 0.3, variable.shape))
        return model

    def last_checkpoint():
        with np.load(
            max((tmp_path / "run" / "checkpoints").glob("step-*.npz"))
        ) as file:
            return {name: file[name] for name in file.files}

    monkeypatch.setattr(experiment.models, "build", build_the_same)
    mixture = dict(experts=2, latent_dropout=0.3, epsilon=1e-8)
    config.model.update(dict.fromkeys(WITHOUT_DROPOUT, 0.3))
    config.model.update(dtype="mixed_bfloat16", head="mixture", mixture=mixture)
    config.data.update(horizon=0, history="carried")  # a checkpoint keeps the state too
    results = []
    for epochs_of_each_call in ([2], [1, 2]):
        for epochs in epochs_of_each_call:
            config.training.epochs = epochs
            train()
        results.append((capsys.readouterr().out.splitlines()[-1], last_checkpoint()))
        shutil.rmtree(tmp_path / "run")
    (summary, expected), (resumed, actual) = results
    assert re.search(
        r"exact [\d.]+ \(\d+ tokens\), .*trellisnet [\d.]+ \(\d+ tokens\)", summary
    )
    assert resumed == summary and actual.keys() == expected.keys()
    for name in expected.keys() - {"cost/seconds", "cost/peak_bytes", "run_id"}:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


def test_a_run_that_an_earlier_version_left_goes_on_as_if_it_had_never_stopped(
    own_settings, tmp_path, monkeypatch, capsys
):
    shutil.copytree(stopped_run.FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    run, corpus = tmp_path / stopped_run.RUN, tmp_path / stopped_run.CORPUS
    recipe = stopped_run.named(run)  # the preset `small` is another network by now
    assert recipe.to_dict() == stopped_run.config().to_dict()
    stopped_run.train(run, corpus, recipe)
    assert "going on from step 19" in capsys.readouterr().out
    actual = stopped_run.arrays(run)
    with np.load(tmp_path / stopped_run.EXPECTED) as expected:
        assert actual.keys() - {"solved"} == {*expected.files}
        for name in expected.files:
            np.testing.assert_allclose(
                actual[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name
            )


@pytest.fixture
def disk(monkeypatch):
    """Says of arrays whether they can be written: all, unless a test has it otherwise."""
    write, disk = np.savez, types.SimpleNamespace(full=lambda arrays: False)

    def savez(file, **arrays):
        if disk.full(arrays):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, **arrays)

    monkeypatch.setattr(np, "savez", savez)
    return disk


def last_line(capsys):
    return capsys.readouterr().out.splitlines()[-1]


def best_or_last(arrays):
    return "epoch" in arrays or len(arrays["losses"])


def last(arrays):
    return "losses" in arrays and len(arrays["losses"])


@pytest.mark.parametrize("full", [best_or_last, last])
def test_a_disk_that_stays_full_ends_no_run(train, tmp_path, capsys, disk, full):
    disk.full = full
    with refuses("the checkpoint of step .*/checkpoints .*No space left", NotKeptError):
        train()
    (summary,) = re.findall(
        r"^best of epoch 1: .*", capsys.readouterr().out, re.MULTILINE
    )
    assert not (tmp_path / "run" / "result.json").exists()
    disk.full = lambda arrays: False
    train()
    assert last_line(capsys) == summary
    assert read_json(tmp_path / "run" / "result.json")["summary"] == summary


def test_room_that_is_made_while_the_run_is_scored_is_used(
    train, tmp_path, capsys, disk, monkeypatch
):
    score = experiment.evaluation.Evaluator.score

    def making_room(*args):
        disk.full = lambda arrays: False
        return score(*args)

    monkeypatch.setattr(experiment.evaluation.Evaluator, "score", making_room)
    disk.full = best_or_last
    train()
    summary = last_line(capsys)
    assert summary.startswith("best of epoch 1: validation perplexity: exact ")
    train()
    assert last_line(capsys) == summary
    assert (tmp_path / "run" / "checkpoints" / "best.npz").exists()


def test_a_result_that_cannot_be_written_is_scored_again(
    train, tmp_path, capsys, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(runs.Workdir, "finish", full)
        with refuses("result is not kept in .*/run .*No space left", NotKeptError):
            train()
    summary = last_line(capsys)
    train()
    assert last_line(capsys) == summary
    assert read_json(tmp_path / "run" / "result.json")["summary"] == summary


def test_best_weights_that_are_lost_are_not_scored_as_the_best(
    train, config, tmp_path, capsys
):
    config.training.epochs = 2
    evaluations = iter([1.0, 2.0])
    task = experiment.modeling.LanguageModeling
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "evaluate", lambda self: {"loss": next(evaluations)})
        patch.setattr(experiment.LanguageExperiment, "score", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train()
    best = tmp_path / "run" / "checkpoints" / "best.npz"
    best.unlink()
    train()
    assert last_line(capsys).startswith(
        "last of epoch 2: validation perplexity: exact "
    )
    assert checkpoints.load_arrays(best)["epoch"] == 2


def test_a_finished_run_whose_files_are_lost_says_so(train, finished, capsys):
    folder = finished / "checkpoints"
    for path in folder.glob("step-*"):
        path.unlink()
    train()
    assert f"finished run; no checkpoint in {folder} is left" in capsys.readouterr().out
    (folder / "step-00000009.npz").write_bytes(b"no archive")
    train()
    assert (
        f"finished run; no checkpoint in {folder} can be read"
        in capsys.readouterr().out
    )
    content = (folder / "best.npz").read_bytes()
    (folder / "best.npz").write_bytes(content[:-1])
    with refuses("not its trained weights: .*best.npz cannot be read", WorkdirError):
        train()
    assert (folder / "best.npz").read_bytes() == content[:-1]
    (folder / "best.npz").unlink()
    with refuses("not its trained weights: .*best.npz is missing", WorkdirError):
        train()
    assert "perplexity" not in capsys.readouterr().out


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_large_presets_train_and_ask_for_a_gpu(
    preset, corpus, own_settings, tmp_path, monkeypatch, capsys
):
    """Every term of the loss is on, whatever the sizes; those of `text` are those of `ptb`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    config = configs.load("text", preset)
    config.model.update(
        units=6, output_units=4, embedding_units=4, depth=4, auxiliary_every=2
    )
    config.data.update(batch_size=2, window=50, horizon=4)
    config.evaluation.update(batch_size=2, exact_chunk=32)
    config.training.update(epochs=1, log_every_steps=1)
    train_run(config, tmp_path / "run", corpus)
    output = capsys.readouterr().out
    assert (
        f"the preset {preset} is made for one; --preset=small is made for a CPU"
        in output
    )
    (row,) = csv.DictReader(
        (tmp_path / "run" / "metrics.csv").read_text().splitlines()[:2]
    )
    for term in ("prediction", "auxiliary", "activation", "temporal"):
        assert float(row[term]) > 0


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished_run(own_settings, tmp_path_factory):
    """The folder of a run of one epoch, trained once."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        text = small_corpus(folder)
        train_run(small_config(), folder / "run", text)
    return folder / "run"


@pytest.fixture
def finished(finished_run, tmp_path):
    """A copy of it, where `train` goes on."""
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.mark.parametrize(
    ("group", "field", "value", "message"),
    [
        (
            "training",
            "epochs",
            0,
            "`config.training.epochs` must be an integer of at least 1",
        ),
        (
            "optimizer",
            "learning_rate",
            0.5,
            "a finished run, in which `config.optimizer.learning_rate` can change nothing any more",
        ),
        (
            "training",
            "log_every_steps",
            7,
            "`config.training.log_every_steps` can change nothing",
        ),
        ("model", "depth", 3, "another run.*model.depth: 2 there, 3 here"),
    ],
)
def test_a_finished_run_stays_as_it_is(
    train, config, finished, group, field, value, message
):
    before = files(finished)
    config[group][field] = value
    with refuses(message, (WorkdirError, ValueError)) as error:
        train()
    assert len(str(error.value).splitlines()) == 1
    assert files(finished) == before


def test_another_recipe_is_refused_before_the_text_is_read(
    train, config, corpus, finished
):
    shutil.rmtree(corpus)
    config.model.depth = 3
    with refuses("another run", WorkdirError):
        train()


def test_epochs_that_are_done_stay_done(train, config, finished, capsys):
    """Of a run that was to go on for more, and has done some of them or has not."""
    summary = read_json(finished / "result.json")["summary"]
    values = read_json(finished / "config.json")
    values["training"]["epochs"] = 4  # as if it had been stopped at once
    (finished / "config.json").write_text(json.dumps(values))
    train()
    assert capsys.readouterr().out.splitlines()[-1] == summary
    kept = read_json(finished / "changes.json")["changes"]
    assert [(each["field"], each["was"], each["now"]) for each in kept] == [
        ("training.epochs", 4, 1)
    ]
    result = read_json(finished / "result.json")
    (finished / "result.json").write_text(json.dumps({**result, "epochs": 2}))
    values["training"]["epochs"] = 2
    (finished / "config.json").write_text(json.dumps(values))
    (finished / "changes.json").unlink()
    before = files(finished)
    with refuses("has done 2 epochs.* `config.training.epochs` .* 2.*=1", WorkdirError):
        train()
    assert files(finished) == before


def test_a_rate_that_is_lowered_after_a_loss_that_is_not_finite(
    train, config, finished, capsys
):
    """As the message advises."""
    config.training.epochs = 2
    config.optimizer.learning_rate = 1e38
    with pytest.raises(runs.loop.NonFiniteLossError):
        train()
    config.optimizer.learning_rate = 1e-3
    capsys.readouterr()
    train()
    output = capsys.readouterr().out
    assert "going on from step 6, epoch 2\n" in output
    assert "`config.optimizer.learning_rate`: 1e+38 -> 0.001 from step 6 on\n" in output
    assert "best of epoch" in output
    kept = read_json(finished / "config.json")
    assert kept["optimizer"] == config.optimizer.to_dict()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dropout", "much", "`config.model.dropout` must be a number in .*'much'"),
        ("depht", 3, "unknown config field 'model.depht'; did you mean 'model.depth'"),
        (
            "output_units",
            5,
            "`config.model.output_units` must be at most config.model.units=4",
        ),
    ],
)
def test_a_config_that_was_edited_is_named(config, tmp_path, field, value, message):
    values = json.loads(json.dumps(config.to_dict()))
    values["model"][field] = value
    (tmp_path / "config.json").write_text(json.dumps(values))
    with refuses(f"{tmp_path}/config.json: {message}", WorkdirError) as error:
        run_folders.load_config(epath.Path(tmp_path))
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_in_which_a_run_is_at_work_is_refused(train, config, tmp_path):
    with open_workdir(tmp_path / "run", config.to_dict()):
        with refuses(f"another run .process {os.getpid()}. is at work", WorkdirError):
            train()


def evaluate(folder, corpus):
    """Scores a run by one protocol."""
    config = run_folders.load_config(folder)
    loaded = experiment.load(config, str(corpus), folder)
    loaded.evaluate(folder, protocols=("exact",))


def test_a_run_is_bound_to_its_text(train, corpus, finished, capsys):
    folder = epath.Path(finished)
    kept = read_json(folder / "corpus.json")
    assert set(kept["sha256"]) == {"train", "validation", "test"}
    same_words = (corpus / "valid.txt").read_text().replace("a b", "b a")
    (corpus / "valid.txt").write_text(same_words)
    for use in (train, lambda: evaluate(folder, corpus)):
        with refuses(r"on another text \(validation\)", WorkdirError):
            use()
    (folder / "corpus.json").unlink()  # as runs were before it was kept
    evaluate(folder, corpus)
    assert not (folder / "corpus.json").exists()
    train()
    assert "holds a finished run" in capsys.readouterr().out
    assert read_json(folder / "corpus.json") != kept
    (folder / "corpus.json").unlink()
    (corpus / "train.txt").write_text("a b c d e\n" * 20)
    with refuses(r"on another text \(train\)", WorkdirError):
        train()


def test_a_damaged_result_is_set_aside_and_scored_again(train, finished, capsys):
    file = finished / "result.json"
    before = json.loads(file.read_text())
    summary = before["summary"]
    content = file.read_bytes()[:-20]
    file.write_bytes(content)
    train()
    told = capsys.readouterr().out
    assert f"{file} is damaged: it is cut off; " in told and summary in told
    assert json.loads(file.read_text())["scores"] == before["scores"]
    assert (finished / "result.json.unreadable").read_bytes() == content


def _replace(old, new):
    return lambda content: content.replace(old, new, 1)


DAMAGES = [
    ("config.json", lambda content: b"", "it is empty"),
    ("config.json", lambda content: content[:-9], "it is cut off"),
    ("corpus.json", lambda content: b"", "it is empty"),
    ("corpus.json", lambda content: b"[]", "it holds a list, not fields"),
    ("corpus.json", _replace(b"sha256", b"sha1"), "it lacks `sha256`"),
    ("corpus.json", _replace(b'"tokens"', b'"uokens"'), "do not fit its `checksum`"),
    (
        "corpus.json",
        lambda content: b'{"sha256": {}, "unknown": {}}',
        "it lacks `unknown.test`",
    ),
    ("vocabulary.txt", lambda content: b"", "it is empty"),
    ("vocabulary.txt", lambda content: content[:-1], "its last line is cut off"),
    ("vocabulary.txt", lambda content: b"\xef\xbb\xbf" + content, "byte-order mark"),
    ("vocabulary.txt", _replace(b"\n", b"\r\n"), "checksum"),
    (
        "vocabulary.txt",
        lambda content: content.replace(b"\n", b"\r\n"),
        "carriage returns",
    ),
    ("vocabulary.txt", _replace(b"a\n", b"b\n"), "a second time"),
    ("vocabulary.txt", _replace(b"a\n", b"A\n"), "its checksum is not the run's"),
    ("vocabulary.txt", _replace(b"a\n", b""), "its checksum is not the run's"),
    ("vocabulary.txt", _replace(b"a\n", b"\xff\n"), "byte 0xff in line "),
    ("vocabulary.txt", _replace(b"a\n", b"\n"), "non-empty word"),
]


def test_a_damaged_file_of_a_run_is_named_by_all_that_need_it(
    train, corpus, finished, tmp_path
):
    """And left as it is: what the weights go with cannot be made again."""
    folder = epath.Path(finished)
    uses = [
        train,
        lambda: evaluate(folder, corpus),
        lambda: writing.generate(folder, "a", 5),
        lambda: exporting.export(folder, ExportOptions(str(tmp_path / "served"))),
    ]
    for name, damage, problem in DAMAGES:
        file = folder / name
        whole = file.read_bytes()
        content = damage(whole)
        assert content != whole
        file.write_bytes(content)
        needed = [uses[0], uses[1], uses[3]] if name == "corpus.json" else uses
        for use in needed:
            with pytest.raises(WorkdirError) as error:
                use()
            message = str(error.value)
            assert message.startswith(f"{file} is damaged: ") and problem in message
            assert "\n" not in message and "Bring it back from a backup" in message
        assert file.read_bytes() == content
        file.write_bytes(whole)
    assert not (tmp_path / "served").exists()


def test_a_result_of_other_content_is_named_by_an_export(finished, tmp_path):
    folder = epath.Path(finished)
    file = folder / "result.json"
    for content in (
        b"",
        b'{"epochs": 1, "summary": "", "scores": {"test": {"exact": {}}}}',
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError) as error:
            exporting.export(folder, ExportOptions(str(tmp_path / "served")))
        assert str(error.value).startswith(f"{file} is damaged: ")


def test_a_rate_falls_along_a_cosine_where_no_rule_ends_the_run():
    config = configs.load("csv", "small")
    config.training.steps = 30
    assert schedules.cosine_steps(config) == 0
    config.schedule.stop_after = None
    assert schedules.cosine_steps(config) == 30
