"""The card of a finished run: what was trained where, and its score beside the published one."""

import platform
from collections.abc import Mapping
from typing import Any

import jax
import keras
from etils import epath

from trainers.data import names
from trainers.data.files import write_text
from trainers.tasks import config as configs

NAME = "card.md"


def write(path: epath.Path, run: Any, scores: Mapping[str, Any]) -> None:
    """Writes the card into a run's folder.

    Args:
        path: the folder.
        run: the run, at its end.
        scores: the scores by split and protocol.
    """
    config, row, measure = run.config, run.row, run.parts.measure
    minutes, device = run.result()["cost"]["seconds"] / 60, jax.devices()[0]
    preset = names.flatten(configs.load(config.task, config.preset))
    recipe = [f"--task={config.task}", f"--preset={config.preset}"]
    for name, (_, value) in names.differences(preset, names.flatten(config)).items():
        recipe.append(f"--config.{name}={str(value).replace(' ', '')}")
    facts = {
        "Recipe": f"{' '.join(recipe)}, seed {config.seed}",
        "Parameters": f"{run.parameters:,}",
        "Computed in": config.model.dtype,
        "Trained": f"{run.done:,} steps, {len(run.losses)} epochs, {minutes:,.1f} minutes",
        "Best epoch": f"{run.best[1]}",
        "Devices": f"{run.devices.count} x {device.device_kind} ({device.platform})",
        "Versions": f"JAX {jax.__version__}, Keras {keras.__version__}, "
        f"Python {platform.python_version()}",
    }
    for split, protocols in scores.items():
        for protocol, score in protocols.items():
            name = f"{split} {measure.name}, protocol `{protocol}`"
            facts[name.capitalize()] = measure.text(score[measure.name])
    if row is not None and row.published is not None:
        facts[f"Published ({row.table}: {row.what})"] = measure.text(row.published)
    lines = [f"# {config.task}, {config.preset}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", "| epoch | validation loss | expected |", "|---:|---:|---:|"]
    for epoch, loss in enumerate(run.losses, 1):
        known = run.expected.get(epoch)
        lines.append(
            f"| {epoch} | {loss:.4f} | {'' if known is None else f'{known:.4f}'} |"
        )
    write_text(path / NAME, "\n".join([*lines, ""]))
