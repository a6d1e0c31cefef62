"""Writes a language task's training, evaluation, weights and data for `run.py`.

The programs are those of the trainers, lowered to StableHLO; nothing is written twice. What a
program reads and changes (weights, moments, seeds, the learning rate) is among its arguments and
results. Initial weights are rounded to bfloat16, so that 24M of them take 48 MB.
"""

import json
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import ml_collections
import numpy as np
import tensorflow as tf

from benchmarks.paper import run
from trainers.data import streams
from trainers.language import evaluation, experiment, modeling, models
from trainers.training import runs, strategies, variables
from trainers.training.trainer import Trainer

_ALIAS = re.compile(
    r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>"
)
_SPLITS = ("validation", "test")


def check_output(folder: pathlib.Path) -> None:
    """Raises ValueError if the folder exists and holds files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"--output must be a new or an empty folder. Received: --output={folder}"
        )


def write(
    config: ml_collections.ConfigDict,
    data_dir: str | None,
    folder: pathlib.Path,
    precision: str,
) -> int:
    """Writes the folder; returns its size in bytes.

    Args:
        config: The config of a language task.
        data_dir: The folder of the task's text files.
        folder: The folder to write.
        precision: A Keras dtype policy.
    """
    strategies.make_deterministic(config.seed)
    keras.config.set_dtype_policy(precision)
    corpus = experiment.load_corpus(config, data_dir)
    model = models.build(config, corpus.vocabulary.size)
    optimizer = runs.optimizer_of(config)
    task = modeling.LanguageModeling(model, config, corpus.train, corpus.validation)
    trainer = runs.trainer_of(config, task, optimizer)
    round_weights(model)

    named = {**variables.of_model(model), **variables.of_optimizer(optimizer, model)}
    folder.mkdir(parents=True, exist_ok=True)
    lowering = _Lowering(named, folder)
    arrays = {
        f"initial/{name}": _packed(value)
        for name, value in variables.arrays(named).items()
    }
    arrays |= _lower_training(lowering, trainer, config, corpus.train)
    texts = {split: getattr(corpus, split) for split in _SPLITS}
    arrays |= _lower_exact(lowering, model, config, texts)
    arrays |= _lower_trellisnet(lowering, model, config, texts)
    np.savez_compressed(folder / run.ARRAYS, **arrays)

    manifest = {
        "config": config.to_dict(),
        "precision": precision,
        "words": corpus.vocabulary.size,
        "parameters": runs.parameters(model),
        "programs": lowering.programs,
        "variables": {name: _spec(variable.value) for name, variable in named.items()},
        "averages": _averages(named, model),
    }
    (folder / run.MANIFEST).write_text(json.dumps(manifest, indent=1))
    shutil.copyfile(run.__file__, folder / "run.py")
    return sum(file.stat().st_size for file in folder.iterdir())


def round_weights(model: keras.Model) -> None:
    """Rounds a model's trainable variables to bfloat16."""
    for variable in model.trainable_variables:
        variable.assign(tf.cast(tf.cast(variable.value, "bfloat16"), variable.dtype))


class _Lowering:
    """Lowers functions to StableHLO files and describes them.

    Attributes:
        programs: What `run.py` has to know of each program.
    """

    def __init__(
        self, named: Mapping[str, keras.Variable], folder: pathlib.Path
    ) -> None:
        self._names = {
            id(variable.value.handle): name for name, variable in named.items()
        }
        self._named = named
        self._folder = folder
        self.programs: dict[str, dict[str, Any]] = {}

    def add(self, name: str, function: Callable, *arguments: Any) -> None:
        """Lowers a function for arguments of these shapes and types, unless the name is there."""
        if name in self.programs:
            return
        compiled = tf.function(function, jit_compile=True, autograph=False)
        specs = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), arguments
        )
        concrete = compiled.get_concrete_function(*specs)
        captured = [self._names[id(handle)] for handle in concrete.captured_inputs]
        text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo")
        own = tf.nest.flatten(specs)
        results = [
            _spec(result) for result in tf.nest.flatten(concrete.structured_outputs)
        ]
        updates = {
            int(output): captured[int(parameter) - len(own)]
            for parameter, output in _ALIAS.findall(text)
        }
        results += [
            _spec(self._named[updates[output]].value) for output in sorted(updates)
        ]
        self.programs[name] = {
            "arguments": [_spec(spec) for spec in own],
            "captured": captured,
            "results": results,
            "updates": updates,
        }
        (self._folder / f"{name}.stablehlo").write_bytes(_portable(text))


