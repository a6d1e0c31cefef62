"""Search spaces: what each may hold."""

import pytest

from trainers.kinds.search import Choice, Integers, Uniform
from trainers.tasks import registry


@pytest.mark.parametrize(
    "kind, arguments, message",
    [
        (Uniform, (1.0, 1.0), "`low` must be below `high`.*low=1.0, high=1.0"),
        (Uniform, (0.0, float("inf")), "must be finite.*high=inf"),
        (Uniform, (0.0, 1.0, True), "`low` must be above 0 with log=True.*low=0.0"),
        (Integers, (3, 2), "`low` must be below `high`.*low=3, high=2"),
        (Integers, (0, 2, True), "`low` must be above 0 with log=True.*low=0"),
        (Choice, ((1,),), "`values` must have at least two values"),
    ],
)
def test_a_range_without_values_is_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(*arguments)


def test_every_task_has_a_search_space():
    assert all(task.search for task in registry.TASKS.values())
