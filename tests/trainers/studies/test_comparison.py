"""A comparison: equal sizes, the order of the runs, what is refused, and that it goes on."""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import math
import os
from pathlib import Path

import pytest
from etils import epath

from tests import ROOT
from tests.refusals import refuses
from trainers.data.files import read_json, write_json
from trainers.images.tasks import ACCURACY, ImageTask
from trainers.kinds.search import CHARACTERS, Uniform
from trainers.language import models as language_models
from trainers.language.tasks.task import LanguageTask
from trainers.models.layers import TRELLIS
from trainers.sequences import models as sequence_models
from trainers.studies import (
    comparison,
    comparison_report,
    places,
    search,
    streaming,
    study,
)
from trainers.studies.comparison import MODELS, Model, Settings
from trainers.studies.comparison_report import RunResult
from trainers.synthetic.tasks import SQUARED_ERROR, AlgorithmTask
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.time_series.tasks import SeriesTask
from trainers.training import hold, schedules
from trainers.training.workdir import WorkdirError, read_config, read_result

SETTINGS = Settings(
    tasks=["adding"],
    models=["trellis", "gru"],
    seeds=2,
    seconds=[1.0],
    preset="small",
    parameters=None,
    trials=0,
    validations=5,
    threads=1,
    data_dir=None,
    given={},
)


def tiny(model, task="adding"):
    config = comparison.starting_config(SETTINGS, task, model)
    config.unlock()
    config.model.update(units=6)
    if model != "gru":  # which has none of these
        config.model.update(depth=2, kernel_size=2, dilation_rate=(1, 2))
    config.data.update(steps=6, batch_size=8, train=64, validation=8, test=8)
    config.training.jit_compile = False
    return config.lock()


GIVEN = {("adding", name): tiny(name) for name in ("trellis", "gru")}
SIZED = SETTINGS._replace(given=GIVEN, parameters=679)


def models_of(task):
    """Returns the models that a task has settings for: a single layer has none above it."""
    kinds = {"skip_lstm": LanguageTask, "sru": (ImageTask, SeriesTask)}
    return [
        name
        for name in MODELS
        if isinstance(registry.get(task), kinds.get(name, object))
    ]


CASES = [(task, model) for task in registry.TASKS for model in models_of(task)]


@pytest.mark.parametrize("task, model", CASES)
def test_every_model_has_settings_for_every_task(task, model):
    config = comparison.starting_config(SETTINGS, task, model)
    schema.check(config)
    search.check(config, search.space(config))
    layers = TRELLIS if model == comparison.FIRST else (model,)
    assert config.model.layer in layers
    assert {comparison.FIRST, *registry.get(task).baselines} == set(models_of(task))


@pytest.mark.parametrize(
    "kind, model",
    [
        case
        for case in CASES
        if case[0] in ("text", "ptb_char", "seq_mnist", "addition")
    ],
)
def test_a_new_task_has_the_settings_of_the_task_that_it_is_made_of(
    monkeypatch, kind, model
):
    task = dataclasses.replace(registry.get(kind), name="mine")
    monkeypatch.setitem(registry.TASKS, "mine", task)
    config = comparison.starting_config(SETTINGS, "mine", model)
    expected = comparison.starting_config(SETTINGS, kind, model)
    assert config.to_dict() == expected.to_dict() | {"task": "mine"}


