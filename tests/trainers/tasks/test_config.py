"""Task, preset and overrides."""

import json

import pytest
from absl import flags
from absl.testing import flagsaver
from ml_collections import ConfigDict

from configs import ptb
from tests.refusals import refuses
from trainers.cli import command, config_flags, run_flags  # noqa: F401
from trainers.data.names import flatten
from trainers.language import models as language_models
from trainers.language.tasks.task import LanguageTask
from trainers.sequences import models
from trainers.tasks import config, registry, schema
from trainers.training import variables


def parse(*arguments: str):
    """Returns the config of a command line, parsed with flags of its own."""
    flag_values = flags.FlagValues()
    flags.DEFINE_string("task", None, "", flag_values=flag_values)
    flags.DEFINE_string("preset", None, "", flag_values=flag_values)
    config_flags.parse(["lm", *arguments], flag_values)
    return flag_values["config"].value


@pytest.mark.parametrize("task", registry.TASKS)
def test_every_preset_loads_and_survives_json(task):
    for preset in registry.get(task).presets:
        loaded = config.load(task, preset)
        assert (loaded.task, loaded.preset) == (task, preset)
        assert loaded.is_locked
        again = config.from_dict(json.loads(json.dumps(loaded.to_dict())))
        assert again.to_dict() == loaded.to_dict()
        assert again.is_locked
        assert config.load(task, preset) is not loaded


def test_the_authors_presets_alone_leave_the_last_word_s_input_vector_untrained():
    for preset in ("released", "paper", "irc_gru"):
        assert config.load("ptb", preset).model.untrained_input_id == -1
    for task, preset in (("ptb", "small"), ("ptb", "small_sru"), ("pydoc", "small")):
        assert config.load(task, preset).model.untrained_input_id is None


@pytest.mark.parametrize("task", ["ptb", "ptb_mos", "ptb_char", "wikitext103"])
def test_auxiliary_levels_are_counted_as_in_the_text_and_as_in_the_code(task):
    counted = {"paper": "top", "released": "bottom"}
    for preset, end in counted.items():
        assert config.load(task, preset).model.auxiliary_from == end


@pytest.mark.parametrize(
    "base, changes",
    [("paper", ptb.ABLATIONS), ("small", ptb.SMALL_ABLATIONS)],
)
def test_an_ablation_is_its_preset_with_one_group_changed(base, changes):
    expected = flatten(config.load("ptb", base))
    for name in changes:
        preset = f"{base}_{name}"
        found = flatten(config.load("ptb", preset))
        changed = {
            field
            for field, value in found.items()
            if field != "preset" and expected.get(field) != value
        }
        assert changed, preset
        assert len({field.split(".")[0] for field in changed}) == 1, preset
        assert set(expected) <= set(found)


@pytest.mark.parametrize("base", ["paper", "small"])
def test_mixed_group_convolution_has_the_parameters_of_the_dense_one(base):
    """Counted by formula: kernels, bias and the tied softmax."""

    def count(preset):
        model = config.load("ptb", preset).model
        units, inputs, groups = model.units, model.embedding_units, model.groups
        width = units // groups
        # A tap between two groups each: from each group to itself, and to the next one.
        hidden = 2 * units**2 if groups == 1 else (2 * groups - 1) * width**2
        injected = 2 * inputs * units if groups == 1 else inputs * width
        return 4 * (hidden + injected + units) + 10_000 * (inputs + 1)

    dense, mixed = count(base), count(f"{base}_mixed_group_convolution")
    assert abs(mixed / dense - 1) < 2e-3
    model = config.load("ptb", f"{base}_mixed_group_convolution").model
    assert model.units % model.groups == 0


def test_presets_of_characters_differ_in_their_form():
    forms = {
        preset: config.load("ptb_char", preset).corpus.form
        for preset in registry.get("ptb_char").presets
    }
    assert forms.pop("released") == "released"
    assert len(forms) > 3 and set(forms.values()) == {"mikolov"}


def test_a_field_that_is_none_keeps_its_type():
    values = parse("--task=ptb_char", "--config.schedule.patience=3")
    assert values.schedule.patience == 3
    assert config.load("ptb_char").schedule.patience is None


@pytest.mark.parametrize(
    "task, preset, millions",
    [
        ("ptb", "paper", 24),
        ("ptb", "paper_larger", 33),
        ("ptb_mos", "paper", 25),
        ("ptb_mos", "paper_larger", 34),
        ("ptb_mos", "released", 26),
        ("ptb_mos", "small", 3),
    ],
)
def test_sizes_on_the_penn_treebank(task, preset, millions):
    """The paper's are cut off, not rounded; the released defaults have a larger embedding."""
    loaded = config.load(task, preset)
    parameters = variables.parameters(language_models.build(loaded, 10_000))
    assert parameters // 10**6 == millions


