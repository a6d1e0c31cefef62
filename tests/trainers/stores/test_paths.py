"""Paths in object stores, against servers of S3 and of Google Cloud Storage on this machine."""

import contextlib
import itertools
import pathlib
import pickle

import fsspec
import hypothesis
import pytest
from etils import epath
from hypothesis import strategies as st

from trainers.data import files, stores
from trainers.data.stores import to_path


@pytest.fixture
def folder(store, request):
    return to_path(f"{store.url}/{request.node.name}")


@contextlib.contextmanager
def going_wrong(store, fault):
    store.fault = fault
    try:
        yield
    finally:
        store.fault = lambda *_: None


def test_a_path_is_made_as_others_are():
    path = stores.as_path("s3://bucket/runs/a")
    assert str(path / "b.npz") == "s3://bucket/runs/a/b.npz"
    assert path.name == "a" and path.parent == stores.as_path("s3://bucket/runs")
    assert list(map(str, path.parents)) == ["s3://bucket/runs", "s3://bucket"]
    assert epath.Path(path) == path.expanduser() == path.resolve() == path
    assert type(epath.Path(path)) is stores.StorePath
    assert pickle.loads(pickle.dumps(path)) == path
    assert to_path("a/b") == epath.Path("a/b")
    assert to_path("~") == epath.Path(pathlib.Path.home())


@pytest.mark.parametrize("text", ["az://bucket/x", "http://host/x", "s3://", "gs:///"])
def test_a_path_of_another_kind_is_refused(text):
    with pytest.raises(ValueError, match=r"must be one of this machine.*Received: "):
        to_path(text)


def test_a_missing_package_is_named(monkeypatch):
    def missing(*_, **__):
        raise ImportError

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(ImportError, match=r"keras_trellis\[gcs\].*gs://bucket/x"):
        to_path("gs://bucket/x")


# The store is the same for all examples, each in a folder of its own.
FIXTURE = hypothesis.HealthCheck.function_scoped_fixture
NUMBERS = itertools.count()  # of folders
NAMES = st.sampled_from(["a", "b.txt", "c/d", "c/e"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.binary(max_size=40)),
    st.tuples(st.just("atomic"), NAMES, st.binary(max_size=40)),
    st.tuples(st.just("unlink"), NAMES, st.none()),
    st.tuples(st.just("rename"), NAMES, NAMES),
)


def _do(folder, name, first, second):
    path = folder / first
    if name == "write":
        path.write_bytes(second)
    elif name == "atomic":
        files.write_atomically(path, lambda file: file.write(second))
    elif name == "unlink":
        path.unlink(missing_ok=True)
    elif path.exists() and first != second:
        path.rename(folder / second)


def _do_as_model(objects, name, first, second):
    """Returns what objects a store has after an operation."""
    after = dict(objects)
    if name in ("write", "atomic"):
        after[first] = second
    elif name == "unlink":
        after.pop(first, None)
    elif first in objects and first != second:
        after[second] = after.pop(first)
    return after


def _contents(folder):
    """Returns the contents of all objects below a folder by their names."""
    found = {}
    for path in folder.iterdir():
        if path.is_dir():
            for name, content in _contents(path).items():
                found[f"{path.name}/{name}"] = content
        else:
            found[path.name] = path.read_bytes()
    return found


@hypothesis.settings(max_examples=15, suppress_health_check=[FIXTURE])
@hypothesis.given(st.lists(OPERATIONS, max_size=8))
def test_a_store_holds_what_was_written(store, operations):
    folder = to_path(f"{store.url}/{next(NUMBERS)}")
    objects: dict[str, bytes] = {}
    for each in operations:
        _do(folder, *each)
        objects = _do_as_model(objects, *each)
        assert _contents(folder) == objects
    assert folder.exists() == folder.is_dir() == bool(objects)
    for name, content in objects.items():
        path = folder / name
        assert path.is_file() and files.exists(path)
        with path.open("rb") as file:
            assert file.read() == content
    folder.rmtree(missing_ok=True)
    assert not folder.exists()


@hypothesis.settings(max_examples=15, suppress_health_check=[FIXTURE])
@hypothesis.given(
    st.lists(OPERATIONS, min_size=1, max_size=5),
    st.dictionaries(
        st.integers(1, 30),
        st.sampled_from(["busy", "slow", "dropped", "unanswered", "cut"]),
        max_size=2,
    ),
)
def test_a_passing_fault_changes_nothing(store, operations, faults):
    folder = to_path(f"{store.url}/{next(NUMBERS)}")
    begin = len(store.requests)
    objects: dict[str, bytes] = {}
    with going_wrong(store, lambda at, *_: faults.get(at - begin)):
        for each in operations:
            _do(folder, *each)
            objects = _do_as_model(objects, *each)
    assert _contents(folder) == objects


def test_what_fails_while_it_is_written_leaves_what_was_there(folder):
    path = folder / "a"
    path.write_bytes(b"before")
    with pytest.raises(KeyError), path.open("wb") as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"before"
    with pytest.raises(ValueError, match=r"`mode` must be"):
        path.open("a")


def test_errors_say_what_the_store_says(store, folder):
    (folder / "a").write_bytes(b"1")
    for act in ((folder / "b").read_bytes, (folder / "b").rmtree):
        with pytest.raises(FileNotFoundError, match=r"b does not exist"):
            act()
    with pytest.raises(FileNotFoundError, match=r"://nobody/x does not exist"):
        to_path(f"{store.scheme}://nobody/x").write_bytes(b"1")
    with going_wrong(store, lambda *_: "denied"):
        for act in ((folder / "a").read_bytes, (folder / "a").exists):
            with pytest.raises(PermissionError, match=r"refuses .*/a .*credentials"):
                act()


def test_another_process_is_seen_at_once(store, folder):
    assert list(folder.iterdir()) == [] and not (folder / "a").exists()
    client = fsspec.filesystem(store.scheme, skip_instance_cache=True)
    client.pipe_file(str(folder / "a"), b"1")
    assert [each.name for each in folder.iterdir()] == ["a"] and (folder / "a").exists()


def test_a_mirror_sends_what_changes(folder):
    (folder / "kept").write_bytes(b"1")
    (folder / "inside" / "a").write_bytes(b"1")
    mirror = stores.Mirror(folder)
    assert [each.name for each in mirror.folder.iterdir()] == ["kept"]
    (mirror.folder / "new").write_bytes(b"2")
    mirror.send()
    (mirror.folder / "kept").unlink()
    (mirror.folder / "new").write_bytes(b"33")
    mirror.send()
    assert _contents(folder) == {"new": b"33", "inside/a": b"1"}


def test_a_folder_is_sent_its_graph_last(store, folder, tmp_path):
    (tmp_path / "variables").mkdir()
    for name in ("a", "saved_model.pb", "variables/z"):
        (tmp_path / name).write_bytes(name.encode())
    begin = len(store.requests)
    stores.send(epath.Path(tmp_path), folder, last="saved_model.pb")
    assert _contents(folder).keys() == {"a", "saved_model.pb", "variables/z"}
    if store.scheme == "s3":  # the other one does not tell the name in the path
        written = [path for method, path in store.requests[begin:] if method == "PUT"]
        assert written[-1].endswith("/saved_model.pb")
