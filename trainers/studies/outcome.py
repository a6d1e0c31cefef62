"""What a study comes to: its best settings as a preset, its trials as tables, and two pictures."""

import json
import shlex
import warnings
from collections.abc import Sequence
from typing import Any

import ml_collections
from etils import epath
from matplotlib import figure

from trainers.data.files import json_value, write_text
from trainers.kinds.search import Space
from trainers.studies.places import Place
from trainers.studies.trials import COMPLETE, FAILED, PRUNED, RUNNING, Trial, Trials
from trainers.tasks import registry, run_folders
from trainers.training import pages
from trainers.training.progress import choose_scale, save_picture

BEST, TABLE, TEXT = "best.json", "trials.csv", "study.md"
CURVES, IMPORTANCES = "curves.png", "importances.png"
PRESET = "tuned"  # the name of the best settings
_SHOWN = {COMPLETE: "done", PRUNED: "pruned", FAILED: "failed", RUNNING: "not ended"}
_LEAST = 10  # finished trials for importances


def write(
    place: Place, study: Trials, config: ml_collections.ConfigDict, space: Space
) -> None:
    """Writes the outcome of a study so far, in its folder; call it with the study's lock.

    Args:
        place: the study's folder.
        study: its trials.
        config: what all trials share.
        space: the search space.
    """
    trials, names = study.all(), list(space)
    folder = epath.Path(place.path)
    ranked = best_first(trials)
    if ranked:
        best = run_folders.load_config(place.trial(ranked[0].number)).to_dict()
        values = json_value(best | {"preset": PRESET})
        write_text(folder / BEST, json.dumps(values, indent=2) + "\n")
    write_text(folder / TABLE, _csv(trials, names))
    pictures = [CURVES]
    save_picture(_curves(trials, config), folder / CURVES)
    if importances := _importances(study, ranked, space):
        save_picture(_bars(importances), folder / IMPORTANCES)
        pictures.append(IMPORTANCES)
    # The best settings first, what was not finished last.
    others = sorted(
        (trial for trial in trials if trial.state in (PRUNED, FAILED)),
        key=lambda trial: (-max(trial.losses, default=0), trial.number),
    )
    titles = ["trial", "state", "validation", "steps", "units", *map(_title, names)]
    rows = [_cells(trial, config.task, names) for trial in (*ranked, *others)]
    table = pages.markdown(titles, rows, left=(1, 2))
    shown = "\n".join(f"![{name.partition('.')[0]}]({name})" for name in pictures)
    text = (
        f"# A study of {config.task}, preset {config.preset}\n\n{_counts(trials)}. "
        f"All cost the same processor time, but for those that were pruned. Trial 0 is the "
        f"preset. The settings of the first row are in {BEST}:\n\n"
        f"```\n{_command(place, config.task)}\n```\n\n"
        f"{table}\n\n{shown}\n"
    )
    write_text(folder / TEXT, text)


def line(trials: Sequence[Trial], number: int, task: str) -> str:
    """Returns a line about a trial that has ended."""
    trial = trials[number]
    loss, ranked = _loss(trial), best_first(trials)
    text = f"trial {number}: {_state(trial)}"
    text += "" if loss is None else f", validation {_measured(loss, task)}"
    if ranked and ranked[0].number == number:
        text += ", the best so far"
    preset = trials[0].values
    values = [
        f"{_title(name)}: {_value(value)}"
        for name, value in trial.values.items()
        if value != preset.get(name)
    ]
    return f"{text} ({'; '.join(values) or 'the preset'})"


def summary(place: Place, trials: Sequence[Trial], task: str) -> str:
    """Returns lines about a study: its best trial, and the command with that trial's settings."""
    counts = _counts(trials)
    ranked = best_first(trials)
    if not ranked:
        return f"{counts}; none is done yet"
    best, preset = ranked[0], trials[0]
    text = f"{counts}; the best is trial {best.number}: validation {_measured(best.loss, task)}"
    if preset.state == COMPLETE:
        text += f" (the preset: {_measured(preset.loss, task)})"
    return f"{text}\n{_command(place, task)}"


def _command(place: Place, task: str) -> str:
    command = ["python", "-m", registry.get(task).program]
    return shlex.join([*command, f"--config_file={place.path / BEST}"])