@pytest.mark.parametrize("task, channels", [("seq_mnist", 1), ("seq_cifar10", 3)])
def test_the_larger_pixel_models_have_the_parameters_of_the_table(task, channels):
    """Kernels and their gains, bias, and the linear map to the classes: the table says 8M."""
    units, loaded = 1000, config.load(task, "paper_larger")
    model = models.classifier(loaded, (1024, channels), classes=10)
    expected = 2 * (channels + units) * 4 * units + 2 * 4 * units + 4 * units + 10 * 11
    assert variables.parameters(model) == expected
    assert expected // 10**6 == 8


@pytest.mark.parametrize(
    "task", ["ptb", "ptb_mos", "seq_mnist", "permuted_mnist", "seq_cifar10"]
)
def test_a_larger_model_is_the_paper_s_with_more_units(task):
    paper, larger = (
        flatten(config.load(task, each)) for each in ("paper", "paper_larger")
    )
    assert larger["model.units"] > paper["model.units"]
    changed = {field for field in paper if larger[field] != paper[field]}
    assert changed == {"preset", "model.units"}


def test_estimated_memory_knows_the_heads():
    """A mixture works in blocks, whatever the number of its experts; so do clusters of words."""
    loaded = config.load("ptb_mos", "paper")
    estimates = []
    for head in ("tied", "mixture", "adaptive"):
        values = loaded.to_dict()
        values["model"].update(head=head, output_units=None)
        estimates.append(language_models.need(ConfigDict(values), 267_735).about)
    tied, mixture, adaptive = estimates
    assert adaptive < mixture < tied / 2


def test_paper_is_the_default_preset_of_ptb():
    assert config.load("ptb").preset == "paper"
    assert config.load("ptb").model.depth == 55


TEXTS = {name: registry.get(name) for name in registry.trained_by("trainers.lm")}


@pytest.mark.parametrize("task", TEXTS)
def test_small_trains_a_trellis_network(task):
    model = config.load(task, "small").model
    assert (model.layer, model.gate, model.groups) == ("trellis", "lstm", 1)
    assert model.depth > 1


@pytest.mark.parametrize(
    "task", [task for task in TEXTS if "small_stacked_lstm" in TEXTS[task].presets]
)
def test_the_stacked_lstms_have_their_own_preset(task):
    model = config.load(task, "small_stacked_lstm").model
    assert (model.layer, model.gate, model.groups) == ("equilibrium", "lstm", 2)
    assert model.inject_groups


@pytest.mark.parametrize(
    "arguments",
    [
        ("--task=ptb", "--preset=small", "--config.model.depth=7"),
        ("--config.model.depth=7", "--task=ptb", "--preset=small"),
        ("--config.model.depth", "7", "--preset", "small", "--task", "ptb"),
        (
            "-task=text",
            "--config.model.depth=7",
            "--preset=paper",
            "--preset=small",
            "--task=ptb",
        ),
    ],
)
def test_overrides_apply_after_the_preset_whatever_the_order(arguments):
    expected = config.load("ptb", "small")
    expected.model.depth = 7
    assert parse(*arguments).to_dict() == expected.to_dict()


def test_overrides_keep_the_type_of_the_field():
    values = parse(
        "--task=ptb",
        "--config.model.dilation_rate=1,2,4",
        "--config.optimizer.learning_rate=3",
        "--config.schedule.average=true",
        "--config.data.history=carried",
        "--config.data.horizon=0",
    )
    assert values.model.dilation_rate == (1, 2, 4)
    assert values.optimizer.learning_rate == 3.0
    assert isinstance(values.optimizer.learning_rate, float)
    assert values.schedule.average is True
    assert values.data.history == "carried"


@pytest.mark.parametrize("task", registry.TASKS)
@pytest.mark.parametrize("layer", ["trellis", "equilibrium", "lstm", "gru"])
def test_the_command_line_chooses_the_layer_of_every_task(task, layer):
    preset = "tcn" if "tcn" in registry.get(task).presets else "released"
    preset = preset if preset in registry.get(task).presets else "small"
    off = "--config.model.auxiliary_weight=0"
    values = parse(
        f"--task={task}", f"--preset={preset}", off, f"--config.model.layer={layer}"
    )
    schema.check(values)
    assert values.model.layer == layer


@pytest.mark.parametrize("task", registry.TASKS)
def test_the_command_line_chooses_the_gate_of_every_task(task):
    trellis = "--config.model.layer=trellis"
    without = "--noconfig.model.unit_forget_bias"  # this gate has no forget block
    values = parse(f"--task={task}", trellis, "--config.model.gate=tanh", without)
    schema.check(values)
    assert values.model.gate == "tanh"


@pytest.mark.parametrize("task", registry.TASKS)
def test_the_command_line_chooses_the_head_of_tasks_of_language(task):
    values = parse(
        f"--task={task}",
        "--config.model.head=mixture",
        "--config.model.mixture.experts=3",
    )
    if isinstance(registry.get(task), LanguageTask):
        schema.check(values)
        assert (values.model.head, values.model.mixture.experts) == ("mixture", 3)
        return
    expected = f"mixture.experts` must be 15, for .*task='{task}'.*head='mixture'"
    with refuses(expected):
        schema.check(values)


