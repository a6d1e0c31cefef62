"""Studies, and files of config values."""

import json

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501
from tests.trainers.bad_inputs.row import TASKS, Row
from trainers.tasks import config as configs

TUNE = "--task=adding --preset=small --study=s --trial_seconds=9"
FILE = '{"task": "adding", "preset": "mine", %s}'
GOOD = configs.load("adding", "small").to_dict()
RECORD = '{"task": "%s", "values": {"trial_seconds": 9.0}, "data": {}}'


def tune(flags: str, line: str, files: dict | None = None) -> Row:
    """Returns a row of `trainers.tune`."""
    return Row("tune", flags, line, files or {})


ROWS = (
    # flags
    tune("", f"--task is missing; expected one of {TASKS}"),
    tune("--task=adding", "--study is missing"),
    tune("--task=seq_mnist --preset=small --study=s --trials=1 --trial_seconds=9 --config.data.validation=0", "`config.data.validation` must be at least 1 in a study, which compares validation losses. Received: config.data.validation=0"),
    tune("--task=adding --study=s", "--hours or --trials is missing; the study would not end"),
    tune(f"{TUNE} --hours=0", "--hours must be a number above 0. Received: --hours=0.0"),
    tune(f"{TUNE} --hours=nan", "--hours must be a number above 0. Received: --hours=nan"),
    tune(f"{TUNE} --hours=two", "--hours must be a number. Received: --hours=two"),
    tune(f"{TUNE} --trials=0", "--trials must be an integer of at least 1. Received: --trials=0"),
    tune(f"{TUNE} --trials=1 --parameters=0", "--parameters must be an integer of at least 1. Received: --parameters=0"),
    tune(f"{TUNE} --trials=1 --threads=0", "--threads must be an integer from 1 to 1,024. Received: --threads=0"),
    tune("--task=adding --preset=small --study=s --trials=1", "--trial_seconds is missing; without --hours a trial has no length"),
    tune("--task=adding --study=s --trials=1 --trial_seconds=-1", "--trial_seconds must be a number above 0. Received: --trial_seconds=-1.0"),
    tune(f"{TUNE} --trials=1 --workdir=w", "--workdir has no use here: --study is the folder of all runs"),
    tune(f"{TUNE} --trials=1 --study=", "--study must not be empty. Received: --study="),
    tune(f"{TUNE} --trials=1 --config.model.dept=3", "unknown --config field 'model.dept'; did you mean 'model.depth'?"),
    tune(f"{TUNE} --trials=1 --config.model.layers=3", "`config.model.layers` must be 1, for nothing reads it with config.model.layer='trellis'. Received: config.model.layers=3, config.model.layer='trellis'"),
    tune(f"{TUNE} --trials=1 --data_dir=d", "--data_dir has no use for --task=adding, which is drawn from the seed. Received: --data_dir=d"),
    tune("--task=text --study=s --hours=1", "--data_dir must be a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none). Received: no --data_dir"),
    tune(f"{TUNE} --trials=1 --study=gs://b/s", "--study must be a folder on a disk of this machine. Received: --study=gs://b/s"),
    tune(f"{TUNE} --trials=1 --study=gs:/b/s", "--study must be a folder on a disk of this machine. Received: --study=gs:/b/s"),
    tune(f"{TUNE} --trials=1 --trial_seconds=1e-9", "`seconds` must be at least {any}, for one training step in each of {any} parts of the run. Received: seconds=1e-09"),
    tune("--config_file=none.json --study=s --hours=1", "none.json: No such file or directory"),
    tune("--config_file=c.json --preset=small --study=s --hours=1", "--preset=small has no use with --config_file, which has all values", {"c.json": json.dumps(GOOD)}),
    # the search space and the size
    tune("--task=ptb --study=s --hours=1", "`config.optimizer.learning_rate` must be from 0.001 to 0.02, its range in the search space of --task=ptb, or be set by --config.optimizer.learning_rate=..., which is not searched then. Received: config.optimizer.learning_rate=20.0 of --preset=paper"),
    tune(f"{TUNE} --trials=1 --parameters=9", "the model cannot be made as small as 9 parameters: config.model.units=1 comes nearest, with {any}"),
    # folders
    tune(f"{TUNE} --trials=1", "--study must be a folder, or the name of a new one. Received: --study=s, which is no folder", {"s": "mine"}),
    tune(f"{TUNE} --trials=1", "{dir}/s holds files but no study (study.json is missing): notes.txt; choose an empty or a new folder for --study", {"s/notes.txt": "mine"}),
    tune(f"{TUNE} --trials=1", "{dir}/s/study.json is damaged: {any}. Bring it back from a backup, or choose another --study", {"s/study.json": "mine"}),
    tune(f"{TUNE} --trials=1", "{dir}/s holds a study of --task=ptb, not of adding; choose another --study", {"s/study.json": RECORD % "ptb"}),
    tune(f"{TUNE} --trials=1", "{dir}/s holds a study on other data (train, validation, test); give that study's data by --data_dir, or choose another --study", {"s/study.json": RECORD % "adding"}),
    # files of config values
    Row("pixels", "--config_file=c.json", "`config.model.layers` must be 1, for nothing reads it with config.model.layer='trellis'. Received: config.model.layers=3, config.model.layer='trellis'", {"c.json": json.dumps({**GOOD, "model": {**GOOD["model"], "layers": 3}})}),
    Row("lm", "--config_file=none.json", "none.json: No such file or directory"),
    Row("lm", "--config_file=", "--config_file must not be empty. Received: --config_file="),
    Row("lm", "--config_file=c.json", "c.json is damaged: it is empty", {"c.json": ""}),
    Row("lm", "--config_file=c.json", "c.json: its values are nested too deeply", {"c.json": FILE % ('"a": ' + 900 * '{"a": ' + "1" + 900 * "}")}),
    Row("lm", "--config_file=c.json", "c.json: `preset` must be a name of letters, digits, `_`, `-` and `.`, since it names a folder. Received: preset='../\\x1b\\n'", {"c.json": '{"task": "text", "preset": "../\\u001b\\n"}'}),
    Row("lm", "--config_file=c.json", "c.json is damaged: {any}`preset`{any}", {"c.json": '{"task": "ptb"}'}),
    Row("pixels", "--config_file=c.json", "c.json: unknown config field 'model.dept'; did you mean 'model.depth'?", {"c.json": FILE % '"model": {"dept": 3}'}),
    Row("pixels", "--config_file=c.json", "c.json: `config.model.units` must be an integer of at least 1 and below 2**31. Received: config.model.units='3'", {"c.json": json.dumps(GOOD | {"model": GOOD["model"] | {"units": "3"}})}),
    Row("pixels", "--config_file=c.json", "c.json: `config.data.batch_size` is missing; it must be an integer of at least 1 and below 2**31", {"c.json": FILE % '"model": {"units": 3}'}),
    Row("pixels", "--config_file=c.json --task=ptb", "--task=ptb is not that of c.json, adding", {"c.json": json.dumps(GOOD)}),
    Row("pixels", "--config_file=c.json --preset=small", "--preset=small has no use with --config_file, which has all values", {"c.json": json.dumps(GOOD)}),
    Row("lm", "--config_file=c.json --mode=evaluate", "--config_file has no use in --mode=evaluate, only in train", {"c.json": json.dumps(GOOD)}),
)
