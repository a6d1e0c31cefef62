"""What a run's folder says of its config and its scores, and how its model is exported."""

from typing import NamedTuple

from etils import epath
from ml_collections import ConfigDict

from trainers.data.files import UnreadableError
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.training.workdir import (
    CONFIG,
    RESULT,
    WorkdirError,
    read_config,
    read_result,
)


class ExportOptions(NamedTuple):
    """How to export a run's best model.

    Attributes:
        output: the served model's folder.
        precision: the precision of the weights, one of `keras_trellis.export.PRECISIONS`. Below
            float32 the model card has the validation score before and after.
        data_dir: the folder of the run's data; only that score needs it.
        runtime: whether to write the form that `keras_trellis.serving` runs, too.
    """

    output: str
    precision: str = "float32"
    data_dir: str | None = None
    runtime: bool = False


def load_config(path: epath.Path) -> ConfigDict:
    """Returns the config of the run in a folder.

    Raises:
        WorkdirError: there is no config, or it is not valid.
    """
    values = read_config(path)
    try:
        return configs.from_dict(values)
    except ValueError as error:
        raise WorkdirError(f"{path / CONFIG}: {error}") from error


def facts(path: epath.Path, config: ConfigDict) -> dict[str, str]:
    """Returns what a model card says about a run: its task and its scores.

    Raises:
        UnreadableError: the run's result is damaged.
    """
    card = {"Task": config.task, "Preset": config.preset}
    result = read_result(path, {"scores": dict})
    measure = registry.get(config.task).measure
    try:
        for split, scores in (result["scores"] if result else {}).items():
            score = scores["exact"]
            value = score[measure.name]
            if value is not None:  # it is finite
                text = measure.format_score(value, measure.count(score))
                card[f"{split.capitalize()} {measure.name}"] = text
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"{path / RESULT} is damaged: its scores are not those of a run ({error!r})"
        ) from error
    return card


def change(name: str, precision: str, before: str, after: str) -> dict[str, str]:
    """Returns what a model card says about lower precision: the score before and after."""
    return {f"{name.capitalize()} in {precision}": f"{after}, in float32 {before}"}
