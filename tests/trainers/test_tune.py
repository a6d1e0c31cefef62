"""The command that makes a study."""

import json

import pytest
from absl import flags

from tests.trainers.test_bad_inputs import fresh_flags
from trainers import tune
from trainers.studies import budget, study
from trainers.tasks import config as configs


@pytest.fixture
def made(monkeypatch):
    """Runs a command line; returns the study that it would make."""
    calls = []
    monkeypatch.setattr(study, "tune", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(budget, "fix_threads", lambda threads: calls.append(threads))

    def made(*arguments):
        with fresh_flags(tune):
            assert tune.main(tune.parse_flags(["tune", *arguments])) == 0
            assert not flags.FLAGS.workdir
        return calls

    return made


def test_the_flags_say_what_the_trials_share_and_when_the_study_ends(made):
    threads, (path, settings, limits) = made(
        *(
            "--task=text",
            "--study=s",
            "--hours=2",
            "--trials=9",
            "--data_dir=d",
            "--trial_seconds=60",
        ),
        *(
            "--threads=2",
            "--parameters=1000",
            "--preset=paper",
            "--config.model.depth=60",
        ),
    )
    assert (str(path), limits) == ("s", study.Limits(2.0, 9))
    assert (settings.config.task, settings.config.preset) == ("text", "paper")
    assert settings.config.model.depth == 60
    assert settings[1:] == ("d", 60.0, 1000, 2, ("model.depth",))
    assert threads == 2


def test_a_study_begins_with_what_another_ended_with(made, tmp_path):
    config = configs.load("pydoc", "small")
    config.optimizer.learning_rate = 0.0123
    file = tmp_path / "best.json"
    file.write_text(json.dumps({**config.to_dict(), "preset": "tuned"}))
    _, (_, settings, _) = made(f"--config_file={file}", "--study=s", "--hours=1")
    assert (settings.config.task, settings.config.preset) == ("pydoc", "tuned")
    assert settings.config.optimizer.learning_rate == 0.0123
    assert settings.fixed == ()


def test_most_flags_have_defaults(made):
    threads, (_, settings, limits) = made("--task=text", "--study=s", "--hours=0.5")
    assert settings.config.preset == "small"
    assert (settings[1:], limits) == (
        (None, None, None, 1, ()),
        study.Limits(0.5, None),
    )
    assert threads == 1
