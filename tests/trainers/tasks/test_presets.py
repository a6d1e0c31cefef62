"""Presets in words."""

import pytest

from trainers.data.names import flatten
from trainers.tasks import config as configs
from trainers.tasks import registry


@pytest.mark.parametrize("task", registry.EVERY)
def test_each_preset_has_a_line_of_its_own(task):
    lines = configs.described(task)
    assert list(lines) == list(registry.get(task).presets)
    for line in lines.values():
        assert line.endswith("]") and "\n" not in line and "partial(" not in line
    values = {}
    for name, line in lines.items():
        own = flatten(configs.load(task, name))
        values.setdefault(line, []).append(own["model.units"])
    assert all(len(each) == 1 for each in values.values()), values


def test_an_ablation_names_its_change():
    line = configs.described("ptb")["paper_no_weight_dropout"]
    assert "Here model.weight_dropout=0.0." in line


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="unknown --task 'ptbb'"):
        configs.described("ptbb")
