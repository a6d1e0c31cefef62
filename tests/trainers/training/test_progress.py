"""What a run shows and records."""

import csv
import errno
import io
import os
import types

import pytest
from etils import epath
from matplotlib import figure

from tests.trainers.training.event_files import scalars
from trainers.training import events, progress, schedules


class Terminal(io.StringIO):
    """A file that says it is one."""

    def isatty(self):
        return True


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path)


def begin(folder, out, step=0, costs=(1.0,), evaluation_steps=0.0, scoring=0.0):
    task = types.SimpleNamespace(
        display=lambda metrics: {
            "perplexity": 2 ** metrics["loss"],
            "loss": metrics["loss"],
        },
        unit="tokens",
        evaluation_steps=evaluation_steps,
        scoring=scoring,
    )
    plan = schedules.Plan(3, 12, 4, 2, None, costs)
    return progress.Progress(folder, task, plan, step=step, out=out)


def go(shown, steps):
    """Tells of steps as the loop does: an interval every two, an epoch every four."""
    for _ in range(steps):
        shown.advance(1, 0.01)
        if shown.step % 2 == 0:
            shown.interval({"loss": 8 / shown.step, "gradient_norm": 0.5}, 64.0, 0.002)
        if shown.step % 4 == 0:
            validation = {"loss": 9 / shown.step}
            shown.epoch({"loss": 8.5 / shown.step}, validation, best=True, seconds=1.0)


def rows(folder):
    return list(csv.DictReader(io.StringIO((folder / progress.METRICS).read_text())))


def steps(folder):
    return [row["step"] for row in rows(folder)]


# The rows of eight steps: of two each, and of an epoch and its validation after four.
EIGHT_STEPS = ["2", "4", "4", "4", "6", "8", "8", "8"]


def test_lines_where_there_is_no_terminal(folder):
    out = io.StringIO()
    shown = begin(folder, out)
    go(shown, 12)
    shown.close()
    lines = out.getvalue().splitlines()
    assert "\r" not in out.getvalue()
    assert lines[0].startswith(
        "epoch 1/3, step 2/12: perplexity 16, loss 4, lr 0.002, "
    )
    assert lines[0].endswith(" left")
    assert "tokens/s" in lines[0]
    assert (
        "epoch 1/3: train perplexity 4.362, loss 2.125; validation perplexity"
        in out.getvalue()
    )


@pytest.mark.parametrize("step", [0, 4])
def test_the_time_that_is_told_is_that_of_the_whole_run(folder, step):
    """Steps of 10 s and validations of 100 s; the scores take as long as 3 of these."""
    out = io.StringIO()
    shown = begin(folder, out, step=step, evaluation_steps=9.0, scoring=3.0)
    loss = {"loss": 1.0}
    while shown.step < 12:
        shown.advance(1, 70.0 if shown.step == step else 10.0)
        shown.interval(loss, 64.0, 0.002)
        if shown.step % 4 == 0:
            first = shown.step == step + 4  # it traces, as the first step does
            shown.epoch(loss, loss, best=True, seconds=130.0 if first else 100.0)
    shown.close()
    lines = out.getvalue().splitlines()
    left = {
        int(line.split("step ")[1].split("/")[0]): line.rsplit(", ", 1)[1]
        for line in lines
        if "lr" in line
    }
    told = lambda seconds: f"0:{seconds // 60:02}:{seconds % 60:02} left"  # noqa: E731
    validations = 3 - step // 4
    # A validation is taken to last as long as 9 steps until one is measured.
    assert left[step + 2] == told(10 * (10 - step) + 90 * (validations + 3))
    assert left[11] == told(10 + (90 if step else 100) * (1 + 3))
    assert left[12] == told((90 if step else 100) * (1 + 3))
    (line,) = [line for line in lines if "end of the run" in line]
    expected = told(10 * (10 - step) + 90 * (validations + 3)).removesuffix(" left")
    assert (
        line
        == f"about {expected} to the end of the run, validations and scores included"
    )


