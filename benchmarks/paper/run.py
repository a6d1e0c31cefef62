"""Trains and evaluates an exported recipe with JAX and NumPy alone.

    python run.py --minutes=5

Each call goes on where the last one stopped, and stops at the end or when its minutes are over.
`state.npz` holds everything that changes; `curve.csv` has a row for each epoch.
"""

import argparse
import csv
import dataclasses
import functools
import io
import json
import math
import os
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

ARRAYS, MANIFEST, STATE, CURVE = "arrays.npz", "manifest.json", "state.npz", "curve.csv"
COMPILED = "compiled"  # JAX's cache, so that a call that goes on need not compile again
_RECORD = "record"
_RATE, _ITERATIONS = "optimizer/learning_rate", "optimizer/iteration"
_AVERAGED_FROM = "optimizer/averaged_from"
_LOG_EVERY = 100


class Recipe:
    """An exported folder: programs, data, and what training needs to know.

    Args:
        folder: the folder.
    """

    def __init__(self, folder):
        self.folder = folder
        self.manifest = json.loads((folder / MANIFEST).read_text())
        self.config = self.manifest["config"]
        with np.load(folder / ARRAYS) as arrays:
            self.arrays = dict(arrays)
        self._programs = {}

    def program(self, name):
        """Returns a function of arguments and variables that returns results and variables."""
        if name not in self._programs:
            described = self.manifest["programs"][name]
            module = (self.folder / f"{name}.stablehlo").read_bytes()
            self._programs[name] = compiled(
                described, self.manifest["variables"], module, name.startswith("step_")
            )
        return self._programs[name]

    def initial(self):
        """Returns the variables before training."""
        return {
            name: unpacked(self.arrays[f"initial/{name}"], spec)
            for name, spec in self.manifest["variables"].items()
        }

    def batches(self):
        """Returns the training batches."""
        if "train/order" in self.arrays:
            return ExampleBatches(self.arrays, self.config["data"]["batch_size"])
        return WindowBatches(self.arrays)

    def given(self, program, arrays):
        """Returns a program's first arguments, of the types that it takes."""
        specs = self.manifest["programs"][program]["arguments"]
        return [
            array.astype(dtype)
            for array, (_, dtype) in zip(arrays, specs, strict=False)
        ]

    def state(self, prefix, program, skip):
        """Returns the first state of a program, whose arguments have it after `skip` others."""
        specs = self.manifest["programs"][program]["arguments"][skip:]
        return [
            unpacked(self.arrays[f"{prefix}/state{i}"], spec)
            for i, spec in enumerate(specs)
        ]


class WindowBatches:
    """The batches of a text: windows of its streams, in their order.

    Windows of drawn lengths have another order in each pass, and are padded to the length of a
    program.

    Args:
        arrays: those of the recipe.

    Attributes:
        count: the batches in a pass.
    """

    def __init__(self, arrays):
        self._bounds, self._streams = arrays["train/bounds"], arrays["train/streams"]
        self._sizes = arrays.get("train/sizes")
        self.count = self._bounds.shape[1]

    def batch(self, step):
        """Returns the batch of a step, and its size in the name of its program."""
        done, at = divmod(step, self.count)
        start, stop = self._bounds[done % len(self._bounds), at].tolist()
        window = self._streams[:, start:stop], self._streams[:, start + 1 : stop + 1]
        length = stop - start
        if self._sizes is None:
            return window, length
        size = int(self._sizes[self._sizes >= length].min())
        missing = [(0, 0), (0, size - length)]
        ids, targets = (np.pad(part, missing) for part in window)
        return (ids, targets, np.array(length)), size


