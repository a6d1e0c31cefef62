"""The report over runs: what it reads, and what it says of it."""

import dataclasses
import json
import math

import pytest

from trainers import report
from trainers.data import files
from trainers.kinds.measures import Metric
from trainers.tasks import registry
from trainers.training import resources
from trainers.training.workdir import WorkdirError

COST = resources.Cost(weight=9000.0, seconds=3723.4, peak_bytes=1.5 * 2**30)._asdict()


def write_run(
    folder, *, task="ptb", epochs=3, losses=(5.0, 4.5, 4.25), test=None, **result
):
    """Writes what a run leaves: the losses of its epochs and, where it has finished, its scores."""
    folder.mkdir(parents=True)
    values = {"task": task, "preset": "small", "training": {"epochs": epochs}}
    (folder / "config.json").write_text(json.dumps(values))
    rows = [("train_interval", 5, 0.5, 9.0), ("train_interval", 7, 0.7, 8.5)]
    rows += [("validation", 10 * n, float(n), loss) for n, loss in enumerate(losses, 1)]
    measure = registry.get(task).measure
    lines = [
        f"{kind},{step},{epoch},{measure.from_nats(loss)}"
        for kind, step, epoch, loss in rows
    ]
    (folder / "metrics.csv").write_text(
        "".join(f"{line}\n" for line in [f"kind,step,epoch,{measure.name}", *lines])
    )
    if test is not None:
        scores = {
            name: {"tokens": tokens, measure.name: measure.from_nats(test)}
            for name, tokens in (("exact", 2000), ("trellisnet", 1900))
        }
        kept = {"epochs": epochs, "scores": {"test": scores}, **result}
        (folder / "result.json").write_text(json.dumps(kept))
    return str(folder)


def cells(table, name):
    """The cells of the row that begins with a name."""
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return row.strip("| ").split(" | ")[1:]


def test_a_finished_run_has_all_of_its_row(tmp_path):
    path = write_run(tmp_path / "one", test=math.log(99.25), parameters=1234, cost=COST)
    table = report.table(report.read_runs([path]))
    assert cells(table, "one") == [
        "small",
        "1,234",
        "99.25 (2,000 tokens)",
        "99.25 (1,900 tokens)",
        "3",
        "9,000",
        "1:02:03",
        "1.5 GiB",
    ]


def test_a_run_that_ended_by_itself_has_its_epochs(tmp_path):
    path = write_run(tmp_path / "one", test=4.0, best_epoch=1)
    kept = json.loads((tmp_path / "one/config.json").read_text())
    kept["training"]["epochs"] = 8
    for stop_after, told in ((2, "3"), (3, "3 of 8, unfinished")):
        kept["schedule"] = {"stop_after": stop_after}
        (tmp_path / "one/config.json").write_text(json.dumps(kept))
        assert cells(report.table(report.read_runs([path])), "one")[4] == told


@pytest.mark.parametrize("result", [{}, {"cost": dict.fromkeys(COST)}])
def test_what_a_run_of_an_earlier_version_does_not_tell_is_a_dash(tmp_path, result):
    path = write_run(tmp_path / "one", test=4.0, **result)
    table = report.table(report.read_runs([path]))
    assert cells(table, "one")[1] == "-"
    assert cells(table, "one")[-4:] == ["3", "-", "-", "-"]


def test_a_metric_stands_beside_the_measure(tmp_path, monkeypatch):
    metric = Metric("next_token", compute=None, decimals=1, unit=" %")
    task = dataclasses.replace(registry.get("ptb"), metrics=(metric,))
    monkeypatch.setitem(registry.TASKS, "ptb", task)
    path = write_run(tmp_path / "one", test=math.log(99.25))
    file = tmp_path / "one" / "result.json"
    result = json.loads(file.read_text())
    result["scores"]["test"]["exact"]["next_token"] = 31.26
    file.write_text(json.dumps(result))
    exact, authors = cells(report.table(report.read_runs([path])), "one")[2:4]
    assert exact == "99.25 (2,000 tokens), next_token 31.3 %"
    assert authors == "99.25 (1,900 tokens)"  # a run of before has none