def test_the_time_counts_that_the_steps_of_later_parts_take_longer(folder):
    out = io.StringIO()
    shown = begin(folder, out, costs=(0.25, 0.5, 1.0))
    for seconds in (9.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0):
        shown.advance(1, seconds)
        shown.interval({"loss": 1.0}, 64.0, 0.002)
    left = [line.rsplit(", ", 1)[1] for line in out.getvalue().splitlines()]
    assert left[1:4] == ["0:00:26 left", "0:00:25 left", "0:00:24 left"]
    assert left[-1] == "8.0 s left"


def test_one_line_where_there_is_a_terminal(folder):
    out = Terminal()
    shown = begin(folder, out)
    go(shown, 8)
    shown.close()
    (line,) = [line for line in out.getvalue().split("\n") if line]  # the others: \r
    assert line.split("\r")[-1].startswith(" 67%|")
    assert "8/12, epoch 2/3, train perplexity 2, validation perplexity " in line
    assert line.rstrip().endswith(" left")


@pytest.mark.usefixtures("pictures")
def test_the_table_has_a_row_an_interval_and_two_an_epoch(folder):
    shown = begin(folder, io.StringIO())
    go(shown, 4)
    shown.close()
    kinds = [
        (row["kind"], row["step"], row["epoch"], row["loss"]) for row in rows(folder)
    ]
    assert kinds == [
        ("train_interval", "2", "0.5", "4.0"),
        ("train_interval", "4", "1.0", "2.0"),
        ("train_epoch", "4", "1.0", "2.125"),
        ("validation", "4", "1.0", "2.25"),
    ]
    assert rows(folder)[0]["learning_rate"] == "0.002"
    assert rows(folder)[0]["gradient_norm"] == "0.5"
    assert (folder / progress.CURVES).read_bytes().startswith(b"\x89PNG")
    assert list((folder / progress.EVENTS).iterdir())


def test_steps_computed_again_have_one_row(folder):
    shown = begin(folder, io.StringIO())
    go(shown, 8)
    shown.close()
    whole = rows(folder)
    with (folder / progress.METRICS).open("a") as file:
        file.write("train_interval,10,2.")  # killed while writing
    again = begin(folder, io.StringIO(), step=5)
    go(again, 3)
    again.close()
    ignored = {"tokens_per_second"}
    assert [
        {k: v for k, v in row.items() if k not in ignored} for row in rows(folder)
    ] == [{k: v for k, v in row.items() if k not in ignored} for row in whole]


@pytest.mark.parametrize("step", ["²", "٣", "-1", "1.0", ""])
def test_a_row_whose_step_is_no_number_is_left_out(folder, step):
    go(begin(folder, io.StringIO()), 4)
    table = folder / progress.METRICS
    whole = rows(folder)
    last = table.read_text().splitlines()[-1]
    assert last.startswith("validation,4,")
    with table.open("a") as file:
        file.write(last.replace("validation,4,", f"validation,{step},") + "\n")
    begin(folder, io.StringIO(), step=4)
    go(begin(folder, io.StringIO(), step=4), 2)
    assert rows(folder)[:-1] == whole


def test_a_row_of_an_epoch_that_was_told_but_not_saved_stays_one_row(folder):
    go(begin(folder, io.StringIO()), 4)
    again = begin(folder, io.StringIO(), step=4)
    again.epoch({"loss": 2.125}, {"loss": 2.25}, best=True, seconds=1.0)
    assert [row["kind"] for row in rows(folder)][2:] == ["train_epoch", "validation"]


def test_a_full_disk_is_told_once_and_stops_nothing(folder, monkeypatch):
    out = io.StringIO()
    shown = begin(folder, out)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(progress, "write_atomically", full)
        go(shown, 8)
    assert out.getvalue().count("No space left on device") == 1
    go(shown, 2)  # the disk has room again
    shown.close()
    assert steps(folder) == [*EIGHT_STEPS, "10"]


