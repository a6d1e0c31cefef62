"""A version appears whole or not at all, and none is overwritten."""

import concurrent.futures
import pathlib
import threading

import pytest
import tensorflow as tf

from keras_trellis.export import versions


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
    with pytest.raises(ValueError, match="which has none"):
        versions.newest(str(model))
    assert versions.publish(write, str(model)) == versions.newest(str(model)) == str(model / "1")


def test_a_version_with_zeros_in_front(tmp_path):
    for name in ("2", "007"):
        (tmp_path / name).mkdir()
    assert versions.newest(str(tmp_path)) == str(tmp_path / "007")
    assert versions.publish(write, str(tmp_path)) == str(tmp_path / "8")


def test_after_the_greatest_version_there_is_none(tmp_path):
    greatest = str(2**63 - 1)
    (tmp_path / greatest).mkdir()
    assert versions.newest(str(tmp_path)) == str(tmp_path / greatest)
    with pytest.raises(ValueError, match=f"`path` must .* {greatest}"):
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

    with pytest.raises(OSError, match="no space left"):
        versions.publish(fail, str(tmp_path))
    assert names(tmp_path) == []


def test_exports_at_the_same_time_take_different_versions(tmp_path):
    together = threading.Barrier(4)

    def meet(folder):
        write(folder)
        together.wait(timeout=60)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: versions.publish(meet, str(tmp_path)), range(4)))
    assert sorted(found) == [str(tmp_path / str(version)) for version in (1, 2, 3, 4)]
    assert all(
        names(tmp_path / str(version)) == ["saved_model.pb", "variables"] for version in (1, 4)
    )


def test_an_object_store_gets_the_graph_last(monkeypatch):
    copied = []
    copy = tf.io.gfile.copy
    monkeypatch.setattr(tf.io.gfile, "copy", lambda *each: (copied.append(each[1]), copy(*each)))
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
    with pytest.raises(ValueError, match=f"`path` must be .* Received: path='{path}', {reason}"):
        versions.check_folder(str(path))


def test_a_version_is_no_folder_of_a_model(tmp_path):
    with pytest.raises(ValueError, match="whose name is that of a version"):
        versions.check_folder(f"{tmp_path}/12/")
    versions.check_folder(f"{tmp_path}/model")