def test_unfinished_runs_are_shown_as_such(tmp_path):
    begun = write_run(tmp_path / "begun", losses=(5.0, 4.5))
    longer = write_run(tmp_path / "longer", test=4.0, cost=COST)
    kept = json.loads((tmp_path / "longer" / "config.json").read_text())
    kept["training"]["epochs"] = 8  # goes on; the result is that of epoch 3
    (tmp_path / "longer" / "config.json").write_text(json.dumps(kept))
    table = report.table(report.read_runs([begun, longer]))
    assert cells(table, "begun")[1:] == [
        "-",
        "-",
        "-",
        "2 of 3, unfinished",
        "-",
        "-",
        "-",
    ]
    assert cells(table, "longer")[1:] == [
        "-",
        "-",
        "-",
        "3 of 8, unfinished",
        "-",
        "-",
        "-",
    ]


def test_a_run_that_went_on_with_other_values_has_a_note(tmp_path):
    paths = [
        write_run(tmp_path / name, test=4.0) for name in ("changed", "longer", "same")
    ]
    rate = {
        "step": 20,
        "epoch": 2.0,
        "field": "optimizer.learning_rate",
        "was": 1.0,
        "now": 0.5,
    }
    epochs = {**rate, "field": "training.epochs", "was": 2, "now": 3}
    for name, changes in (("changed", [epochs, rate]), ("longer", [epochs])):
        (tmp_path / name / "changes.json").write_text(json.dumps({"changes": changes}))
    *_, note = report.table(report.read_runs(paths)).splitlines()
    told = "`config.optimizer.learning_rate`: 1.0 -> 0.5 from step 20 on"
    assert note == f"changed went on with other values: {told}."
    (tmp_path / "same" / "changes.json").write_text("{")
    with pytest.raises(WorkdirError, match=r"changes\.json"):
        report.read_runs(paths)


def test_each_task_has_its_section_with_the_papers_numbers(tmp_path):
    paths = [
        write_run(tmp_path / "one", test=4.0),
        write_run(tmp_path / "two", task="text", test=4.0),
    ]
    ptb, text = report.table(report.read_runs(paths)).split("## text: ")
    assert ptb.startswith("## ptb: perplexity\n")
    assert "| *paper* | as published | 24M | - | 56.97 | - |" in ptb
    assert "| *quoted* | AWD-LSTM | 24M | - | 58.80 | - |" in ptb
    assert "| two |" in text and "*paper*" not in text


def test_characters_are_told_in_bits(tmp_path):
    path = write_run(tmp_path / "one", task="ptb_char", test=1.25 * math.log(2))
    table = report.table(report.read_runs([path]))
    assert table.startswith("## ptb_char: bpc\n")
    assert cells(table, "one")[2] == "1.250 (2,000 characters)"
    assert "| 13.4M | - | 1.158 |" in table


def test_the_picture_has_a_curve_and_a_line_for_each_run(tmp_path):
    paths = [
        write_run(tmp_path / "one", test=math.log(70.0)),
        write_run(tmp_path / "two", losses=(5.0,)),
        write_run(tmp_path / "three", task="text", test=4.0),
    ]
    picture = report.draw(report.read_runs(paths))
    curves, results, _, others = picture.axes
    assert [line.get_label() for line in curves.lines] == ["one", "two, unfinished"]
    assert list(curves.lines[0].get_xdata()) == [1, 2, 3]
    assert curves.lines[0].get_ydata() == pytest.approx(
        [math.exp(x) for x in (5, 4.5, 4.25)]
    )
    names = [tick.get_text() for tick in results.get_yticklabels()]
    place = names.index("one")  # the best at the bottom
    assert names[place - 1 : place + 2] == [
        "paper, no hidden dropout",
        "one",
        "paper, input every 20 layers",
    ]
    assert [tick.get_text() for tick in others.get_yticklabels()] == ["three"]


def test_accuracy_is_better_the_higher(tmp_path):
    for name, accuracy in (("one", 91.0), ("two", 93.5)):
        path = tmp_path / name
        path.mkdir()
        values = {"task": "seq_mnist", "preset": "small", "training": {"epochs": 1}}
        (path / "config.json").write_text(json.dumps(values))
        (path / "metrics.csv").write_text(
            f"kind,step,epoch,accuracy\nvalidation,1,1.0,{accuracy}\n"
        )
        score = {"accuracy": accuracy, "images": 1000, "loss": 0.1}
        result = {"epochs": 1, "scores": {"test": {"exact": score}}}
        result["parameters"] = 5
        (path / "result.json").write_text(json.dumps(result))
    runs = report.read_runs([str(tmp_path / name) for name in ("one", "two")])
    assert cells(report.table(runs), "two")[1:4] == ["5", "93.50 % (1,000 images)", "-"]
    curves, results = report.draw(runs).axes
    assert list(curves.lines[0].get_ydata()) == [91.0]
    names = [
        tick.get_text() for tick in results.get_yticklabels()
    ]  # the best at the bottom
    assert names == ["paper, as published", "two", "one"]