OF_0_1 = {
    "ptb_mos": {
        "kind": "trellis",
        "head": {"kind": "mixture", "experts": 4, "epsilon": 0.0},
    },
    "wikitext103": {"kind": "trellis", "head": {"kind": "adaptive", "cutoffs": [7, 9]}},
    "pydoc": {"kind": "lstm", "layers": 2, "embedding_units": 5},
    "seq_mnist": {"output_units": 5, "dilation_rate": [1, 2]},
}


@pytest.mark.parametrize("task", OF_0_1)
def test_a_config_of_release_0_1_means_what_it_meant(task):
    """It had `kind`, heads as groups, and none of the fields that have joined since."""
    values = json.loads(json.dumps(config.load(task, "small").to_dict()))
    values["model"] = {"units": 7, "depth": 3, "embedding_units": 5, **OF_0_1[task]}
    model = config.from_dict(values).model
    assert (
        model.layer == ("lstm" if task == "pydoc" else "trellis")
        and model.gate == "lstm"
    )
    heads = {"ptb_mos": "mixture", "wikitext103": "adaptive"}
    assert model.head == heads.get(task, "tied")
    assert (model.units, model.groups, model.output_dropout) == (7, 1, 0.0)
    assert model.auxiliary_from == "bottom"
    assert task != "ptb_mos" or (
        model.mixture.experts,
        model.mixture.latent_dropout,
    ) == (4, 0.0)
    assert task != "wikitext103" or model.adaptive.cutoffs == (7, 9)
    assert task != "seq_mnist" or model.dilation_rate == (1, 2)


@pytest.mark.parametrize(
    "given",
    [
        ("--preset=small", "--config.schedule.factor=0.1"),
        ("--config.training.steps=10", "--config.schedule.epochs=1,2"),
        ("--noconfig.schedule.average", "--config.training.steps=10"),
    ],
)
def test_a_field_of_the_schedule_is_refused_where_the_rate_falls_by_steps(given):
    message = "has no use with config.training.steps=.*--config.training.steps=0 trains"
    with refuses(rf"^--config.schedule.*{message}"):
        parse("--task=ptb", *given)
    assert parse("--task=ptb", *given, "--config.training.steps=0")


@pytest.mark.parametrize(
    "given, field, expected",
    [
        (("--config.model.units=3", "--config.model.units=200"), "model.units", 200),
        (
            ("--config.schedule.average", "--noconfig.schedule.average"),
            "schedule.average",
            False,
        ),
        (
            ("--config.schedule.epochs=2,3", "--config.schedule.epochs=(5,)"),
            "schedule.epochs",
            (5,),
        ),
        (
            ("--config.schedule.epochs", "2", "--config.schedule.epochs", "4,6"),
            None,
            (4, 6),
        ),
        (("--config.schedule.epochs=()",), None, ()),
        (("--config.schedule.epochs=",), None, ()),
        (("--config.schedule.epochs=(2, 3)",), None, (2, 3)),
    ],
)
def test_of_a_field_that_is_given_twice_the_last_value_counts(given, field, expected):
    values = parse(
        "--task=text", "--preset=small", "--config.model.output_units=200", *given
    )
    assert flatten(values)[field or "schedule.epochs"] == expected


def test_a_file_of_flags_is_read_as_the_flags_are(tmp_path, capsys):
    """Absl's --flagfile: neither the preset nor what may not be given escapes in one."""
    file = tmp_path / "flags"
    file.write_text("--task=ptb\n--preset=small\n--config.model.depth=7\n")
    saved = flagsaver.save_flag_values()
    try:
        command.parse(["lm", f"--flagfile={file}"])
        assert (flags.FLAGS.config.preset, flags.FLAGS.config.model.depth) == (
            "small",
            7,
        )
    finally:
        flagsaver.restore_flag_values(saved)
    for text, told in (
        ("--task=ptb\n--config.preset=paper\n", "use --preset="),
        (None, "flags"),
    ):
        file.write_text(text) if text else file.unlink()
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as exit_:
            command.parse(["lm", f"--flagfile={file}"])
        assert exit_.value.code == command.Status.REFUSED
        error = capsys.readouterr().err
        assert told in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("task", ["ptb", "ptb_char", "adding"])
def test_a_file_has_the_values_of_a_config_and_names_its_task(task, tmp_path):
    kept = config.load(task, "small")
    kept.training.steps = 1000
    file = tmp_path / "config.json"
    file.write_text(json.dumps(kept.to_dict()))
    flag_values = flags.FlagValues()
    for name in ("task", "preset", "config_file"):
        flags.DEFINE_string(name, None, "", flag_values=flag_values)
    config_flags.parse(
        ["lm", f"--config_file={file}", "--config.model.depth=7"], flag_values
    )
    read = flag_values["config"].value
    kept.model.depth = 7
    assert read.to_dict() == kept.to_dict()
    assert flag_values["task"].value == task
    schema.check(read)