class ExampleBatches:
    """The batches of examples, in another order in each pass.

    Args:
        arrays: those of the recipe.
        size: the examples in a batch.

    Attributes:
        count: the batches in a pass.
    """

    def __init__(self, arrays, size):
        self._inputs, self._targets = arrays["train/inputs"], arrays["train/targets"]
        self._order, self._size = arrays["train/order"], size
        self.count = -(-self._order.shape[1] // size)

    def batch(self, step):
        """Returns the batch of a step, and its size in the name of its program."""
        done, at = divmod(step, self.count)
        chosen = self._order[done, at * self._size : (at + 1) * self._size]
        return (self._inputs[chosen], self._targets[chosen]), len(chosen)


def scoring(name, rows):
    """Returns the name of the program that scores so many rows under a protocol."""
    return f"{name}_{rows}"


def unpacked(array, spec):
    """Returns an array of its own type; `uint16` holds the upper half of a float."""
    dtype = jnp.dtype(spec[1])
    if array.dtype == np.uint16 and dtype == jnp.bfloat16:
        return array.view(dtype)
    if array.dtype == np.uint16:
        return (array.astype("uint32") << 16).view(dtype)
    return array


def compiled(described, variables, module, trains):
    """Returns a StableHLO module as a function of JAX.

    Args:
        described: the manifest's entry of the program.
        variables: the manifest's variables.
        module: the serialized module.
        trains: whether its changes of variables are kept. A score keeps none: Keras's recurrent
            layers draw a seed without dropout too.
    """
    captured = described["captured"]
    updates = {int(output): name for output, name in described["updates"].items()}
    results = [(tuple(shape), dtype) for shape, dtype in described["results"]]
    specs = described["arguments"] + [variables[name] for name in captured]

    def stand_in(*arguments):
        return [jnp.zeros(*result) for result in results]

    # JAX exports a function of the same signature, whose module is then exchanged.
    signature = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in specs]
    exported = jax.export.export(jax.jit(stand_in, keep_unused=True))(*signature)
    exported = dataclasses.replace(exported, mlir_module_serialized=module)

    @functools.partial(jax.jit, donate_argnums=1 if trains else ())
    def step(arguments, changing, fixed):
        values = {**changing, **fixed}
        returned = exported.call(*arguments, *(values[name] for name in captured))
        changed = {name: returned[output] for output, name in updates.items()}
        return [value for i, value in enumerate(returned) if i not in updates], changed

    def call(arguments, values):
        changing = {name: values[name] for name in updates.values()}
        fixed = {name: values[name] for name in captured if name not in changing}
        returned, changed = step(arguments, changing, fixed)
        return returned, {**values, **changed}

    return call


