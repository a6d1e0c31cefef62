"""`trainers.meta` and `trainers.meta_evaluate`: flags, fields and folders."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

import json

from tests.trainers.bad_inputs.row import Row, refused
from trainers.tasks import config as configs
from trainers.tasks import registry

QUADRATIC = configs.load("quadratic", "small").to_dict()
NETWORK = configs.load("mnist_mlp", "small").to_dict()
DRAWN = configs.load("mnist", "small").to_dict()


def runs(**values) -> dict:
    """Returns the files of folders of runs, by their names."""
    return {f"{name}/config.json": json.dumps(each) for name, each in values.items()}


ROWS = (
    Row("meta_without_task", "meta", "", f"--task is missing; expected one of {', '.join(registry.trained_by('trainers.meta'))}"),
    refused("meta_by_workers", "meta", "--task=quadratic --distribute=workers", "none or mirrored for trainers.meta"),
    Row("meta_misspelt_task", "meta", "--task=quadratics", "unknown --task 'quadratics'; did you mean 'quadratic'?"),
    Row("drawing_task_to_meta", "meta", "--task=mnist", "--task=mnist is one of python -m trainers.draw, not of trainers.meta"),
    Row("quadratic_task_to_lm", "lm", "--task=quadratic", "--task=quadratic is one of python -m trainers.meta, not of trainers.lm"),
    Row("meta_asked_to_evaluate", "meta", "--task=quadratic --mode=evaluate", "unknown --mode 'evaluate'; {any}"),
    Row("validation_to_quadratic", "meta", "--task=quadratic --config.data.validation=3", "unknown --config field 'data.validation'; {any}"),
    Row("unroll_not_a_divisor", "meta", "--task=quadratic --config.data.unroll=30",
        "`config.data.unroll` must be a divisor of config.data.steps=100. Received: config.data.unroll=30"),
    Row("meta_unknown_cell", "meta", "--task=quadratic --config.model.cell=lstn",
        "`config.model.cell` must be one of ('lstm', {any}). Received: config.model.cell='lstn'"),
    Row("meta_scale_zero", "meta", "--task=quadratic --config.model.scale=0",
        "`config.model.scale` must be a finite number above 0. Received: config.model.scale=0.0"),
    Row("meta_scale_with_gated_rule", "meta", "--task=quadratic --config.model.update_rule=gated --config.model.scale=0.2",
        "`config.model.scale` must be 0.1, for nothing reads it with config.model.update_rule='gated'. Received: config.model.scale=0.2, config.model.update_rule='gated'"),
    Row("meta_unknown_rule", "meta", "--task=quadratic --config.model.update_rule=gate",
        "`config.model.update_rule` must be one of ('added', 'gated'). Received: config.model.update_rule='gate'"),
    Row("resnet_depth_33", "meta", "--task=cifar10_resnet --config.data.depth=33",
        "`config.data.depth` must be 18, 34 or 6 n + 2, as 8, 14 or 20. Received: config.data.depth=33"),
    Row("meta_projection_zero", "meta", "--task=quadratic --config.model.projection=0",
        "`config.model.projection` must be None or an integer of at least 1 and below 2**31. Received: config.model.projection=0"),
    Row("meta_digits_missing", "meta", "--task=mnist_mlp --data_dir=none", "--data_dir must be a folder of train-images-idx3-ubyte.gz, {any}. Received: --data_dir=none, which is no folder"),
    Row("meta_evaluate_without_runs", "meta_evaluate", "", "expected folders of runs, each of another name. Received: nothing"),
    Row("meta_evaluate_run_twice", "meta_evaluate", "a b/../a", "expected folders of runs, each of another name. Received: a b/../a", runs(a=QUADRATIC)),
    Row("meta_evaluate_run_missing", "meta_evaluate", "none", "{any}none{any}"),
    Row("meta_evaluate_drawing_run", "meta_evaluate", "a", "a is not a run of python -m trainers.meta", runs(a=DRAWN)),
    Row("meta_evaluate_two_tasks", "meta_evaluate", "a b", "b has another task or other data than the first run; evaluate it by itself",
        runs(a=QUADRATIC, b=NETWORK)),
    Row("meta_evaluate_without_weights", "meta_evaluate", "a", "a has no trained weights yet: {any}", runs(a=QUADRATIC)),
    Row("meta_evaluate_draws_zero", "meta_evaluate", "a --draws=0", "{any}draws{any}"),
)