def test_events_that_were_lost_on_the_way_to_the_disk_are_written_in_the_end(folder):
    """TensorFlow's writer tells of no write that failed; what follows in the file is lost too."""
    out = io.StringIO()
    shown = begin(folder, out)
    go(shown, 4)
    shown.flush()
    (file,) = (folder / progress.EVENTS).glob("*tfevents*")
    half = len(file.read_bytes()) // 2
    with open(file, "r+b") as stream:  # the one that is being written
        stream.seek(half)
        stream.write(bytes(8))
    go(shown, 4)
    shown.close()
    intact = folder / "intact"
    intact.mkdir()
    shown = begin(intact, io.StringIO())
    go(shown, 8)
    shown.close()
    assert scalars(folder / progress.EVENTS) == scalars(intact / progress.EVENTS)
    assert "cannot be read (damaged at byte" in out.getvalue()


def test_events_that_cannot_be_written_once_more_either_are_told(folder, monkeypatch):
    out = io.StringIO()
    shown = begin(folder, out)
    go(shown, 4)
    # As if they had never come there.
    monkeypatch.setattr(events, "event_files", lambda _: [])
    shown.close()
    assert "cannot be written (14 events of 14 are not in its files)" in out.getvalue()


def test_each_cause_is_told_once(folder, monkeypatch):
    out = io.StringIO()
    codes = iter([errno.ENOSPC, errno.EIO, errno.ENOSPC])

    def failing(*_, **__):
        code = next(codes)
        raise OSError(code, os.strerror(code))

    shown = begin(folder, out)
    monkeypatch.setattr(figure.Figure, "savefig", failing)
    go(shown, 12)
    assert next(codes, None) is None
    assert out.getvalue().count("cannot be written") == 2


@pytest.mark.parametrize("name", [progress.METRICS, progress.CURVES, progress.EVENTS])
def test_what_stands_in_the_way_of_a_record_is_told_and_stops_nothing(folder, name):
    """A folder where there should be a file, and the other way round."""
    if name == progress.EVENTS:
        (folder / name).write_text("mine")
    else:
        (folder / name).mkdir()
        (folder / name / "mine").write_text("mine")
    out = io.StringIO()
    shown = begin(folder, out)
    go(shown, 8)
    shown.close()
    (line,) = [line for line in out.getvalue().splitlines() if str(folder) in line]
    assert name == progress.METRICS or "cannot be written" in line
    assert steps(folder) == EIGHT_STEPS


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", "-1", "0", ""])
def test_curves_are_drawn_of_whatever_rows_there_are(folder, value):
    go(begin(folder, io.StringIO()), 4)
    table = folder / progress.METRICS
    header, *lines = table.read_text().splitlines()
    kinds = [line.split(",")[0] for line in lines]
    cells = ",".join([value] * (header.count(",") - 2))
    edited = [f"{kind},{number},0.5,{cells}\n" for number, kind in enumerate(kinds)]
    table.write_text(header + "\n" + "".join(edited))
    shown = begin(folder, io.StringIO(), step=4)
    (folder / progress.CURVES).unlink()
    shown.epoch({"loss": 2.125}, {"loss": 2.25}, best=True, seconds=1.0)
    assert (folder / progress.CURVES).exists()


@pytest.mark.parametrize("span", [6, 30, 300, 3e4, 1e6, 1e9, 1e15])
@pytest.mark.parametrize("least", [1e-12, 0.004, 2.5])
def test_the_ticks_of_a_wide_range_have_room(least, span):
    picture = figure.Figure(figsize=(5.5, 4), layout="constrained")
    axes = picture.subplots()
    axes.plot([0, 1], [least, least * span])
    progress.choose_scale(axes, [least, least * span])
    assert axes.get_yscale() == "log"
    picture.draw_without_rendering()
    low, high = axes.get_ylim()
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 2 <= len(shown) <= 12