@pytest.mark.parametrize(
    "kind, some",
    [
        (LanguageTask, "text"),
        (ImageTask, "seq_mnist"),
        (AlgorithmTask, "addition"),
        (SeriesTask, "watch"),
    ],
)
def test_a_kind_of_task_has_settings(kind, some):
    known = registry.get(some)
    given = {
        field.name: getattr(known, field.name)
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    assert kind(**given).baselines == known.baselines


def test_a_task_without_settings_for_a_model_is_refused_before_anything_is_loaded(
    own_settings, monkeypatch, tmp_path
):
    task = dataclasses.replace(registry.get("adding"), name="mine", baselines={})
    monkeypatch.setitem(registry.TASKS, "mine", task)
    settings = SETTINGS._replace(tasks=["mine"])
    message = "--models=gru has no settings to begin with on --task=mine, .* by --config_files"
    with refuses(message):
        comparison.compare(epath.Path(tmp_path), settings)
    given = search.apply(tiny("gru"), {"task": "mine"})
    settings = settings._replace(given={("mine", "gru"): given})
    assert comparison.starting_config(settings, "mine", "gru") == given


def counter(task):
    """Returns what counts the parameters of a config of a task."""
    if isinstance(registry.get(task), LanguageTask):
        symbols = 50 if registry.get(task).search is CHARACTERS else 10_000
        return lambda config: language_models.parameters(config, symbols)
    return lambda config: sequence_models.parameters(config, 2, 10)


# The first task of each search space.
SPACES = {id(registry.get(task).search): task for task, _ in reversed(CASES)}


@pytest.mark.parametrize(
    "task, model", [case for case in CASES if case[0] in SPACES.values()]
)
def test_each_value_of_a_space_can_have_the_parameters_of_the_preset(task, model):
    count = counter(task)
    size = count(configs.load(task, SETTINGS.preset))
    config = search.sized(
        comparison.starting_config(SETTINGS, task, model), size, count
    )
    space = search.space(config)
    # Neither real numbers nor what is no part of a model changes a size.
    whole = {
        name: each for name, each in space.items() if not isinstance(each, Uniform)
    }
    for values in search.single(whole):
        if any(name.startswith("model.") for name in values):
            sized = search.sized(search.apply(config, values), size, count)
            assert abs(count(sized) / size - 1) < 0.1


@pytest.mark.parametrize(
    "task, models, count",
    [
        (
            "ptb",
            models_of("ptb"),
            lambda config: language_models.parameters(config, 10_000),
        ),
        (
            "ptb_char",
            models_of("ptb_char"),
            lambda config: language_models.parameters(config, 50),
        ),
        (
            "permuted_mnist",
            MODELS[:4],
            lambda config: sequence_models.parameters(config, 1, 10),
        ),
    ],
)
@pytest.mark.parametrize("parameters", [None, 3_000_000])
def test_all_models_get_as_many_parameters(task, models, count, parameters):
    starts = {name: comparison.starting_config(SETTINGS, task, name) for name in models}
    number, sized = comparison.equal(starts, count, parameters)
    own = count(starts["trellis"])
    assert number == parameters or abs(number / own - 1) <= 0.02
    for config in sized.values():
        assert abs(count(config) / number - 1) <= comparison.TOLERANCE
    assert (sized["trellis"] == starts["trellis"]) == (parameters is None)


def test_a_number_that_suits_all_is_found_beside_the_first_model_s():
    """At 10,105 an LSTM of 49 units is 1.4 % off; from 10,141 on, all are within 1 %."""
    starts = {
        name: comparison.starting_config(SETTINGS, "adding", name)
        for name in MODELS[:4]
    }
    count = lambda config: sequence_models.parameters(config, 2, 1)  # noqa: E731
    number, sized = comparison.equal(starts, count, None)
    assert number == 10_141 and count(starts["trellis"]) == 10_105
    assert [count(config) for config in sized.values()] == [
        10_105,
        10_242,
        10_137,
        10_045,
    ]


@pytest.mark.parametrize("task", ["watch", "anomaly"])
def test_layers_of_recordings_get_as_many_parameters(task):
    names = ("trellis", "lstm", "gru", "tcn", "sru")
    starts = {name: comparison.starting_config(SETTINGS, task, name) for name in names}
    shape = registry.get(task).shape(starts["trellis"])
    count = lambda config: sequence_models.parameters(config, *shape)  # noqa: E731
    _, sized = comparison.equal(starts, count, None)
    sizes = [count(config) for config in sized.values()]
    assert max(sizes) / min(sizes) - 1 <= 2.1 * comparison.TOLERANCE


def test_settings_of_the_user_come_as_near_as_their_units_allow():
    starts = {
        name: comparison.starting_config(SETTINGS, "adding", name)
        for name in ("trellis", "tcn")
    }
    count = lambda config: sequence_models.parameters(config, 2, 1)  # noqa: E731
    _, sized = comparison.equal(starts, count, 11_000, given=("trellis", "tcn"))
    assert sized["tcn"].model.units == 9


def test_a_layer_beside_a_trellis_network_has_what_was_changed_of_its_preset():
    preset = configs.load("permuted_mnist", "small")
    changed = search.apply(preset, {"data.batch_size": 7, "model.output_dropout": 0.3})
    config = comparison.beside(changed, "lstm")
    assert (config.data.batch_size, config.model.output_dropout) == (7, 0.3)
    assert (config.model.layer, config.model.recurrent_dropout) == ("lstm", 0.0)
    assert comparison.beside(changed, "tcn").model.recurrent_dropout == 0.15


# Runs, without training


@pytest.fixture
def planned(own_settings, monkeypatch):
    """A comparison whose models are not measured, and whose runs are written down alone."""
    begun = []

    def measured(task, starts):
        return {name: Model(config, 50, [0.5], 0.25) for name, config in starts.items()}

    def train(line, log, threads):
        workdir = next(each for each in line if each.startswith("--workdir="))
        folder = epath.Path(workdir.removeprefix("--workdir="))
        begun.append("/".join(folder.parts[-3:]))
        folder.mkdir(parents=True)
        result = {"scores": {"test": {"exact": {"squared_error": 0.1 * len(begun)}}}}
        (folder / "result.json").write_text(json.dumps(result))
        return 0

    monkeypatch.setattr(comparison._Task, "measured", measured)
    monkeypatch.setattr(comparison, "_train", train)
    return begun


def test_all_models_run_with_one_seed_before_the_next(pictures, planned, tmp_path):
    path, settings = epath.Path(tmp_path / "c"), SIZED
    comparison.compare(path, settings)
    assert planned == [
        "adding/trellis/0",
        "adding/gru/0",
        "adding/trellis/1",
        "adding/gru/1",
    ]
    planned.clear()
    (path / "adding/gru/0/result.json").unlink()
    (path / "adding/gru/0").rmdir()
    plans, status = comparison.compare(path, settings._replace(seeds=3))
    assert status == 0
    assert planned == ["adding/gru/0", "adding/trellis/2", "adding/gru/2"]
    assert plans["adding"]["gru"].step_seconds == [0.5]
    text = comparison_report.write(path, settings, plans, "the command")
    assert "| adding: squared_error | gru |" in text and "2 of 2" in text
    assert "the command" in (path / "comparison.md").read_text()
    assert (path / "comparison.png").stat().length > 1_000


def test_a_run_of_another_process_is_left_to_it_and_waited_for(
    planned, tmp_path, monkeypatch, capsys
):
    path = epath.Path(tmp_path)
    with contextlib.ExitStack() as other:
        other.enter_context(places.lock(path / "adding/gru/.0.lock"))

        def finish(_):
            (path / "adding/gru/0").mkdir()
            (path / "adding/gru/0/result.json").write_text("{}")
            other.close()

        monkeypatch.setattr(comparison.time, "sleep", finish)
        _, status = comparison.compare(path, SIZED)
    assert planned == ["adding/trellis/0", "adding/trellis/1", "adding/gru/1"]
    assert status == 0 and "other processes train 1 runs; waiting" in (
        capsys.readouterr().out
    )


def test_a_run_whose_comparison_is_gone_is_waited_for(
    planned, tmp_path, monkeypatch, capsys
):
    path = epath.Path(tmp_path)
    folder = path / "adding/trellis/0"
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as orphan:
        orphan.enter_context(hold.held(folder))

        def finish(_):
            (folder / "result.json").write_text("{}")
            orphan.close()

        monkeypatch.setattr(comparison.time, "sleep", finish)
        comparison.compare(path, SIZED)
    assert "adding/trellis/0" not in planned and len(planned) == 3
    assert f"process {os.getpid()} is at work in {folder}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"seconds": [2.0]},
            "holds a comparison with another --seconds: 1.0 there, 2.0 here",
        ),
        ({"models": ["gru"]}, r"another --models: \['trellis', 'gru'\] there"),
        ({"trials": 3}, "another --trials: 0 there, 3 here"),
        ({"validations": 6}, "another --validations: 5 there, 6 here"),
        ({"patience": 3}, "another --patience: None there, 3 here"),
        ({"given": {}}, "another --config_files"),
    ],
)
def test_another_comparison_in_the_folder_is_refused(
    planned, tmp_path, changed, message
):
    path, settings = epath.Path(tmp_path), SIZED
    comparison.compare(path, settings)
    planned.clear()
    with refuses(message, WorkdirError):
        comparison.compare(path, settings._replace(**changed))
    assert not planned


