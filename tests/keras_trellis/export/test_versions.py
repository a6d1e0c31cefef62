"""A version appears whole or not at all, and none is overwritten."""

import concurrent.futures
import contextlib
import errno
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

from keras_trellis import TrellisClassifier, TrellisLayer, export
from keras_trellis.export import versions
from tests.refusals import refuses


def write(folder):
    path = pathlib.Path(folder)
    (path / "variables").mkdir()
    (path / "variables" / "variables.index").write_text("weights")
    (path / "saved_model.pb").write_text("graph")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_versions_count_on(tmp_path):
    model = tmp_path / "served" / "model"
    assert versions.publish(write, str(model)) == str(model / "1")
    (model / "7").mkdir()
    (model / "not-a-version").mkdir()
    assert versions.publish(write, str(model)) == str(model / "8")
    assert names(model) == ["1", "7", "8", "not-a-version"]
    assert names(model / "8") == ["saved_model.pb", "variables"]


@pytest.mark.parametrize("name", ["²", "٣", "1²", "-4", "+4", "4.0", "1_0", str(2**63)])
def test_a_name_that_is_no_version_of_a_server(tmp_path, name):
    model = tmp_path / name  # neither is it one of a model's folder
    (model / name).mkdir(parents=True)
    with refuses("which has none"):
        versions.newest(str(model))
    assert (
        versions.publish(write, str(model))
        == versions.newest(str(model))
        == str(model / "1")
    )


def test_a_version_with_zeros_in_front(tmp_path):
    for name in ("2", "007"):
        (tmp_path / name).mkdir()
    assert versions.newest(str(tmp_path)) == str(tmp_path / "007")
    assert versions.publish(write, str(tmp_path)) == str(tmp_path / "8")


def test_after_the_greatest_version_there_is_none(tmp_path):
    greatest = str(2**63 - 1)
    (tmp_path / greatest).mkdir()
    assert versions.newest(str(tmp_path)) == str(tmp_path / greatest)
    with refuses(f"`path` must .* {greatest}"):
        versions.publish(write, str(tmp_path))
    assert names(tmp_path) == [greatest]


def test_while_it_is_written_no_version_is_seen(tmp_path):
    def look(folder):
        write(folder)
        assert not any(name.isdigit() for name in names(tmp_path))

    versions.publish(look, str(tmp_path))
    assert names(tmp_path) == ["1"]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    def fail(folder):
        write(folder)
        raise OSError("no space left")

    with refuses("no space left", OSError):
        versions.publish(fail, str(tmp_path))
    assert names(tmp_path) == []


def test_exports_at_the_same_time_take_different_versions(tmp_path):
    together = threading.Barrier(4)

    def meet(folder):
        write(folder)
        together.wait(timeout=60)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda _: versions.publish(meet, str(tmp_path)), range(4))
        )
    assert sorted(found) == [str(tmp_path / str(version)) for version in (1, 2, 3, 4)]
    assert all(
        names(tmp_path / str(version)) == ["saved_model.pb", "variables"]
        for version in (1, 4)
    )


KILLED = """
import os, pathlib, signal, sys
from keras_trellis import TrellisClassifier, TrellisLayer, export
from keras_trellis.export import versions
def write(folder):
    pathlib.Path(folder, "saved_model.pb").write_text("graph")
    print("writing", flush=True)
    sys.stdin.readline()
versions.publish(write, sys.argv[1])
"""


def test_what_a_kill_left_is_cleared_after_a_day_and_what_is_being_written_is_not(
    tmp_path,
):
    def left():
        return [name for name in names(tmp_path) if name.startswith(".")]

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    with contextlib.ExitStack() as stack:
        dead, live = (
            stack.enter_context(subprocess.Popen(line, **pipes)) for _ in range(2)
        )
        for process in (dead, live):
            assert process.stdout.readline() == "writing\n"
        assert len(left()) == 2
        dead.send_signal(signal.SIGKILL)
        dead.wait(60)
        versions.publish(write, str(tmp_path))
        assert len(left()) == 2  # which of them is dead shows after a day
        live.stdin.write("\n")
        live.stdin.close()
        assert live.wait(60) == 0
        (folder,) = left()
        os.utime(tmp_path / folder, (0, 0))
    versions.publish(write, str(tmp_path))
    assert names(tmp_path) == ["1", "2", "3"]
    assert names(tmp_path / "2") == ["saved_model.pb"]


@pytest.mark.parametrize(
    "name",
    [
        ".exporting-another.machine-0123456789abcdef0123456789abcdef",
        ".exporting-mine",
        "exporting",
    ],
)
def test_what_another_machine_or_somebody_else_has_made_is_left(tmp_path, name):
    (tmp_path / name).mkdir()
    versions.publish(write, str(tmp_path))
    assert names(tmp_path) == sorted([name, "1"])


