"""The commands with folders in object stores, and what users read when one goes wrong."""

import fsspec
import numpy as np
import pytest
import tensorflow as tf
from etils import epath

from benchmarks.faults import stores as servers
from tests.trainers import calls, mnist_files
from trainers import draw, evaluate, export, generate, lm, pixels, report
from trainers.data import stores
from trainers.data.stores import to_path
from trainers.drawing import pictures
from trainers.training import workdir

SMALL = calls.flags("""
    --task=text --preset=small model.units=8 model.output_units=8
    model.embedding_units=8 model.depth=2 model.auxiliary_every=1 model.dilation_rate=1,
    data.batch_size=4 data.window=10 data.horizon=0 evaluation.batch_size=2
    training.epochs=1
""")
DRAWING = calls.flags("""
    --task=mnist --preset=small model.steps=2 model.units=4 data.batch_size=20
    data.validation=20 evaluation.batch_size=20 training.epochs=1
""")


@pytest.fixture
def call(tmp_path, own_settings, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    return calls.in_process(lm, capsys)


def write_text(url):
    words = np.random.default_rng(0).integers(0, 30, 2000)
    lines = [
        " ".join(f"w{word}" for word in row) + "\n" for row in words.reshape(-1, 10)
    ]
    # Streams of whole windows, each traced once.
    parts = {"train": lines[:124], "valid": lines[124:146], "test": lines[146:168]}
    for name, part in parts.items():
        (to_path(url) / f"{name}.txt").write_text("".join(part))


def names(path):
    return {each.name for each in to_path(path).iterdir()}


def test_train_evaluate_generate_export_and_report_in_a_store(s3, call, tmp_path):
    write_text(f"{s3.url}/text")
    data, workdir = f"--data_dir={s3.url}/text", f"--workdir={s3.url}/runs/a"
    output = call(*SMALL, data, workdir)
    assert f"text, preset small, in {s3.url}/runs/a" in output
    assert "last held" not in output and not to_path(f"{s3.url}/runs/a/lock").exists()
    (best,) = [line for line in output.splitlines() if line.startswith("best of epoch")]
    scored = call(data, workdir, program=evaluate)
    assert scored.partition("\n")[0].partition(": ")[2] in best
    assert call(workdir, "--prompt=w1 w2", program=generate).startswith("w1 w2")
    models = f"--output={s3.url}/models/text"
    (to_path(f"{s3.url}/models/text/7") / "saved_model.pb").write_text("former")
    exported = call(workdir, models, program=export)
    assert exported.startswith(f"exported to {s3.url}/models/text/8; ")
    local = tmp_path / "model"
    servers.copy(to_path(f"{s3.url}/models/text/8"), local)
    found = tf.saved_model.load(str(local)).signatures["score_v2"]
    answer = found(text=tf.constant(["w1 w2"]), alternatives=tf.constant([0]))
    assert answer["nll"].shape == (1, 2)
    report.run([f"{s3.url}/runs/a"], f"{s3.url}/report")
    assert names(f"{s3.url}/report") == {"results.md", "results.png"}
    events = to_path(f"{s3.url}/runs/a/tensorboard")
    assert [each for each in events.iterdir() if "tfevents" in each.name]


def test_drawings_are_in_the_store(s3, call, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "ROWS", 2)
    for split, count in (("train", 60), ("test", 20)):
        labels = np.arange(count) % 10
        mnist_files.write(tmp_path, split, np.zeros((count, 28, 28)), labels)
    stores.send(epath.Path(tmp_path), to_path(f"{s3.url}/mnist"))
    places = (f"--data_dir={s3.url}/mnist", f"--workdir={s3.url}/drawn")
    call(*DRAWING, *places, program=draw)
    assert {"drawing.gif", "drawings", "result.json"} <= names(f"{s3.url}/drawn")
    assert names(f"{s3.url}/drawn/drawings") == {"epoch_0001.png"}
    assert len(names(f"{s3.url}/drawn/tensorboard/drawings")) == 1


ADDING = ("--task=adding", "--preset=small")


def test_a_bucket_that_is_not_there_is_named_before_any_work(s3, call):
    told = call(*ADDING, "--workdir=s3://nobody/a", program=pixels, status=2)
    assert (
        told.count("\n") == 1 and "s3://nobody/a" in told and "does not exist" in told
    )


@pytest.mark.parametrize("flag", ["--workdir", "--data_dir", "--output"])
def test_wrong_credentials_are_told_in_a_line(s3, call, flag):
    s3.fault = lambda *_: "denied"
    arguments, program = {
        "--workdir": (ADDING, pixels),
        "--data_dir": (("--task=text", "--preset=small"), lm),
        "--output": (("--workdir=nothing",), export),
    }[flag]
    told = call(*arguments, f"{flag}=s3://bucket/x", program=program, status=2)
    assert told.startswith("error: the store refuses s3://bucket/x")
    assert told.count("\n") == 1 and "check the credentials" in told


def test_no_credentials_are_told_in_a_line(s3, call, monkeypatch):
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    told = call(*ADDING, "--workdir=s3://bucket/x", program=pixels, status=2)
    assert told.count("\n") == 1 and "Unable to locate credentials" in told
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.mark.parametrize(
    "program, arguments",
    [
        (pixels, (*ADDING, "--workdir=az://bucket/x")),
        (export, ("--workdir=x", "--output=hdfs://host/x")),
    ],
)
def test_stores_that_do_not_serve_are_refused(call, program, arguments):
    told = call(*arguments, program=program, status=2)
    assert told.count("\n") == 1 and "this machine" in told


def test_a_folder_in_a_store_raises_what_its_run_raises(s3):
    path = to_path(f"{s3.url}/raises")
    with pytest.raises(ZeroDivisionError) as error:
        with workdir.open_workdir(path, {}):
            assert (path / "lock").exists()
            1 / 0  # noqa: B018
    assert error.value.__context__ is None and not (path / "lock").exists()