def test_a_comparison_of_an_earlier_release_goes_on(planned, tmp_path):
    """Its files have values that nothing reads, in the plan and beside the runs."""
    path = epath.Path(tmp_path)
    settings = SIZED
    comparison.compare(path, settings)
    plan = read_json(path / "adding" / "plan.json")
    for config in (
        plan["record"]["config_files"]["gru"],
        plan["models"]["gru"]["config"],
    ):
        config["model"]["depth"] = 7
    write_json(path / "adding" / "plan.json", plan)
    write_json(path / "adding/gru/config.json", plan["models"]["gru"]["config"])
    (path / "adding/gru/1").rmtree()
    planned.clear()
    former = search.apply(GIVEN["adding", "gru"], {}).unlock()
    former.model.depth = 7
    comparison.compare(
        path, settings._replace(given={**GIVEN, ("adding", "gru"): former})
    )
    assert planned == ["adding/gru/1"]
    schema.check(configs.read(path / "adding/gru/config.json"))


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 11, 12])
@pytest.mark.parametrize("took", [[0.5], [1.0, 10.0, 100.0]])
def test_the_seconds_of_a_step_are_those_of_its_stage(steps, took):
    config = search.apply(
        tiny("trellis"), {"training.steps": steps, "training.epochs": 1}
    )
    model = Model(config, 50, took, 0.25)
    plan = schedules.Plan(1, steps, 9, 9, None, took)
    seconds = [took[plan.stage(step)] for step in range(steps)]
    expected = [0.0, *itertools.accumulate(seconds)]
    assert [model.seconds(step) for step in range(steps + 1)] == pytest.approx(expected)