def test_a_run_within_its_first_epoch_shows_its_training(tmp_path):
    """And no panel of results without any."""
    path = write_run(tmp_path / "one", task="text", losses=())
    curves, results = report.draw(report.read_runs([path])).axes
    (line,) = curves.lines
    assert line.get_label() == "one, begun: training"
    assert list(line.get_xdata()) == [0.5, 0.7]
    assert line.get_ydata() == pytest.approx([math.exp(9.0), math.exp(8.5)])
    assert not results.axison


def test_runs_of_the_same_name_go_by_their_paths(tmp_path):
    paths = [write_run(tmp_path / place / "run", test=4.0) for place in "ab"]
    assert [run.name for run in report.read_runs(paths)] == paths


@pytest.mark.parametrize(
    "damage, problem, points",
    [
        (
            lambda table: table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes()),
            "byte-order",
            3,
        ),
        (
            lambda table: table.write_text(table.read_text()[:-2]),
            "last line is cut off",
            2,
        ),
        (lambda table: table.write_text(""), "it is empty", 0),
        (lambda table: (table.unlink(), table.mkdir()), "Is a directory", 0),
    ],
)
def test_a_damaged_table_is_told_and_left_as_it_is(
    tmp_path, capsys, damage, problem, points
):
    path = write_run(tmp_path / "run", test=4.0)
    table = tmp_path / "run" / "metrics.csv"
    damage(table)
    content = table.is_file() and table.read_bytes()
    report.run([path], tmp_path)
    error = capsys.readouterr().err
    assert error.startswith(f"warning: {table} is shown as far as it can be read (")
    assert problem in error and len(error.splitlines()) == 1
    assert len(report.read_run(path, "run").curve) == points
    assert (table.is_file() and table.read_bytes()) == content
    assert {each.name for each in (tmp_path / "run").iterdir()} == {
        "config.json", "metrics.csv", "result.json",
    }  # fmt: skip


def test_half_a_line_of_a_run_at_work_is_no_damage(tmp_path):
    path = write_run(tmp_path / "run")
    table = tmp_path / "run" / "metrics.csv"
    table.write_text(table.read_text() + "validation,40,4.0,1")
    run = report.read_run(path, "run")
    assert run.problem is None and len(run.curve) == 3


def test_a_number_that_was_not_finite_is_a_dash(tmp_path):
    path = write_run(tmp_path / "one", test=5000.0)
    files.write_json(tmp_path / "one" / "result.json", json.loads(
        (tmp_path / "one" / "result.json").read_text()
    ))  # fmt: skip
    (run,) = report.read_runs([path])
    assert cells(report.table([run]), "one")[2:4] == ["-", "-"]
    assert run.values() == {}
    report.draw([run])


def test_the_command_writes_and_tells(pictures, tmp_path, capsys, monkeypatch):
    path = write_run(tmp_path / "run", test=4.0)
    monkeypatch.setattr(report.sys, "argv", ["report", "a run", "--output=docs"])
    report.run([path], tmp_path / "new" / "docs")
    text = (tmp_path / "new" / "docs" / "results.md").read_text()
    assert "Written by `python -m trainers.report 'a run' --output=docs`." in text
    assert "![Validation curves and test results](results.png)" in text
    assert capsys.readouterr().out.strip() in text
    assert (
        (tmp_path / "new" / "docs" / "results.png").read_bytes().startswith(b"\x89PNG")
    )


def test_the_name_of_a_run_commands_neither_terminal_nor_picture(
    pictures, tmp_path, capsys, monkeypatch
):
    name = "\x1b[31mrun $x_{$"
    path = write_run(tmp_path / name, test=4.0)
    (tmp_path / name / "metrics.csv").write_text("")
    monkeypatch.setattr(report.sys, "argv", ["report", path])
    report.run([path], tmp_path / "docs")
    printed = capsys.readouterr()
    text = (tmp_path / "docs" / "results.md").read_text()
    for shown in (printed.out, printed.err, text):
        assert r"\x1b[31mrun $x_{$" in shown and "\x1b" not in shown