def _portable(text: str) -> bytes:
    """Returns a module of TensorFlow as StableHLO that later versions of XLA read."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo
    from jax.interpreters import mlir

    # StableHLO has no attributes or operations of XLA's own dialect. The one operation is a copy.
    text = re.sub(
        r" attributes \{mhlo\..*\} \{$", " {", text, count=1, flags=re.MULTILINE
    )
    text = re.sub(r" \{mhlo\.frontend_attributes = \{[^}]*\}\}", "", text)
    text = re.sub(
        r"mhlo\.copy (%\w+) : (tensor<[^>]*>)",
        r"stablehlo.reshape \1 : (\2) -> \2",
        text,
    )
    with mlir.make_ir_context():
        # The locations name files of this machine.
        text = ir.Module.parse(text).operation.get_asm(enable_debug_info=False)
    return stablehlo.serialize_portable_artifact_str(
        text, stablehlo.get_current_version()
    )


def _lower_training(
    lowering: _Lowering,
    trainer: Trainer,
    config: ml_collections.ConfigDict,
    ids: np.ndarray,
) -> dict[str, np.ndarray]:
    """Lowers a step for whole windows and one for the last window; returns the data."""
    rows = streams.contiguous_streams(ids, config.data.batch_size)
    windows = streams.Windows(rows.shape[1], config.data.window, config.data.horizon)
    bounds = np.array([windows.bounds(index) for index in range(windows.count)])
    state = trainer.task.initial_state()

    def step(ids, targets, *state):
        metrics, state = trainer.step((ids, targets), state)
        return metrics["prediction"], metrics["gradient_norm"], *tf.nest.flatten(state)

    for length in sorted({int(stop - start) for start, stop in bounds}):
        window = tf.zeros([len(rows), length], "int32")
        lowering.add(f"step_{length}", step, window, window, *state)
    return {
        "train/streams": _small(rows),
        "train/bounds": bounds,
        **_states("train", state),
    }


def _lower_exact(
    lowering: _Lowering,
    model: keras.Model,
    config: ml_collections.ConfigDict,
    texts: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Lowers the protocol `exact`: chunk after chunk with the exact cache."""
    settings, arrays = config.evaluation, {}
    for split, ids in texts.items():
        rows, chunks = evaluation.cut(
            ids, settings.exact_batch_size, model.receptive_field, settings.exact_chunk
        )
        cache = model.get_initial_cache(rows)
        chunk, state = _chunk(model, cache), tf.nest.flatten(cache)
        arrays |= _lower_scoring(lowering, "exact", split, chunk, chunks, state)
    return arrays


def _chunk(model: keras.Model, like: Any) -> Callable:
    """Returns the function that scores a chunk with a flat cache of the structure `like`."""

    def chunk(ids, targets, scored, *flat):
        cache = tf.nest.pack_sequence_as(like, flat)
        nll, cache = model.score(ids, targets, cache=cache)
        return _sum(nll, scored), *tf.nest.flatten(cache)

    return chunk


def _lower_trellisnet(
    lowering: _Lowering,
    model: keras.Model,
    config: ml_collections.ConfigDict,
    texts: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Lowers the protocol `trellisnet`: windows with a state, without a window's first targets."""
    data, arrays = config.data, {}
    for split, ids in texts.items():
        rows = streams.contiguous_streams(ids, config.evaluation.batch_size)
        windows = streams.Windows(rows.shape[1], data.window, data.horizon)
        state = model.get_initial_state(len(rows))

        def window(ids, targets, scored, *state):
            nll, carried = model.score(ids, targets, initial_state=state)
            return _sum(nll, scored), *(carried if data.history == "carried" else state)

        pieces = _windows(rows, windows, data)
        arrays |= _lower_scoring(lowering, "trellisnet", split, window, pieces, state)
    return arrays


def _lower_scoring(
    lowering: _Lowering,
    protocol: str,
    split: str,
    function: Callable,
    pieces: Iterable[tuple[np.ndarray, ...]],
    state: list[tf.Tensor],
) -> dict[str, np.ndarray]:
    """Lowers the function that scores a piece of a split; returns the pieces and the state."""
    stacked = [np.stack(each) for each in zip(*pieces, strict=True)]
    first = [tf.constant(each[0]) for each in stacked]
    lowering.add(run.scoring(protocol, len(first[0])), function, *first, *state)
    prefix = f"{protocol}/{split}"
    return {**_pieces(prefix, stacked), **_states(prefix, state)}


def _windows(
    rows: np.ndarray, windows: streams.Windows, data: ml_collections.ConfigDict
) -> Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns each window's ids, targets and scored places, all padded to one length."""
    for index in range(windows.count):
        ids, targets = windows.of(rows, index)
        missing = [(0, 0), (0, data.window - ids.shape[1])]
        scored = np.zeros([len(rows), data.window], bool)
        scored[:, data.horizon : ids.shape[1]] = True
        yield np.pad(ids, missing), np.pad(targets, missing), scored


def _sum(nll: tf.Tensor, scored: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(tf.where(scored, nll, 0), "float64"))


def _pieces(prefix: str, pieces: list[np.ndarray]) -> dict[str, np.ndarray]:
    ids, targets, scored = pieces
    return {
        f"{prefix}/ids": _small(ids),
        f"{prefix}/targets": _small(targets),
        f"{prefix}/scored": scored,
    }


def _states(prefix: str, state: Iterable[tf.Tensor]) -> dict[str, np.ndarray]:
    return {
        f"{prefix}/state{i}": _packed(np.asarray(each)) for i, each in enumerate(state)
    }


def _packed(array: np.ndarray) -> np.ndarray:
    """Returns an array as `run.unpacked` reads it: float32 that is bfloat16 takes half."""
    if array.dtype.name == "bfloat16":
        return array.view("uint16")
    if array.dtype == np.float32:
        bits = array.view("uint32")
        if not np.any(bits & 0xFFFF):
            return (bits >> 16).astype("uint16")
    return array


def _small(ids: np.ndarray) -> np.ndarray:
    return ids.astype("uint16" if ids.max() < 2**16 else "int32")


def _averages(
    named: Mapping[str, keras.Variable], model: keras.Model
) -> dict[str, str]:
    trained = {id(variable) for variable in model.trainable_variables}
    names = [name for name, variable in named.items() if id(variable) in trained]
    pairs = {name: f"optimizer/{name.removeprefix('model/')}/average" for name in names}
    return {name: average for name, average in pairs.items() if average in named}


def _spec(tensor: Any) -> list:
    return [list(tensor.shape), tf.as_dtype(tensor.dtype).name]