def test_a_damaged_plan_is_told(planned, tmp_path):
    path, settings = epath.Path(tmp_path), SIZED
    comparison.compare(path, settings)
    plan = json.loads((path / "adding/plan.json").read_text())
    del plan["checksum"], plan["models"]["gru"]["config"]
    (path / "adding/plan.json").write_text(json.dumps(plan))
    with refuses("plan.json is damaged.*choose another --output", WorkdirError):
        comparison.compare(path, settings)


def test_a_run_that_fails_ends_the_comparison_and_one_that_diverges_does_not(
    planned, tmp_path, monkeypatch
):
    path, settings = epath.Path(tmp_path), SIZED
    monkeypatch.setattr(comparison, "_train", lambda *_: 3)
    plans, status = comparison.compare(path, settings)
    assert status == 3
    assert "0 of 2" in comparison_report.write(path, settings, plans, "")
    monkeypatch.setattr(comparison, "_train", lambda *_: 143)
    with refuses("exit status 143.*the same command goes on", WorkdirError):
        comparison.compare(path, settings)


def test_each_model_is_tuned_by_as_many_trials(planned, tmp_path, monkeypatch):
    tuned = []

    def tune(place, shared, limits):
        tuned.append((place.name, shared.parameters, shared.seconds, limits.trials))
        assert shared.config.training.epochs == SETTINGS.validations

    def best(place):
        config = tiny(place.name)
        config.optimizer.learning_rate = 0.123
        return config

    monkeypatch.setattr(study, "tune", tune)
    monkeypatch.setattr(study, "best", best)
    monkeypatch.setattr(study, "ended", lambda place, trials: False)
    path = epath.Path(tmp_path)
    settings = SIZED._replace(trials=4)
    plan = comparison.compare(path, settings)[0]["adding"]
    assert tuned == [("trellis", 679, 1.0, 4), ("gru", 679, 1.0, 4)]
    assert plan["gru"].config.optimizer.learning_rate == 0.123
    comparison.compare(path, settings)
    assert len(tuned) == 2


# The report


