"""The suite: its commands, and the document that it writes."""

import json
import re

from benchmarks import report, suite
from benchmarks.workers import Reading, Result

PLACES = {"reference_dir": "/net", "data_dir": None}


def result(name="lstm"):
    facts = {"flops": 10, "receptive_field": None, "parameters": 1}
    found = {"trellis": Result(facts, [Reading(2.0, 5)]), name: Result(facts, [Reading(1.0, None)])}
    return {
        "command": ["python", "-m", "benchmarks.train_step", "--reference_dir=/home/me/net"],
        "sizes": {"batch_size": 2, "time_steps": 5, "discard": 0, "mode": "train"},
        **report.machine(),
        "threads": 2,
        "rows": [suite.train_step.row(each, found) for each in found],
        "left_out": {"keras-tcn": "not installed"},
    }


def test_a_result_goes_between_its_markers(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(result()))
    document = "a\n<!-- one -->\nold\n<!-- /one -->\nb\n<!-- two -->\nkept\n<!-- /two -->\nc\n"
    text = suite.rendered(document, tmp_path)
    assert text.startswith("a\n<!-- one -->\n```\n.venv/bin/python -m benchmarks.train_step")
    assert "old" not in text and text.endswith("b\n<!-- two -->\nkept\n<!-- /two -->\nc\n")
    assert "--reference_dir=/tmp/trellisnet" in text and "/home/me" not in text
    assert "| keras.layers.LSTM | 1,000.0 | 0.50, **0.50**, 0.50 |" in text
    assert "Left out: keras-tcn: not installed" in text
    assert suite.rendered(text, tmp_path) == text


def test_each_command_is_known_and_has_its_place():
    document = suite.DOCUMENT.read_text(encoding="utf-8")
    marked = re.findall(r"<!-- (\w+) -->", document)
    assert len(marked) == len(set(marked)) and set(suite.COMMANDS) <= set(marked)
    assert all(f"<!-- /{name} -->" in document for name in marked)
    for name, (module, *_) in suite.COMMANDS.items():
        assert f"benchmarks.{module}" in suite.MODULES
        assert suite.command(name, suite.ROOT, PLACES)[-1].endswith(f"{name}.json")


def test_folders_go_to_the_commands_that_need_them():
    assert "--reference_dir=/net" in suite.command("evaluate", suite.ROOT, PLACES)
    assert not any("data_dir" in word for word in suite.command("evaluate", suite.ROOT, PLACES))
