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


def tune(name: str, flags: str, line: str, files: dict | None = None) -> Row:
    """Returns a row of `trainers.tune`."""
    return Row(name, "tune", flags, line, files or {})


ROWS = (
    # flags
    tune("study_without_task", "", f"--task is missing; expected one of {TASKS}"),
    tune("study_missing", "--task=adding", "--study is missing"),
    tune("study_without_validation", "--task=seq_mnist --preset=small --study=s --trials=1 --trial_seconds=9 --config.data.validation=0", "`config.data.validation` must be at least 1 in a study, which compares validation losses. Received: config.data.validation=0"),
    tune("study_without_end", "--task=adding --study=s", "--hours or --trials is missing; the study would not end"),
    tune("study_hours_zero", f"{TUNE} --hours=0", "--hours must be a number above 0. Received: --hours=0.0"),
    tune("study_hours_nan", f"{TUNE} --hours=nan", "--hours must be a number above 0. Received: --hours=nan"),
    tune("study_hours_in_words", f"{TUNE} --hours=two", "--hours must be a number. Received: --hours=two"),
    tune("study_trials_zero", f"{TUNE} --trials=0", "--trials must be a positive integer. Received: --trials=0"),
    tune("study_parameters_zero", f"{TUNE} --trials=1 --parameters=0", "--parameters must be a positive integer. Received: --parameters=0"),
    tune("study_threads_zero", f"{TUNE} --trials=1 --threads=0", "--threads must be an integer in the range [1, 1024]. Received: --threads=0"),
    tune("trial_without_length", "--task=adding --preset=small --study=s --trials=1", "--trial_seconds is missing; without --hours a trial has no length"),
    tune("trial_seconds_negative", "--task=adding --study=s --trials=1 --trial_seconds=-1", "--trial_seconds must be a number above 0. Received: --trial_seconds=-1.0"),
    tune("workdir_to_study", f"{TUNE} --trials=1 --workdir=w", "--workdir has no use here: --study is the folder of all runs"),
    tune("study_empty", f"{TUNE} --trials=1 --study=", "--study must not be empty. Received: --study="),
    tune("study_misspelt_field", f"{TUNE} --trials=1 --config.model.dept=3", "unknown --config field 'model.dept'; did you mean 'model.depth'?"),
    tune("study_layers_with_trellis", f"{TUNE} --trials=1 --config.model.layers=3", "`config.model.layers` must be 1, for nothing reads it with config.model.layer='trellis'. Received: config.model.layers=3, config.model.layer='trellis'"),
    tune("data_dir_to_adding_study", f"{TUNE} --trials=1 --data_dir=d", "--data_dir has no use for --task=adding, which is drawn from the seed. Received: --data_dir=d"),
    tune("text_study_without_data_dir", "--task=text --study=s --hours=1", "--data_dir must be a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none). Received: no --data_dir"),
    tune("study_in_a_bucket", f"{TUNE} --trials=1 --study=gs://b/s", "--study must be a folder on a disk of this machine. Received: --study=gs://b/s"),
    tune("study_in_a_bucket_with_one_slash", f"{TUNE} --trials=1 --study=gs:/b/s", "--study must be a folder on a disk of this machine. Received: --study=gs:/b/s"),
    tune("trial_too_short", f"{TUNE} --trials=1 --trial_seconds=1e-9 --config.data.steps=20 --config.data.batch_size=4", "`seconds` must be at least {any}, for one training step in each of {any} parts of the run. Received: seconds=1e-09"),
    tune("study_config_file_missing", "--config_file=none.json --study=s --hours=1", "none.json: No such file or directory"),
    tune("preset_with_study_config_file", "--config_file=c.json --preset=small --study=s --hours=1", "--preset=small has no use with --config_file, which has all values", {"c.json": json.dumps(GOOD)}),
    # the search space and the size
    tune("study_rate_outside_search", "--task=ptb --study=s --hours=1", "`config.optimizer.learning_rate` must be from 0.001 to 0.02, its range in the search space of --task=ptb, or be set by --config.optimizer.learning_rate=..., which is not searched then. Received: config.optimizer.learning_rate=20.0 of --preset=paper"),
    tune("study_parameters_too_few", f"{TUNE} --trials=1 --parameters=9", "the model cannot be made as small as 9 parameters: config.model.units=1 comes nearest, with {any}"),
    # folders
    tune("study_is_a_file", f"{TUNE} --trials=1", "--study must be a folder, or the name of a new one. Received: --study=s, which is no folder", {"s": "mine"}),
    tune("study_with_notes", f"{TUNE} --trials=1", "{dir}/s holds files but no study (study.json is missing): notes.txt; choose an empty or a new folder", {"s/notes.txt": "mine"}),
    tune("study_record_damaged", f"{TUNE} --trials=1", "{dir}/s/study.json is damaged: {any}. Bring it back from a backup, or choose another --study", {"s/study.json": "mine"}),
    tune("study_with_other_task", f"{TUNE} --trials=1", "{dir}/s holds a study of --task=ptb, not of adding; choose another --study", {"s/study.json": RECORD % "ptb"}),
    tune("study_with_other_data", f"{TUNE} --trials=1", "{dir}/s holds a study on other data (train, validation, test); give that study's data by --data_dir, or choose another --study", {"s/study.json": RECORD % "adding"}),
    # files of config values
    Row("config_file_layers_with_trellis", "pixels", "--config_file=c.json", "`config.model.layers` must be 1, for nothing reads it with config.model.layer='trellis'. Received: config.model.layers=3, config.model.layer='trellis'", {"c.json": json.dumps({**GOOD, "model": {**GOOD["model"], "layers": 3}})}),
    Row("config_file_missing", "lm", "--config_file=none.json", "none.json: No such file or directory"),
    Row("config_file_flag_empty", "lm", "--config_file=", "--config_file must not be empty. Received: --config_file="),
    Row("config_file_empty", "lm", "--config_file=c.json", "c.json is damaged: it is empty", {"c.json": ""}),
    Row("config_file_nested_too_deeply", "lm", "--config_file=c.json", "c.json: its values are nested too deeply", {"c.json": FILE % ('"a": ' + 900 * '{"a": ' + "1" + 900 * "}")}),
    Row("config_file_preset_with_escapes", "lm", "--config_file=c.json", "c.json: `preset` must be a name of letters, digits, `_`, `-` and `.`, since it names a folder. Received: preset='../\\x1b\\n'", {"c.json": '{"task": "text", "preset": "../\\u001b\\n"}'}),
    Row("config_file_without_preset", "lm", "--config_file=c.json", "c.json is damaged: {any}`preset`{any}", {"c.json": '{"task": "ptb"}'}),
    Row("config_file_misspelt_field", "pixels", "--config_file=c.json", "c.json: unknown config field 'model.dept'; did you mean 'model.depth'?", {"c.json": FILE % '"model": {"dept": 3}'}),
    Row("config_file_units_as_text", "pixels", "--config_file=c.json", "c.json: `config.model.units` must be an integer of at least 1 and below 2**31. Received: config.model.units='3'", {"c.json": json.dumps(GOOD | {"model": GOOD["model"] | {"units": "3"}})}),
    Row("config_file_lacks_batch_size", "pixels", "--config_file=c.json", "c.json: `config.data.batch_size` is missing; it must be an integer of at least 1 and below 2**31", {"c.json": FILE % '"model": {"units": 3}'}),
    Row("config_file_with_other_task", "pixels", "--config_file=c.json --task=ptb", "--task=ptb is not that of c.json, adding", {"c.json": json.dumps(GOOD)}),
    Row("preset_with_config_file", "pixels", "--config_file=c.json --preset=small", "--preset=small has no use with --config_file, which has all values", {"c.json": json.dumps(GOOD)}),
    Row("config_file_in_evaluation", "lm", "--config_file=c.json --mode=evaluate", "--config_file has no use in --mode=evaluate, only in train", {"c.json": json.dumps(GOOD)}),
)
