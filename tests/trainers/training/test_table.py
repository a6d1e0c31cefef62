"""The table of a run: what is written, and what becomes of one that somebody has edited."""

import errno
import os

import pytest
from etils import epath

from trainers.training import table

HEADER = "kind,step,epoch,rate_per_second,loss,perplexity"
LINES = [
    "train_interval,2,0.5,64.5,2.5,12.2",
    "train_interval,4,1.0,64.5,2.25,9.5",
    "train_epoch,4,1.0,,2.375,10.8",
    "validation,4,1.0,,2.0,7.4",
    "train_interval,6,1.5,61.0,1.75,5.8",
]
WHOLE = "".join(f"{line}\n" for line in [HEADER, *LINES])
ROW = {"kind": "train_interval", "step": 8, "epoch": 2.0, "loss": 1.5}


@pytest.fixture
def path(tmp_path):
    return epath.Path(tmp_path) / table.METRICS


def go_on(path, step=6):
    """Opens the table as a run does that goes on, and adds a row; returns what it said."""
    said = []
    opened = table.Table(path, last_step=step, announce=said.append)
    opened.append(ROW)
    return said


def lines_of(path):
    return path.read_text().splitlines()


def test_a_whole_table_is_gone_on_with(path):
    path.write_text(WHOLE)
    assert go_on(path) == []
    assert path.read_text() == WHOLE + "train_interval,8,2.0,,1.5,\n"
    assert [each.name for each in path.parent.iterdir()] == [table.METRICS]


@pytest.mark.parametrize(
    "half", ["t", "train_interval,8", "train_interval,8,2.0,60.1,1", LINES[0]]
)
def test_half_a_line_is_what_a_killed_process_leaves(path, half):
    path.write_text(WHOLE + half)
    assert go_on(path, step=1) == []
    assert lines_of(path) == [HEADER, "train_interval,8,2.0,,1.5,"]


def changed(old, new):
    """The table with a text in the place of another."""
    return WHOLE.replace(old, new).encode()


