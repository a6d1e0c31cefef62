r"""Measures training steps with and without XLA and bfloat16, for docs/studies/step_time.csv.

    python -m docs.studies.step_time --task=ptb --layers=lstm,gru --data_dir=DIR
    python -m docs.studies.step_time --task=permuted_mnist --data_dir=DIR model.units=64
    python -m docs.studies.step_time --task=permuted_mnist --layers=lstm --data_dir=DIR \
      lstm:model.recurrent_dropout=0.15

The trellis network is that of a preset, by default `small`, with the given fields changed. The
other layers have as many parameters, the same changes, and above them the settings of
`configs/baselines.py`. `LAYER:FIELD=VALUE` changes a field of one of them. A step is that of the
trainers, on one thread. The milliseconds are those of the processor, the median of three
measurements. They go to docs/studies/step_time.csv.
"""

import pathlib
from collections.abc import Mapping, Sequence

import ml_collections
from absl import app, flags
from etils import epath

from docs.studies import running
from trainers.sequences.layer import LayerExperiment
from trainers.studies import budget, comparison, experiments, search
from trainers.tasks import config as configs

FLAGS = flags.FLAGS
flags.DEFINE_string("task", None, "The task.", required=True)
flags.DEFINE_string("preset", "small", "The trellis network's preset.")
flags.DEFINE_list("layers", [], "Layers beside the trellis network.")
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")

TABLE = pathlib.Path(__file__).with_suffix(".csv")
FORMS: dict[str, dict] = {
    "plain": {"model.dtype": "float32", "training.jit_compile": False},
    "xla": {"model.dtype": "float32", "training.jit_compile": True},
    "bfloat16": {"model.dtype": "mixed_bfloat16", "training.jit_compile": False},
}


def starts(
    first: ml_collections.ConfigDict,
    layers: Sequence[str],
    changes: Mapping[str, object],
) -> dict[str, ml_collections.ConfigDict]:
    """Returns the layers' configs before they have one size.

    Args:
        first: the trellis network's preset.
        layers: layers beside it.
        changes: values by FIELD, or by LAYER:FIELD for one of `layers`.
    """
    shared = {name: value for name, value in changes.items() if ":" not in name}
    first = search.apply(first, shared)
    layer_configs = {comparison.FIRST: first}
    layer_configs |= {name: comparison.beside(first, name) for name in layers}
    for name, value in changes.items():
        layer, _, field = name.rpartition(":")
        if layer:
            layer_configs[layer] = search.apply(layer_configs[layer], {field: value})
    return layer_configs


def sized(changes: Mapping[str, object]) -> dict[str, ml_collections.ConfigDict]:
    """Returns the layers' configs, of one number of parameters."""
    names = [comparison.FIRST, *FLAGS.layers]
    comparison.check_names("--layers", names, comparison.MODELS)
    first = configs.load(FLAGS.task, FLAGS.preset)
    layer_configs = starts(first, FLAGS.layers, changes)
    count = load(layer_configs[comparison.FIRST]).parameters
    _, sized_configs = comparison.equal(layer_configs, count, None)
    return sized_configs


def load(config: ml_collections.ConfigDict) -> LayerExperiment:
    """Returns what a config trains."""
    return experiments.load(config, FLAGS.data_dir, epath.Path("nowhere"))


def main(argv: Sequence[str]) -> None:
    """Measures each layer in each form."""
    budget.fix_threads(1)
    for layer, config in sized(running.changes(argv[1:])).items():
        row = {
            "task": FLAGS.task,
            "layer": layer,
            "units": config.model.units,
            "kernel_size": config.model.kernel_size,
            "recurrent_dropout": config.model.recurrent_dropout,
            "batch_size": config.data.batch_size,
        }
        for form, fields in FORMS.items():
            changed = search.apply(config, fields)
            seconds = budget.processor_seconds_a_step(load(changed), changed)
            row[form] = round(1e3 * seconds, 1)
            print(layer, form, row[form], "ms", flush=True)
        rows = running.with_table(TABLE, [row], [*row][:5])
        running.write_table(TABLE, list(rows.values()))


if __name__ == "__main__":
    app.run(main)