class Training:
    """A training in progress.

    Args:
        recipe: what to train.

    Attributes:
        record: plain values: steps done, losses and rows of the epochs, sums of this epoch.
    """

    def __init__(self, recipe):
        self.recipe = recipe
        self.batches = recipe.batches()
        batch, size = self.batches.batch(0)
        self.program, self._parts = f"step_{size}", len(batch)
        self.record = {"step": 0, "losses": [], "rows": [], "sum": 0.0, "seconds": 0.0}
        self.values = recipe.initial()
        self.state = self._first_state()
        if (recipe.folder / STATE).exists():
            self._load()
        self.values = {name: jnp.asarray(value) for name, value in self.values.items()}

    @property
    def finished(self):
        """Whether all epochs are done."""
        return len(self.record["losses"]) >= self.recipe.config["training"]["epochs"]

    def run(self, deadline, save_every):
        """Trains until the deadline or the end, and saves."""
        while not self.finished and time.monotonic() < deadline:
            pending, began = [], time.monotonic()
            end = self._epoch_end(len(self.record["losses"]) + 1)
            while time.monotonic() < deadline and self.record["step"] < end:
                pending.append(self._step())
                step = self.record["step"]
                if step == end or step % save_every == 0 or len(pending) == _LOG_EVERY:
                    began = self._settle(pending, began)
                if step % save_every == 0 and step < end:
                    self.save()
            self._settle(pending, began)
            if self.record["step"] == end:
                self._end_epoch()
            self.save()

    def _first_state(self):
        """Returns the state before a pass."""
        return self.recipe.state("train", self.program, self._parts)

    def _epoch_end(self, epoch):
        """Returns the step after which an epoch ends, counted from 1."""
        training = self.recipe.config["training"]
        epochs, count = training["epochs"], self.batches.count
        return epoch * (training["steps"] or epochs * count) // epochs

    def _step(self):
        """Makes a training step; returns its loss, which JAX may still be computing."""
        if self.record["step"] % self.batches.count == 0:
            self.state = self._first_state()
        batch, size = self.batches.batch(self.record["step"])
        name = f"step_{size}"
        program = self.recipe.program(name)
        (loss, _, *self.state), self.values = program(
            [*self.recipe.given(name, batch), *self.state], self.values
        )
        self.record["step"] += 1
        return loss

    def _settle(self, pending, began):
        """Adds the losses to the record once they are there; returns the present time."""
        losses = [float(loss) for loss in pending]
        if not all(map(math.isfinite, losses)):
            raise ArithmeticError(
                f"the loss is not finite before step {self.record['step']}"
            )
        for loss in losses:
            self.record["sum"] += loss
        if losses:
            milliseconds = 1e3 * (time.monotonic() - began) / len(losses)
            print(
                f"step {self.record['step']}: loss {losses[-1]:.4f}, {milliseconds:.1f} ms a step"
            )
        self.record["seconds"] += time.monotonic() - began
        pending.clear()
        return time.monotonic()

    def _end_epoch(self):
        record, rate = self.record, float(self.values[_RATE])
        epoch = len(record["losses"]) + 1
        steps = self._epoch_end(epoch) - self._epoch_end(epoch - 1)
        row = {"epoch": epoch, "step": record["step"], "learning_rate": rate}
        row["training"] = record["sum"] / steps
        for name, scores in self.recipe.manifest["scores"].items():
            for split in ("validation", "test"):
                means = self._score(name, split)
                row |= {
                    f"{split}_{score}": float(mean)
                    for score, mean in zip(scores, means, strict=True)
                }
        row["training_seconds"] = round(record["seconds"], 1)
        row["peak_bytes"] = (jax.devices()[0].memory_stats() or {}).get(
            "peak_bytes_in_use"
        )
        (first, *_), *_ = self.recipe.manifest["scores"].values()
        record["losses"].append(row[f"validation_{first}"])
        record["rows"].append(row)
        record["sum"] = 0.0
        self._schedule()
        print(json.dumps(row))

    def _score(self, name, split):
        """Returns the mean of each score of a split."""
        prefix = f"{name}/{split}"
        pieces = [
            self.recipe.arrays[f"{prefix}/{part}"]
            for part in ("inputs", "targets", "scored")
        ]
        name = scoring(name, pieces[0].shape[1])
        program, values = self.recipe.program(name), self._evaluated()
        state, total = self.recipe.state(prefix, name, 3), 0.0
        for piece in zip(*pieces, strict=True):
            arguments = [*self.recipe.given(name, piece), *state]
            (sums, *state), _ = program(arguments, values)
            total += np.asarray(sums)
        return total / int(pieces[2].sum())

    def _evaluated(self):
        """Returns the variables with averages in place of weights, once there are averages."""
        averaged_from = int(self.values.get(_AVERAGED_FROM, -1))
        if averaged_from < 0 or int(self.values[_ITERATIONS]) == averaged_from:
            return self.values
        averages = self.recipe.manifest["averages"]
        return {
            **self.values,
            **{name: self.values[average] for name, average in averages.items()},
        }

    def _schedule(self):
        """Does what the trainers' schedule does after an epoch."""
        schedule, losses = self.recipe.config["schedule"], self.record["losses"]
        if self.recipe.config["training"]["steps"]:  # the rate falls along a cosine
            schedule = schedule | {"patience": None, "epochs": ()}
        before, patience = losses[:-1], schedule["patience"]
        plateau = patience is not None and len(before) > patience
        plateau = plateau and losses[-1] > min(before[:-patience])
        if int(self.values.get(_AVERAGED_FROM, -1)) >= 0:
            return
        if len(losses) == schedule["average_after"]:
            self._start_averaging()
            return
        if not (plateau or len(losses) in schedule["epochs"]):
            return
        rate = float(self.values[_RATE])
        if plateau and schedule["average"]:
            self._start_averaging()
        elif rate > schedule["minimum"]:
            self.values[_RATE] = jnp.asarray(rate * schedule["factor"])

    def _start_averaging(self):
        # A copy: JAX takes no buffer for two arguments that it may overwrite.
        self.values[_AVERAGED_FROM] = jnp.copy(self.values[_ITERATIONS])

    def save(self):
        """Replaces the saved state and the curve, each at once."""
        arrays = {
            f"variable/{name}": _stored(value) for name, value in self.values.items()
        }
        arrays |= {f"state/{i}": _stored(value) for i, value in enumerate(self.state)}
        file = io.BytesIO()
        np.savez(file, **arrays, **{_RECORD: json.dumps(self.record)})
        _replace(self.recipe.folder / STATE, file.getvalue())
        if rows := self.record["rows"]:
            text = io.StringIO()
            writer = csv.DictWriter(text, rows[0])
            writer.writeheader()
            writer.writerows(rows)
            _replace(self.recipe.folder / CURVE, text.getvalue().encode())

    def _load(self):
        with np.load(self.recipe.folder / STATE) as arrays:
            self.record = json.loads(str(arrays[_RECORD]))
            specs = self.recipe.manifest["variables"]
            self.values = {
                name: unpacked(arrays[f"variable/{name}"], spec)
                for name, spec in specs.items()
            }
            specs = self.recipe.manifest["programs"][self.program]["arguments"]
            specs = specs[self._parts :]
            self.state = [
                unpacked(arrays[f"state/{i}"], spec) for i, spec in enumerate(specs)
            ]
        print(f"going on from step {self.record['step']}")


def _stored(value):
    array = np.asarray(value)
    return array.view("uint16") if array.dtype == jnp.bfloat16 else array


def _replace(path, content):
    """Writes a file that appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main():
    """Trains for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent
    )
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="when to stop, with all saved"
    )
    parser.add_argument(
        "--save_every", type=int, default=500, help="steps between two saves"
    )
    flags = parser.parse_args()
    if not flags.minutes > 0 or flags.save_every < 1:
        parser.error("--minutes must be above 0 and --save_every at least 1")
    deadline = time.monotonic() + 60 * flags.minutes
    # The learning rate and the sums are float64.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", str(flags.folder / COMPILED))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    training = Training(Recipe(flags.folder))
    training.run(deadline, flags.save_every)
    if training.finished:
        print(f"all epochs are done: see {flags.folder / CURVE}")


if __name__ == "__main__":
    main()
