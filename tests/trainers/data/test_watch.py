"""The watch's recordings: folds by people, and a file that is known by its checksum."""

import importlib.metadata
import sys
import zipfile

import numpy as np
import pytest

from tests.refusals import refuses
from tests.trainers.time_series import series_files
from trainers.data import watch


def test_each_person_is_tested_once_and_no_one_is_in_two_splits():
    folds = [watch.people(fold) for fold in range(watch.FOLDS)]
    for people in folds:
        everyone = [person for split in people.values() for person in split]
        assert sorted(everyone) == list(watch.PEOPLE)
        assert [len(people[split]) for split in ("train", "validation", "test")] == [
            6,
            2,
            2,
        ]
    for split in ("validation", "test"):
        assert sorted(p for people in folds for p in people[split]) == list(
            watch.PEOPLE
        )


def test_the_recordings_of_a_file():
    content = series_files.watch_pickle()
    recorded = watch.parse("f", content, series_files.checksum(content))
    assert len({each.name for each in recorded}) == len(recorded) == 140
    for each in recorded:
        assert each.values.dtype == np.float32
        assert each.values.shape == (40 + each.person, 6)
        mean = watch.EXERCISES.index(each.exercise)
        assert abs(each.values.mean() - mean) < (1 + each.person) / 2


def test_another_file_is_not_read(tmp_path):
    (tmp_path / "watch_dataset.npy").write_bytes(series_files.watch_pickle())
    with refuses(r"watch_dataset.npy must have the SHA-256 eb122f23"):
        watch.read(tmp_path)


def test_a_wheel_in_the_folder_is_read(tmp_path, monkeypatch):
    content = series_files.watch_pickle()
    for name in ("numpy-2.0-py3-none-any.whl", "seglearn-1.2.4.tar.gz"):
        (tmp_path / name).write_bytes(b"another file")
    with zipfile.ZipFile(tmp_path / "seglearn-1.2.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("seglearn/data/watch_dataset.npy", content)
    with refuses(r"1.2.5-py3-none-any.whl/seglearn.* must have the SHA"):
        watch.read(tmp_path)
    monkeypatch.setattr(watch.parse, "__defaults__", (series_files.checksum(content),))
    assert len(watch.read(tmp_path)) == 140


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    message = "--task=anomaly .* seglearn, which is not installed: pip install"
    with refuses(message):
        watch.read()


def test_the_package_s_recordings():
    try:
        importlib.metadata.distribution(watch.PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("seglearn is not installed")
    recorded = watch.read()
    assert len(recorded) == 140
    assert sum(len(each.values) for each in recorded) == 244_102
    counted = {(each.person, each.exercise, each.side) for each in recorded}
    assert len(counted) == 10 * 7 * 2
