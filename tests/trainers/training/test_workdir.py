"""The folder of a run: one process, one run, nobody else's files."""

import errno
import json
import os
import subprocess
import sys
import warnings

import pytest

from tests.refusals import refuses
from trainers.data.files import read_json
from trainers.tasks import config as configs
from trainers.tasks import run_folders
from trainers.training import hold, workdir

CONFIG = {
    "task": "toy",
    "model": {"units": 4, "dilation_rate": (1, 2)},
    "training": {"epochs": 2},
}
RESULT = {"epochs": 2, "summary": "best", "scores": {"test": {"perplexity": 3.5}}}


def changed(**groups):
    return {**CONFIG, **groups}


def test_a_new_folder_gets_the_config(tmp_path):
    with workdir.open_workdir(tmp_path / "a" / "b", CONFIG) as folder:
        assert folder.result() is None
        config = workdir.read_config(folder.path)
    assert config == {**CONFIG, "model": {"units": 4, "dilation_rate": [1, 2]}}


def test_another_run_at_work_is_refused_with_its_process(tmp_path):
    program = (
        "import sys; from trainers.training import workdir\n"
        "with workdir.open_workdir(sys.argv[1], {}): print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        message = f"process {holder.pid}.*{tmp_path}"
        with refuses(message, workdir.WorkdirError):
            with workdir.open_workdir(tmp_path, {}):
                pass
    finally:
        holder.kill()
        holder.communicate()
    with workdir.open_workdir(tmp_path, {}):  # the system has released the lock
        pass


def test_another_recipe_is_refused_field_by_field(tmp_path):
    with workdir.open_workdir(tmp_path, CONFIG):
        pass
    other = changed(model={"units": 8, "depth": 3, "dilation_rate": (1, 2)})
    with pytest.raises(workdir.WorkdirError) as error:
        with workdir.open_workdir(tmp_path, other):
            pass
    assert "model.units: 4 there, 8 here" in str(error.value)
    assert "model.depth: nothing there, 3 here" in str(error.value)
    assert "dilation_rate" not in str(error.value)


def test_a_run_whose_gate_left_the_forget_bias_out_goes_on_without_it(tmp_path):
    """Earlier releases dropped `unit_forget_bias` where the gate has no forget block."""
    values = configs.load("text", "small").to_dict()
    values["model"] |= {"gate": "gru", "unit_forget_bias": True}
    workdir.write_json(tmp_path / workdir.CONFIG, values)
    config = run_folders.load_config(tmp_path)
    assert not config.model.unit_forget_bias
    workdir.refuse_other_run(tmp_path, config.to_dict(), (), configs.upgrade)
    values["model"]["gate"] = "lstm"
    workdir.write_json(tmp_path / workdir.CONFIG, values)
    assert run_folders.load_config(tmp_path).model.unit_forget_bias


@pytest.mark.parametrize("layer", ["trellis", "tcn", "equilibrium"])
def test_a_run_with_dilations_that_no_level_used_goes_on_without_them(tmp_path, layer):
    """Earlier releases took them. An equilibrium uses all of them."""
    values = configs.load("seq_mnist", "small").to_dict()
    values["model"] |= {"layer": layer, "depth": 2, "dilation_rate": (1, 4, 16)}
    values["training"]["depths"] = ()
    workdir.write_json(tmp_path / workdir.CONFIG, values)
    if layer == "equilibrium":
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            config = run_folders.load_config(tmp_path)
        assert config.model.dilation_rate == (1, 4, 16)
        return
    with pytest.warns(UserWarning, match=r"=\(1, 4, 16\) the 2 levels use \(1, 4\)"):
        config = run_folders.load_config(tmp_path)
    assert config.model.dilation_rate == (1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workdir.refuse_other_run(tmp_path, config.to_dict(), (), configs.upgrade)


def test_fields_that_may_change_are_taken_over(tmp_path):
    with workdir.open_workdir(tmp_path, CONFIG):
        pass
    longer = changed(training={"epochs": 9})
    with refuses(r"training\.epochs: 2 there, 9 here", workdir.WorkdirError):
        with workdir.open_workdir(tmp_path, longer):
            pass
    with workdir.open_workdir(
        tmp_path, longer, may_change=["training.epochs"]
    ) as folder:
        assert folder.pending == {"training.epochs": (2, 9)}
        # Until all is in order.
        assert workdir.read_config(tmp_path)["training"]["epochs"] == 2
        (change,) = folder.record(step=7, epoch=1.75)
        assert folder.pending == {} and folder.record(step=7, epoch=1.75) == (change,)
    assert str(change) == "`config.training.epochs`: 2 -> 9 from step 7 on"
    assert workdir.read_config(tmp_path)["training"]["epochs"] == 9
    assert workdir.read_changes(tmp_path) == (change,)


def change(rate):
    return changed(optimizer={"learning_rate": rate})


@pytest.fixture
def open_with(tmp_path):
    """Opens a folder with a learning rate, which may change, as of a step."""

    def open_with(rate, step):
        with workdir.open_workdir(
            tmp_path, change(rate), may_change=["optimizer.learning_rate"]
        ) as folder:
            return folder.record(step, step / 4)

    return open_with


def test_a_folder_keeps_each_change_with_its_step(tmp_path, open_with):
    assert open_with(1.0, 0) == ()
    assert not (tmp_path / "changes.json").exists()
    open_with(0.5, 4)
    open_with(0.5, 6)
    kept = read_json(tmp_path / "changes.json")
    first = {
        "step": 4,
        "epoch": 1.0,
        "field": "optimizer.learning_rate",
        "was": 1.0,
        "now": 0.5,
    }
    assert kept == {"changes": [first]}
    open_with(1.0, 8)  # by the first command again
    assert [(each.step, each.now) for each in workdir.read_changes(tmp_path)] == [
        (4, 0.5),
        (8, 1),
    ]


def test_a_change_after_a_step_that_was_lost_is_one_of_the_step_before(open_with):
    open_with(1.0, 0)
    open_with(0.5, 8)
    (change,) = open_with(0.5, 6)
    assert (change.step, change.epoch) == (6, 1.5)


def test_a_process_killed_between_the_record_and_the_config_has_made_one_change(
    tmp_path, open_with, monkeypatch
):
    open_with(1.0, 0)
    written = workdir.write_json

    def killed(path, value):
        if path.name == "config.json":
            raise KeyboardInterrupt
        written(path, value)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(workdir, "write_json", killed)
        open_with(0.5, 4)
    assert workdir.read_config(tmp_path)["optimizer"]["learning_rate"] == 1.0
    assert [(each.was, each.now) for each in open_with(0.5, 4)] == [(1.0, 0.5)]
    assert workdir.read_config(tmp_path)["optimizer"]["learning_rate"] == 0.5


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"changes": 3}',
        '{"changes": [3]}',
        '{"changes": [{"step": 1}]}',
        '{"changes": [{"step": "1", "epoch": 1, "field": "a", "was": 1, "now": 2}]}',
    ],
)
def test_a_record_of_changes_that_is_none_is_named(tmp_path, open_with, content):
    open_with(1.0, 0)
    (tmp_path / "changes.json").write_text(content)
    with refuses("changes.json is damaged.*backup", workdir.WorkdirError):
        open_with(1.0, 0)
    assert (tmp_path / "changes.json").read_text() == content


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "metrics.csv").write_text("mine")
    with refuses(r"no run.*metrics\.csv", workdir.WorkdirError):
        with workdir.open_workdir(tmp_path, CONFIG):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