@pytest.mark.parametrize("name", [".exporting-another.machine-", ".exporting-"])
def test_what_another_machine_has_left_is_cleared_after_a_day(tmp_path, name):
    folder = tmp_path / (name + "0123456789abcdef" * 2)
    (folder / "variables").mkdir(parents=True)
    for each in (folder, folder / "variables"):
        os.utime(each, (0, 0))
    versions.publish(write, str(tmp_path))
    assert names(tmp_path) == ["1"]


def test_a_folder_that_may_not_be_opened_is_an_error_and_not_made_again_and_again(
    tmp_path, monkeypatch
):
    made, make = [], os.mkdir

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    def count(path, *arguments):
        made.append(path)
        assert len(made) < 9
        make(path, *arguments)

    monkeypatch.setattr(os, "mkdir", count)
    monkeypatch.setattr(os, "open", refuse)
    with refuses("Permission denied", versions.NotWrittenError):
        versions.publish(write, str(tmp_path))
    assert sum(".exporting-" in os.path.basename(path) for path in made) == 1


def test_all_is_on_disk_before_the_version_is_seen(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def syncing(file):
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        assert not (tmp_path / "1").exists() or synced[-1] == str(tmp_path)
        sync(file)

    monkeypatch.setattr(os, "fsync", syncing)
    versions.publish(write, str(tmp_path))
    found = {os.path.relpath(path, synced[-2]) for path in synced[:-1]}
    assert found == {".", "saved_model.pb", "variables", "variables/variables.index"}
    assert synced[-1] == str(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(
    "owner, name", [(os, "fsync"), (os, "rename"), (os, "makedirs")]
)
def test_a_disk_that_fails_is_told_and_leaves_nothing(
    tmp_path, monkeypatch, owner, name, number
):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with refuses(f"no version .*{os.strerror(number)}", versions.NotWrittenError):
            versions.publish(write, str(tmp_path))
    assert names(tmp_path) == []


def test_an_error_of_tensorflow_is_told_in_a_line(tmp_path):
    def fail(folder):
        raise tf.errors.ResourceExhaustedError(
            None, None, "a: No space left on device\nin a graph"
        )

    with pytest.raises(versions.NotWrittenError) as error:
        versions.publish(fail, str(tmp_path))
    assert (
        str(error.value)
        == f"no version is written in {tmp_path}: a: No space left on device"
    )
    assert names(tmp_path) == []


def test_what_tensorflow_could_not_remove_is_no_part_of_a_version(
    tmp_path, monkeypatch
):
    save = tf.saved_model.save

    def leave(module, folder, **others):
        save(module, folder, **others)
        temporary = pathlib.Path(folder, "variables", "variables_temp")
        temporary.mkdir()
        (temporary / "part-00000-of-00001.index").write_text("")

    monkeypatch.setattr(tf.saved_model, "save", leave)
    model = TrellisClassifier(3, TrellisLayer(4, 2))
    model.build((None, None, 2))
    version = export.export_classifier(model, tmp_path / "served")
    assert not [*pathlib.Path(version).rglob("*temp*")]
    manifest = pathlib.Path(version, "manifest.json").read_text()
    assert "variables/variables.index" in manifest and "temp" not in manifest


def test_an_object_store_gets_the_graph_last(monkeypatch):
    copied = []
    copy = tf.io.gfile.copy
    monkeypatch.setattr(
        tf.io.gfile, "copy", lambda *each: (copied.append(each[1]), copy(*each))
    )
    path = "ram://bucket/served"
    assert versions.publish(write, path) == f"{path}/1"
    assert versions.publish(write, path) == f"{path}/2"
    assert copied[1::2] == [f"{path}/1/saved_model.pb", f"{path}/2/saved_model.pb"]
    assert copied[0] == f"{path}/1/variables/variables.index"
    with tf.io.gfile.GFile(f"{path}/2/saved_model.pb") as file:
        assert file.read() == "graph"


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda path: path.write_text(""), "which is a file"),
        (lambda path: (path.mkdir(), write(path)), "which is a SavedModel itself"),
    ],
)
def test_what_is_no_folder_of_a_model(tmp_path, make, reason):
    path = tmp_path / "model"
    make(path)
    with refuses(f"`path` must be .* Received: path='{path}', {reason}"):
        versions.check_folder(str(path))


def test_a_version_is_no_folder_of_a_model(tmp_path):
    with refuses("whose name is that of a version"):
        versions.check_folder(f"{tmp_path}/12/")
    versions.check_folder(f"{tmp_path}/model")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    def fails(path):
        raise tf.errors.PermissionDeniedError(None, None, f"{path}; Permission denied")

    monkeypatch.setattr(tf.io.gfile, "listdir", fails)
    with refuses(f"in {tmp_path}: .*Permission denied", versions.NotWrittenError):
        versions.publish(write, str(tmp_path))
    assert not names(tmp_path)
    with refuses(f"{tmp_path} cannot be listed: .*Permission", OSError):
        versions.newest(str(tmp_path))
