"""The benchmark of scoring a corpus, at a tiny size."""

import json

import pytest

from benchmarks import batch
from benchmarks.batch import Setting
from tests.trainers import test_batch as on_a_disk

pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
models_are_loaded_once = on_a_disk.models_are_loaded_once


@pytest.fixture(scope="module")
def setting(tmp_path_factory, exports):
    folder = tmp_path_factory.mktemp("batch")
    # Its few words do for the documents, of which it knows none.
    (folder / "model").symlink_to(exports["words"].parent)
    setting = Setting(str(folder), documents=16, cores=1)
    batch.write(setting)
    return setting


def row(name, cores, seconds, documents=100):
    facts = {"name": name, "title": name, "cores": cores, "documents": documents}
    facts["processor_seconds"] = [2 * seconds, 3 * seconds]
    return {**facts, "median": seconds, "peak_bytes": 3 * 2**20}


def test_the_command_scores_what_the_loop_scores(setting, monkeypatch):
    written = []

    class File:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, text):
            written.append(text)

    monkeypatch.setattr(batch.tempfile, "TemporaryFile", lambda mode: File())
    batch.loop(setting).step()
    ours = [json.loads(line) for line in "".join(written).splitlines()]
    assert len(ours) == 16

    output = f"{setting.folder}/scores"

    class Folder(File):
        def __enter__(self):
            return output

    monkeypatch.setattr(batch.tempfile, "TemporaryDirectory", Folder)
    batch.beam(setting).step()
    parts = sorted(batch.Path(output).glob("scores-*"))
    theirs = [json.loads(line) for part in parts for line in part.open()]
    assert theirs == ours


def test_rates_leave_out_the_start():
    rows = [row("loop", 1, 10.0), row("beam", 1, 15.0), row("start", 1, 2.5)]
    rows += [row("loop", 2, 8.0), row("beam", 2, 8.5), row("start", 2, 3.5)]
    found = batch.rates(rows)
    assert [each["to_loop"] for each in found] == pytest.approx([1, 0.8, 1.25, 2])
    assert batch.table(found, 3.0).splitlines()[3] == (
        "| beam | 1 | 8.0 | 24 | 0.80 | 1.25, **1.25**, 1.25 | 2.5 |"
    )


def test_memory():
    assert batch.memory_table([row("beam", 1, 1.0, 1_000)]).splitlines() == [
        *("| documents | MiB |", "| --- | ---: |", "| 1,000 | 3 |"),
    ]
