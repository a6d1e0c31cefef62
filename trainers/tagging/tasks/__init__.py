"""Tables of the user's own in which each step has a tag: what a machine does, second by second."""

import functools

from configs import csv_series
from trainers.kinds.measures import Measure
from trainers.time_series.tasks import CSV, TABLE_FIELDS, SeriesTask, load_tables

# Each step has an answer, and none is left out.
_ANSWER, _CROP = "data.answer", "data.crop"


class TaggingTask(SeriesTask):
    """Recordings with one class a step; some classes are rare."""

    folder = "trainers.tagging"


def small() -> dict:
    """A network that sees 1,024 rows; how long it trains depends on the data."""
    values = csv_series.small()
    del values["data"]["answer"], values["data"]["crop"]
    return values


TAGGING = TaggingTask(
    name="tagging",
    presets={"small": small},
    load=functools.partial(load_tables, numbers=False),
    objective="classes",
    one_answer=False,
    # Of the tags' F1 scores, so that a rare tag counts as much as a common one.
    measure=Measure("f1", 2, "steps", higher_is_better=True, unit=" %"),
    data=CSV.data,
    fields={
        name: field
        for name, field in TABLE_FIELDS.items()
        if name not in (_ANSWER, _CROP)
    },
    conditions=tuple(each for each in CSV.conditions if each.chooser != _ANSWER),
)