def _counts(trials: Sequence[Trial]) -> str:
    states = [_SHOWN[trial.state] for trial in trials]
    parts = [
        f"{states.count(state)} {state}" for state in _SHOWN.values() if state in states
    ]
    return f"{len(trials)} trial{'s' * (len(trials) > 1)}: {', '.join(parts)}"


def best_first(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the finished trials, the best first."""
    return sorted(
        (trial for trial in trials if trial.state == COMPLETE),
        key=lambda trial: trial.loss,
    )


def _loss(trial: Trial) -> float | None:
    """Returns a trial's loss or, if it has none, the last one on its way."""
    if trial.state == COMPLETE:
        return trial.loss
    return trial.losses[max(trial.losses)] if trial.losses else None


def _measured(loss: float, task: str) -> str:
    """Returns a validation loss in words."""
    return registry.get(task).format_loss(loss)


def _state(trial: Trial) -> str:
    state = _SHOWN[trial.state]
    if trial.state != COMPLETE and trial.losses:
        state += f" after part {max(trial.losses)}"
    return state + (f" ({trial.why})" if trial.why else "")


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _csv(trials: Sequence[Trial], names: Sequence[str]) -> str:
    rows: list[Sequence[Any]] = [
        ("trial", "state", "loss", "parts", "steps", "units", *names, "why")
    ]
    for trial in trials:
        parts = max(trial.losses, default=0)
        row = [trial.number, _SHOWN[trial.state], _loss(trial), parts]
        drawn = [trial.values.get(name) for name in names]
        rows.append([*row, trial.steps, trial.units, *drawn, trial.why])
    return pages.csv_text(rows)


def _cells(trial: Trial, task: str, names: Sequence[str]) -> list[str]:
    own = ["" if value is None else str(value) for value in (trial.steps, trial.units)]
    drawn = [_value(trial.values.get(name, "")) for name in names]
    loss = _loss(trial)
    measured = "" if loss is None else _measured(loss, task)
    return [str(trial.number), _state(trial), measured, *own, *drawn]


def _title(name: str) -> str:
    return name.partition(".")[2] or name


def _curves(
    trials: Sequence[Trial], config: ml_collections.ConfigDict
) -> figure.Figure:
    """Draws the validation loss of each trial against the share of its processor time."""
    picture = figure.Figure(figsize=(8, 5), layout="constrained")
    axes = picture.subplots()
    best = next((trial.number for trial in best_first(trials)), None)
    drawn: list[float] = []
    for trial in trials:
        points = sorted(trial.losses.items())
        shares = [epoch / config.training.epochs for epoch, _ in points]
        losses = [loss for _, loss in points]
        drawn += losses
        axes.plot(shares, losses, marker=".", **_style(trial, best))
    choose_scale(axes, drawn)
    axes.set(xlabel="share of a trial's processor time", ylabel="validation loss")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    return picture


def _style(trial: Trial, best: int | None) -> dict[str, Any]:
    """Returns how a trial's curve looks: the best and the preset stand out."""
    if trial.number == best:
        return dict(color="tab:orange", label=f"trial {best}, the best")
    if trial.number == 0:
        return dict(color="tab:blue", label="trial 0, the preset")
    line = ":" if trial.state == PRUNED else "-"
    return dict(color="tab:gray", alpha=0.5, linewidth=1, linestyle=line)


def _importances(
    study: Trials, ranked: Sequence[Trial], space: Space
) -> dict[str, float]:
    """Returns the share of each entry in what separates good trials from others, if known."""
    drawn = [trial for trial in ranked if trial.values]
    if len(drawn) < _LEAST or len({trial.loss for trial in drawn}) < 2:
        return {}
    with warnings.catch_warnings():
        # Optuna warns for each entry that there might be more trials.
        warnings.simplefilter("ignore")
        return study.importances(drawn, space)


def _bars(importances: dict[str, float]) -> figure.Figure:
    picture = figure.Figure(
        figsize=(8, 1 + 0.35 * len(importances)), layout="constrained"
    )
    axes = picture.subplots()
    axes.barh(list(importances), list(importances.values()), color="tab:blue")
    axes.invert_yaxis()
    axes.set(xlabel="importance (PED-ANOVA)")
    axes.grid(axis="x", alpha=0.3)
    return picture