# What stands in the file, what is said of it, and how many rows can be read.
DAMAGES = {
    "byte-order mark": (b"\xef\xbb\xbf" + WHOLE.encode(), "carriage returns", 5),
    "carriage returns": (changed("\n", "\r\n"), "carriage returns", 5),
    "semicolons": (changed(",", ";"), "it has no header", 0),
    "a lost line break": (changed(LINES[2] + "\n", LINES[2]), "line 4 is no row", 3),
    "bad UTF-8": (WHOLE.encode().replace(b"2.25", b"\xff"), "bad UTF-8", 4),
    "bad UTF-8 in a step": (WHOLE.encode().replace(b",2,", b",\xff,"), "bad UTF-8", 4),
    "UTF-16": (WHOLE.encode("utf-16"), "it has no header", 0),
    "nothing": (b"", "it is empty", 0),
    "no header": (changed(HEADER + "\n", ""), "no header", 0),
    "another file": (b"mine\n", "it has no header", 0),
    "a column twice": (changed("perplexity", "loss"), "no header", 0),
    "no number": (changed("2.25", "low"), "line 3 is no row", 4),
    "a number of others": (changed(",2,", ",²,"), "line 2 is no row", 4),
    "a negative step": (changed(",2,", ",-2,"), "line 2 is no row", 4),
    "an endless step": (changed(",2,", f",{'9' * 9999},"), "line 2", 4),
    "no epoch": (changed("0.5,", "inf,"), "line 2 is no row", 4),
    "an empty epoch": (changed("0.5,", ","), "line 2 is no row", 4),
    "a row twice": ((WHOLE + LINES[0] + "\n").encode(), "line 7 is no row", 5),
    "a blank line": (changed(LINES[0], "\n" + LINES[0]), "line 2 is no row", 5),
    "a quotation mark": (changed("2.25", '"2.25'), "line 3", 4),
    "zeros": (WHOLE.encode() + bytes(40) + b"\n", "line 7 is no row", 5),
    "the end": (WHOLE[:-3].encode(), "its last line is cut off", 4),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_table_that_no_run_writes_is_set_aside(path, damage):
    """And what can be read of it goes on."""
    content, problem, count = DAMAGES[damage]
    path.write_bytes(content)
    aside = path.with_name("metrics.csv.unreadable")
    (said,) = go_on(path)
    assert (
        problem in said
        and f" {path} " in f" {said}"
        and f"set aside as {aside}," in said
    )
    assert f"its {count} readable rows" in said and "\n" not in said
    assert aside.read_bytes() == content
    assert len(lines_of(path)) == 1 + count + 1 and "\ufeff" not in path.read_text()
    assert lines_of(path)[-1].startswith("train_interval,8,2.0,")
    assert go_on(path, step=8) == []  # it is as a run writes it


def test_what_is_set_aside_is_never_written_over(path):
    for number, content in enumerate([b"first", b"second", b"third"], 1):
        path.write_bytes(content)
        go_on(path)
        name = f"metrics.csv.unreadable{f'-{number}' if number > 1 else ''}"
        assert path.with_name(name).read_bytes() == content


@pytest.mark.parametrize("writes", [0, 1])
def test_killed_while_setting_a_table_aside_it_has_all_its_rows_the_next_time(
    path, monkeypatch, writes
):
    content = b"\xef\xbb\xbf" + WHOLE.encode()
    path.write_bytes(content)
    replace, done = type(path).replace, []

    def killed(*arguments):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(arguments)
        replace(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            go_on(path)
    go_on(path)
    assert path.read_text().startswith(WHOLE)
    assert {each.read_bytes() for each in path.parent.glob("*.unreadable*")} == {
        content
    }


@pytest.mark.parametrize("kind", ["folder", "forbidden", "link"])
def test_a_table_that_cannot_be_opened_is_set_aside(path, kind, monkeypatch):
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        os.symlink(path.name, path)
    else:
        path.write_text(WHOLE)
        _refuse(monkeypatch, "read_bytes", errno.EACCES)
    (said,) = go_on(path)
    assert "it cannot be read: " in said and "metrics.csv.unreadable" in said
    monkeypatch.undo()
    assert lines_of(path)[-1].startswith("train_interval,8,2.0")
    aside = path.with_name("metrics.csv.unreadable")
    assert kind != "forbidden" or aside.read_text() == WHOLE


def _refuse(monkeypatch, name, code, times=100):
    """Has a method of paths fail for some times, that of the table's."""
    original = getattr(type(epath.Path("/")), name)
    failures = []

    def failing(path, *arguments, **others):
        if path.name == table.METRICS and len(failures) < times:
            failures.append(path)
            raise OSError(code, os.strerror(code), str(path))
        return original(path, *arguments, **others)

    monkeypatch.setattr(type(epath.Path("/")), name, failing)


def test_a_failure_that_passes_is_no_damage(path, monkeypatch):
    path.write_text(WHOLE)
    _refuse(monkeypatch, "read_bytes", errno.EIO, times=1)
    assert go_on(path) == []


def test_what_cannot_be_set_aside_is_left_as_it_is(path, monkeypatch):
    path.write_text("mine")

    def forbidden(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(path), "replace", forbidden)
    (said,) = go_on(path)
    assert "cannot be set aside" in said and "it stays, and gets no more rows" in said
    monkeypatch.undo()
    assert path.read_text() == "mine"


@pytest.mark.parametrize("operation", ["append", "rewrite"])
@pytest.mark.parametrize("again", ["append", "flush"])
def test_a_row_that_could_not_be_written_is_written_the_next_time(
    path, monkeypatch, operation, again
):
    path.write_text(WHOLE)
    opened = table.Table(path, last_step=6)
    if operation == "append":
        opened.append(ROW)
    failing = {"append": "open", "rewrite": "replace"}[operation]
    with monkeypatch.context() as patch:
        if operation == "append":
            _refuse(patch, failing, errno.ENOSPC, times=1)
        else:
            patch.setattr(table, "write_atomically", _full)
        with pytest.raises(OSError):
            opened.append(ROW | {"step": 10})
    if again == "append":
        opened.append(ROW | {"step": 12})
    else:
        opened.flush()
    steps = [line.split(",")[1] for line in lines_of(path)[len(LINES) + 1 :]]
    before = ["8"] if operation == "append" else []
    assert steps == before + ["10"] + (["12"] if again == "append" else [])


def _full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_reading_changes_nothing(path):
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE.encode())
    found = table.read(path)
    assert len(found.rows) == 5 and "byte-order mark" in found.problem
    assert [each.name for each in path.parent.iterdir()] == [table.METRICS]
    assert table.read(path.with_name("none")) == table.Content([], [])