@pytest.mark.parametrize("content", ["not JSON", "[1]", json.dumps({"editor": "mine"})])
def test_a_foreign_config_is_left_alone(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(workdir.WorkdirError):
        with workdir.open_workdir(tmp_path, CONFIG):
            pass
    assert (tmp_path / "config.json").read_text() == content


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses("is a file", workdir.WorkdirError):
        with workdir.open_workdir(tmp_path / "file", CONFIG):
            pass


def test_a_finished_run_says_so(tmp_path):
    with workdir.open_workdir(tmp_path, CONFIG) as folder:
        folder.finish(RESULT)
    with workdir.open_workdir(tmp_path, CONFIG) as folder:
        assert folder.result() == RESULT


DAMAGES = {
    b"": "it is empty",
    b"\n": "it is empty",
    b'{"epochs": 2, "summ': "it is cut off",
    b'{"epochs": 2,': "it is cut off",
    b'{"epochs": 2}}': "it is not JSON (Extra data, line 1)",
    b'\xef\xbb\xbf{"epochs": 2}': "it is not JSON (Unexpected UTF-8 BOM",
    b'{\n"epochs": "\xff"}': "it is not UTF-8 (byte 0xff in line 2, at offset 13)",
    bytes(40): "it is not JSON (Expecting value, line 1)",
    b"[1, 2]": "it holds a list, not fields",
    b"null": "it holds null, not fields",
    b"{}": "it lacks `epochs`",
    b'{"epochs": true}': "`epochs` is true or false, not a whole number",
    b'{"epochs": 2.5}': "`epochs` is a fraction, not a whole number",
    b'{"epochs": 2, "summary": "", "scores": []}': "`scores` is a list, not fields",
    b"[" * 100_000: "it is not JSON (too many brackets)",
    b'{"epochs": ' + b"9" * 5000 + b"}": "Exceeds the limit",
}


@pytest.mark.parametrize("content", DAMAGES)
def test_a_damaged_result_is_set_aside_where_it_can_be_computed_again(
    tmp_path, content, capsys
):
    with workdir.open_workdir(tmp_path, CONFIG) as folder:
        folder.finish(RESULT)
    file = tmp_path / "result.json"
    file.write_bytes(content)
    with pytest.raises(ValueError) as error:
        workdir.read_result(tmp_path, dict(epochs=int, summary=str, scores=dict))
    assert str(error.value).startswith(f"{file} is damaged: {DAMAGES[content]}")
    assert file.read_bytes() == content
    with workdir.open_workdir(tmp_path, CONFIG) as folder:
        assert folder.result() is None
    (line,) = capsys.readouterr().out.splitlines()
    aside = tmp_path / "result.json.unreadable"
    assert line == f"{error.value}, and the file is now {aside}"
    assert aside.read_bytes() == content and not file.exists()


@pytest.mark.parametrize("content", [b"", b'{"task": ', b"\xff", b"[1]", bytes(9)])
def test_a_damaged_config_is_named_and_left_as_it_is(tmp_path, content):
    with workdir.open_workdir(tmp_path, CONFIG):
        pass
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(workdir.WorkdirError) as error:
        with workdir.open_workdir(tmp_path, CONFIG):
            pass
    assert str(error.value).startswith(f"{file} is damaged: it ")
    assert "Bring it back from a backup" in str(error.value)
    assert file.read_bytes() == content


@pytest.mark.parametrize("name", ["config.json", "changes.json"])
def test_a_flipped_digit_is_no_change_by_the_user(tmp_path, open_with, name):
    open_with(0.25, 0)
    open_with(0.5, 4)
    file = tmp_path / name
    content = file.read_text().replace("0.5", "0.4")
    file.write_text(content)

    def kept():
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        return {**files, "lock": None}  # it names whoever was last at work

    before = kept()
    with refuses(f"{name} is damaged: .*checksum.*Bring it back", workdir.WorkdirError):
        open_with(0.5, 4)
    assert kept() == before


def test_a_flipped_digit_of_a_result_is_no_score(tmp_path):
    with workdir.open_workdir(tmp_path, CONFIG) as folder:
        folder.finish(RESULT)
    file = tmp_path / "result.json"
    file.write_text(file.read_text().replace("3.5", "2.5"))
    with refuses("damaged: .*checksum.*scores the run again"):
        workdir.read_result(tmp_path)


def test_no_run_to_read(tmp_path):
    with refuses("holds no run", workdir.WorkdirError):
        workdir.read_config(tmp_path)


def test_a_file_system_that_fails_is_not_said_to_lack_a_run(tmp_path, monkeypatch):
    with workdir.open_workdir(tmp_path, CONFIG):
        pass

    def fails(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "stat", fails)
    with refuses("Input/output error.*config.json", OSError):
        workdir.read_config(tmp_path)
    with refuses("Input/output error", OSError):
        with workdir.open_workdir(tmp_path, CONFIG):
            pytest.fail("was opened")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EIO])
def test_a_folder_that_cannot_be_locked_is_named(tmp_path, monkeypatch, code):
    def fail(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(hold.fcntl, "flock", fail)
    with refuses(f"{tmp_path} cannot be locked", workdir.WorkdirError):
        with workdir.open_workdir(tmp_path, CONFIG):
            pass