def test_the_paired_test_is_exact():
    assert comparison_report.paired([1.0, 2.0, 0.5]) == 2 / 8
    assert comparison_report.paired([1.0, -1.0]) == 1.0
    # Of the sums of 3, 1 and -2 with any signs, 6 of 8 are at least 2 from 0.
    assert comparison_report.paired([3.0, 1.0, -2.0]) == 6 / 8
    assert comparison_report.paired([0.1] * 5) == 2 / 32


def test_points_and_rows():
    config = search.apply(tiny("gru"), {"training.steps": 4, "training.epochs": 2})
    model = Model(config, 50, [0.5], 0.25)
    plans = {"adding": {"trellis": model, "gru": model}}
    first = [
        RunResult(0, [2, 4], [0.3, 0.2], 0.1),
        RunResult(1, [2, 4], [0.3, math.inf], 0.3),
    ]
    second = [RunResult(0, [2, 4], [0.5, 0.4], 0.2), RunResult(1, [2], [0.5], None)]
    runs = {("adding", "trellis"): first, ("adding", "gru"): second}
    rows = list(csv.DictReader(io.StringIO(comparison_report.points(plans, runs))))
    assert len(rows) == 4 + 2 + 2 + 2
    assert (
        rows[1]["step"] == "4"
        and rows[1]["seconds"] == "2.000"
        and rows[1]["value"] == "0.2"
    )
    assert rows[2]["split"] == "test" and rows[2]["value"] == "0.1"
    lines = comparison_report.markdown(
        epath.Path("F"), SETTINGS, plans, runs
    ).splitlines()
    assert (
        "| 0.200000 ± 0.14 | 2 of 2 |" in lines[2]
        and "| 0.200000 | 1 of 2 |" in lines[3]
    )
    assert (
        "python -m trainers.pixels --config_file=F/adding/gru/config.json"
        in "".join(lines)
    )
    assert comparison_report.draw(plans, runs).axes[0].get_title() == "adding"
    assert "by recording" not in lines[0] and "fold" not in "".join(lines)


def test_seeds_that_choose_folds_count_once_a_fold():
    """Seeds 0 and 5 of `watch` test the same people."""
    config = configs.load("watch", "small")
    plans = {"watch": dict.fromkeys(("trellis", "gru"), Model(config, 50, [0.5], 0.25))}
    first = [RunResult(seed, [], [], 80.0, 90.0) for seed in (0, 1, 5)]
    others = zip((0, 1, 5), (70.0, 60.0, 74.0), (85.0, 75.0, 95.0), strict=True)
    second = [RunResult(seed, [], [], test, whole) for seed, test, whole in others]
    runs = {("watch", "trellis"): first, ("watch", "gru"): second}
    text = comparison_report.markdown(epath.Path("F"), SETTINGS, plans, runs)
    # 72 and 60 by window, 90 and 75 by recording; of two folds both are lower.
    assert "| 66.00 % ± 8.5 | 82.50 % ± 11 | 3 of 3 | 0.500 |" in text
    assert "over the folds" in text
    assert comparison_report.points(plans, runs).count(",test recordings,") == 6
    one = search.apply(config, {"data.fold": 2})
    plans = {"watch": dict.fromkeys(("trellis", "gru"), Model(one, 50, [0.5], 0.25))}
    text = comparison_report.markdown(epath.Path("F"), SETTINGS, plans, runs)
    assert "| 68.00 % ± 7.2 | 85.00 % ± 10 | 3 of 3 | 0.250 |" in text


@pytest.mark.parametrize("damage", [lambda path: path.mkdir(), Path.touch])
def test_points_that_cannot_be_read_are_told(damage, tmp_path):
    path = tmp_path / "adding/gru/0"
    path.mkdir(parents=True)
    damage(path / "metrics.csv")
    plans = {"adding": {"gru": Model(tiny("gru"), 50, [0.5], 0.25)}}
    text = comparison_report.write(epath.Path(tmp_path), SETTINGS, plans, "")
    assert text.count(f"{path}/metrics.csv is not as a run writes it (it ") == 1


