"""Which version is served: the newest good one, whatever lies beside it."""

import errno
import os
import shutil
import time

import pytest

from keras_trellis.formats import manifest
from keras_trellis.serving.failures import Failures
from keras_trellis.serving.versions import Versions
from keras_trellis.serving.worker import Worker


class Deaf:
    """An observer that nothing reaches."""

    def step(self, seconds, rows, read, written):
        pass

    def ended(self, row):
        pass

    def failed(self, error):
        pass


@pytest.fixture
def made(exports, tmp_path):
    """Makes the versions of a model whose folder has these."""
    started = []

    def make(*numbers):
        folder = tmp_path / "model"
        for number in numbers:
            shutil.copytree(exports["tied"], folder / number)
        lines = []
        failures = Failures(lines.append)

        def start(slots):
            return Worker(slots, 1, lambda rows: None, Deaf())

        started.append(Versions(folder, start, 1, 1, lines.append, failures))
        return started[-1], folder, failures, lines

    make.folder = tmp_path / "model"
    yield make
    for each in started:
        each.stop()
        each.join()


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def damage(folder, name="step.onnx"):
    """Changes a byte, and no size."""
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)


def test_a_version_that_is_copied_file_by_file_counts_once_it_is_whole(made, exports):
    served, folder, failures, lines = made("1")
    names = [
        "manifest.json",
        *sorted(manifest.read(exports["tied"]).runtime.files, reverse=True),
    ]
    (folder / "2").mkdir()
    for name in names:
        data = (exports["tied"] / name).read_bytes()
        for part in (data[: len(data) // 2], data):
            served.poll()
            assert served.current.number == "1"
            (folder / "2" / name).write_bytes(part)
    served.poll()
    assert served.current.number == "2" and failures.count("version") == 0
    assert lines == ["serves version 2, after 1"]


def test_a_version_that_is_copied_as_the_server_begins_counts_once_it_is_whole(
    made, exports
):
    folder = made.folder / "2"
    folder.mkdir(parents=True)
    shutil.copy(exports["tied"] / "manifest.json", folder)
    served, _, failures, _ = made("1")
    assert served.current.number == "1" and not failures.count("version")
    shutil.copytree(exports["tied"], folder, dirs_exist_ok=True)
    served.poll()
    assert served.current.number == "2"


def test_a_damaged_version_does_not_hide_a_good_one(made, exports, tmp_path):
    served, folder, failures, lines = made("1")
    for number in ("2", "3"):
        shutil.copytree(exports["tied"], folder / number)
    damage(folder / "3")
    served.poll()
    assert served.current.number == "2" and failures.count("version") == 1
    assert "3 cannot be served: " in lines[0] and "step.onnx" in lines[0]
    served.poll()
    assert failures.count("version") == 1
    shutil.rmtree(folder / "3")
    shutil.rmtree(folder / "2")
    served.poll()
    assert served.current.number == "1"


def test_a_server_begins_with_the_newest_good_version(made, exports, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(exports["tied"], folder / "7")
    damage(folder / "7")
    shutil.copytree(exports["tied"], folder / "8")
    (folder / "8" / "manifest.json").unlink()
    served, folder, failures, lines = made("5", "6")
    assert served.current.number == "6" and failures.count("version") == 1
    shutil.rmtree(folder)
    with pytest.raises(manifest.ManifestError, match=r"9.step\.onnx must have the SHA"):
        shutil.copytree(exports["tied"], folder / "9")
        damage(folder / "9")
        made()


def test_a_version_that_stays_partial_is_told_of_once_in_a_while(made, monkeypatch):
    served, folder, failures, lines = made("1")
    (folder / "2").mkdir()
    served.poll()
    assert not lines
    later = time.monotonic() + 31
    monkeypatch.setattr(time, "monotonic", lambda: later)
    served.poll()
    assert "2 cannot be served: " in lines[0] and "has no" in lines[0]
    served.poll()
    assert failures.count("version") == 1 and served.current.number == "1"


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "cannot read")])
def test_the_look_for_versions_goes_on(made, exports, monkeypatch, error):
    """An error without a text, of the load or of the look itself, ends nothing."""
    served, folder, failures, lines = made("1")
    assert served.problem() is None
    served.begin(0.01)

    def fail(*_, sizes_alone=False):
        if not sizes_alone:
            raise error

    for name, kind in (("versions", "poll"), ("check", "version")):
        with monkeypatch.context() as patch:
            patch.setattr(manifest, name, fail)
            shutil.copytree(exports["tied"], folder / "part")
            os.rename(folder / "part", folder / ("2" if kind == "poll" else "3"))
            if kind == "version" or isinstance(error, MemoryError):
                wait_for(lambda kind=kind: failures.count(kind))
        if kind == "poll":
            wait_for(lambda: served.current.number == "2")
    assert served.problem() is None and served.current.number == "2"
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 31)
    wait_for(lambda: served.current.number == "3")
    assert sum("Traceback" in line for line in lines) <= 2


@pytest.mark.filterwarnings("ignore:Exception in thread")
def test_a_thread_that_has_ended_is_a_problem(made, monkeypatch):
    served, *_ = made("1")

    def end(*_):
        raise SystemExit

    monkeypatch.setattr(manifest, "versions", end)
    served.begin(0.01)
    wait_for(lambda: served.problem() is not None)
    assert "looks for new versions has ended" in served.problem()
    served.stop()
    assert served.problem() is None
