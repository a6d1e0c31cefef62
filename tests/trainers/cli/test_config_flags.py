"""A command that names a folder with a run goes on with the values of that run."""

import json

import pytest

from tests.refusals import refuses
from tests.trainers.calls import config_of
from trainers.data import names
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import workdir


def parse(*arguments):
    """Returns the values of the config of a command line of a program that trains."""
    return config_of(*arguments).to_dict()


def begun(path, **changes):
    """Begins a run of `small` of `ptb` as it was in 0.2: the preset is another network today."""
    values = names.flatten(configs.load("ptb", "small_stacked_lstm").to_dict())
    values |= {"preset": "small", **changes}
    with workdir.open_workdir(path, names.nested(values)):
        return names.nested(values)


def refused(path, config):
    with pytest.raises(workdir.WorkdirError) as error:
        workdir.refuse_other_run(
            path, config, schema.may_change(configs.from_dict(config))
        )
    return str(error.value)


CHANGES = {"model.units": 300, "training.jit_compile": False, "training.epochs": 12}
SMALL = ("--task=ptb", "--preset=small")


def test_a_run_goes_on_with_its_values_after_its_preset_has_changed(tmp_path):
    kept = begun(tmp_path, **CHANGES)
    again = parse(*SMALL, f"--workdir={tmp_path}")
    assert again == kept
    workdir.refuse_other_run(tmp_path, again, may_change=())


def test_a_run_goes_on_in_its_default_folder_and_with_its_default_preset(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for preset in ("paper", "small"):
        values = configs.load("ptb", preset).to_dict() | {"seed": 77}
        with workdir.open_workdir(tmp_path / "runs" / f"ptb-{preset}", values):
            pass
    assert parse("--task=ptb") == configs.load("ptb").to_dict() | {"seed": 77}
    assert parse(*SMALL)["seed"] == 77
    assert parse("--task=pydoc")["seed"] != 77


FORMER = [
    (task, former)
    for task, each in registry.TASKS.items()
    for former in each.former_presets
]


@pytest.mark.parametrize("task, former", FORMER)
def test_a_former_name_of_a_preset_works_and_says_its_new_one(
    task, former, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    todays = registry.get(task).former_presets[former]
    assert former not in registry.get(task).presets
    config = parse(f"--task={task}", f"--preset={former}")
    line = f"--preset={former} of --task={task} is called {todays} now; the former"
    assert capsys.readouterr().err.startswith(line)
    # Its folder has the name that was given.
    assert config == configs.load(task, todays).to_dict() | {"preset": former}
    with workdir.open_workdir(tmp_path / "runs" / f"{task}-{former}", config):
        pass
    assert parse(f"--task={task}", f"--preset={former}") == config
    assert parse(f"--task={task}", f"--preset={todays}")["preset"] == todays
    assert capsys.readouterr().err == ""


def test_a_field_that_is_given_holds_and_is_refused_where_it_differs(tmp_path):
    begun(tmp_path, **CHANGES)
    same = parse(*SMALL, f"--workdir={tmp_path}", "--config.model.units=300")
    workdir.refuse_other_run(tmp_path, same, may_change=())
    other = parse(*SMALL, f"--workdir={tmp_path}", "--config.model.units=400")
    told = refused(tmp_path, other)
    assert "model.units: 300 there, 400 here" in told
    assert "the same command without --config.model.units goes on" in told
    assert "jit_compile" not in told and "epochs" not in told


def test_of_a_file_the_values_that_it_has_are_given(tmp_path):
    begun(tmp_path / "run", **CHANGES)
    file = tmp_path / "mine.json"
    values = configs.load("ptb", "small").to_dict() | {"seed": 5}
    values["model"]["units"] = 300
    del values["training"]["jit_compile"]
    file.write_text(json.dumps(values))
    config = parse(f"--config_file={file}", f"--workdir={tmp_path / 'run'}")
    assert config["seed"] == 5 and not config["training"]["jit_compile"]
    assert config["training"]["epochs"] == 12
    assert "config.seed" in refused(tmp_path / "run", config)


def test_the_config_of_a_run_is_a_file_for_another(tmp_path):
    kept = begun(tmp_path / "run", **CHANGES)
    file = tmp_path / "run" / "config.json"
    assert parse(f"--config_file={file}", f"--workdir={tmp_path / 'new'}") == kept


@pytest.mark.parametrize("preset", ["../other", "a/b", "", "\x1b[31mred\n", ".."])
def test_a_preset_of_a_file_is_no_path_and_is_told_in_one_line(tmp_path, preset):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"task": "ptb", "preset": preset}))
    with refuses("`preset` must be a name") as error:
        parse(f"--config_file={file}")
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "task, preset, field",
    [
        ("permuted_mnist", "medium", "schedule.average_after"),
        ("mnist", "small", "model.read"),
        ("addition", "paper", "schedule.stop_at"),
    ],
)
def test_a_field_that_may_be_none_is_given_none(task, preset, field):
    assert names.flatten(configs.load(task, preset).to_dict())[field] is not None
    given = parse(f"--task={task}", f"--preset={preset}", f"--config.{field}=None")
    assert names.flatten(given)[field] is None


@pytest.mark.parametrize("field", ["model.units", "optimizer.learning_rate"])
def test_a_field_that_needs_a_number_refuses_none(field):
    with refuses(rf"`config\.{field}` must .*=None$"):
        parse(*SMALL, f"--config.{field}=None")