def test_runs_that_end_by_themselves_take_the_steps_that_they_took(tmp_path):
    settings = SETTINGS._replace(patience=4, validations=5)
    config = comparison._in_parts(tiny("gru"), settings)
    config = search.apply(config, {"training.steps": 2000})
    schema.check(config)
    assert schedules.cosine_steps(config) == 0 and config.schedule.stop_after == 4
    plans = {"adding": {"gru": Model(config, 50, [0.5], 0.25)}}
    found = [
        RunResult(0, [400, 800], [0.3, 0.2], 0.1),
        RunResult(1, [2000], [0.3], 0.3),
    ]
    of = {("adding", "gru"): found}
    table = comparison_report.markdown(epath.Path("F"), settings, plans, of)
    assert "| 1,400, 1 of 2 at the most | 500 |" in table
    rows = list(csv.DictReader(io.StringIO(comparison_report.points(plans, of))))
    ends = [(row["step"], row["seconds"]) for row in rows if row["split"] == "test"]
    assert ends == [("800", "400.000"), ("2000", "1000.000")]


def test_a_score_without_a_spread():
    assert comparison_report._score(ACCURACY, [97.0, 99.0]) == "98.00 % ± 1.4"
    assert comparison_report._score(SQUARED_ERROR, []) == "-"


# With TensorFlow


@pytest.mark.parametrize("model", models_of("adding"))
def test_streaming_is_measured(model):
    config = tiny(model)
    task = comparison._Task(epath.Path("nowhere"), SETTINGS, "adding", 1.0)
    experiment = task.load(config)
    costs = streaming.measure({model: experiment.streamed(2)})
    assert 0 < costs[model] < 10


def test_models_are_measured(own_settings, monkeypatch):
    monkeypatch.setattr(streaming, "measure", lambda steps: dict.fromkeys(steps, 0.25))

    def stage_seconds(experiment, config):
        return [0.01] * (1 + len(config.training.depths))

    monkeypatch.setattr(comparison.budget, "stage_seconds", stage_seconds)
    grows = {"training.steps": 9, "training.epochs": 3, "training.depths": (1,)}
    starts = {"gru": tiny("gru"), "trellis": search.apply(tiny("trellis"), grows)}
    task = comparison._Task(epath.Path("nowhere"), SETTINGS, "adding", 1.0)
    plan = task.measured(starts)
    for name, depths in (("gru", ()), ("trellis", (1,))):
        training = plan[name].config.training
        assert (training.steps, training.epochs) == (100, SETTINGS.validations)
        assert training.depths == depths and plan[name].token_seconds == 0.25
        assert plan[name].step_seconds == [0.01] * (1 + len(depths))


def test_runs_are_ordinary_runs(tmp_path, monkeypatch):
    """Another process trains them, by the command that the table has."""
    config = search.apply(tiny("gru"), {"training.steps": 20, "training.epochs": 4})
    file, workdir = epath.Path(tmp_path / "gru.json"), epath.Path(tmp_path / "0")
    file.write_text(json.dumps(config.to_dict()))
    line = comparison.training_command(config, file, 5, workdir, SETTINGS)
    monkeypatch.chdir(ROOT)
    log = epath.Path(tmp_path / "log")
    assert comparison._train(line, log, threads=1) == 0, log.read_text()
    found = comparison_report.read(epath.Path(tmp_path), 0, SQUARED_ERROR)
    assert found.steps == [5, 10, 15, 20] and len(found.values) == 4
    assert (
        found.test == read_result(workdir)["scores"]["test"]["exact"]["squared_error"]
    )
    assert read_config(workdir)["seed"] == 5


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "docs/comparisons").glob("*.json")),
    ids=lambda file: file.stem,
)
def test_the_configs_of_the_page_are_valid(file):
    """A file is called TABLE-MODEL, a table after its task.

    `_groups` ends the name of a table with infinite depth in place of levels, `_medium` that of
    one whose models have the time of the preset `medium`.
    """
    config = configs.read(file)
    schema.check(config)
    table, model = file.stem.split("-")
    task = table.removesuffix("_groups").removesuffix("_medium")
    groups = table.endswith("_groups")
    layer = "equilibrium" if groups and model == "trellis" else model
    assert (config.task, config.model.layer) == (task, layer)


def test_a_config_is_read_back(tmp_path):
    config = comparison.starting_config(SETTINGS, "ptb", "transformer")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert configs.read(tmp_path / "config.json").to_dict() == config.to_dict()
