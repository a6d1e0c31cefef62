"""`trainers.compare`: what cannot be compared, told before anything trains."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

import json

from tests.trainers.bad_inputs.row import TASKS, Row, folder
from trainers.tasks import config as configs

ADDING = json.dumps(configs.load("adding", "small").to_dict())
_SMALL = configs.load("adding", "small").to_dict()
GRU = json.dumps({**_SMALL, "model": {"layer": "gru", "units": 9, "depth": 7}})
BOTH = "--tasks=adding --output=c"


def compare(name: str, flags: str, line: str, files: dict | None = None) -> Row:
    """Returns a row of the command."""
    return Row(name, "compare", flags, line, files or {})


ROWS = (
    compare("compare_without_tasks", "--output=c", "--tasks is missing"),
    compare("compare_without_output", "--tasks=adding", "--output is missing"),
    compare("compare_misspelt_task", "--tasks=addingg --output=c", "unknown --tasks 'addingg'; did you mean 'adding'?"),
    compare("compare_depth_with_gru", "--tasks=adding --models=trellis,gru --config_files=c.json --output=c", "`config.model.depth` must be 1, for nothing reads it with config.model.layer='gru'. Received: config.model.depth=7, config.model.layer='gru'", {"c.json": GRU}),
    compare("compare_unknown_task", "--tasks=zzz --output=c", f"unknown --tasks 'zzz'; expected one of {TASKS}"),
    compare("compare_task_twice", "--tasks=adding,adding --output=c",
        "--tasks must have names, each once. Received: --tasks=adding,adding"),
    compare("compare_output_in_a_bucket", "--tasks=adding --output=s3://bucket/c", "--output must be a folder on a disk of this machine. Received: --output=s3://bucket/c"),
    compare("compare_misspelt_model", f"{BOTH} --models=trellis,lstn", "unknown --models 'lstn'; did you mean 'lstm'?"),
    compare("compare_skip_lstm_without_settings", f"{BOTH} --models=trellis,skip_lstm",
        "--models=skip_lstm has no settings to begin with on --task=adding, which has them for lstm, gru, tcn, transformer; give a config of its own by --config_files"),
    compare("compare_models_empty", f"{BOTH} --models=", "--models must have names, each once. Received: --models="),
    compare("compare_seconds_in_words", f"{BOTH} --seconds=soon", "--seconds must be a number above 0, or one for each of --tasks. Received: --seconds=soon"),
    compare("compare_two_seconds_for_one_task", f"{BOTH} --seconds=1,2", "--seconds must be a number above 0, or one for each of --tasks. Received: --seconds=1,2"),
    compare("compare_seconds_zero", f"{BOTH} --seconds=0", "--seconds must be a number above 0, or one for each of --tasks. Received: --seconds=0"),
    compare("compare_seconds_nan", f"{BOTH} --seconds=nan", "--seconds must be a number above 0, or one for each of --tasks. Received: --seconds=nan"),
    compare("compare_trials_with_patience", f"{BOTH} --patience=3 --trials=2", "--trials must be 0 with --patience: a trial would take all of --seconds. Received: --trials=2"),
    compare("compare_seeds_zero", f"{BOTH} --seeds=0", "--seeds must be {any}. Received: --seeds=0"),
    compare("compare_misspelt_preset", f"{BOTH} --preset=smal", "unknown --preset 'smal'; did you mean 'small'? (of --task=adding)"),
    compare("compare_lstm_preset", "--tasks=ptb --output=c --preset=small_lstm",
        "--preset must have the layer 'trellis' or 'equilibrium'. Received: --preset=small_lstm, whose layer is 'lstm'"),
    compare("compare_parameters_too_few", f"{BOTH} --parameters=9",
        "trellis of --task=adding: the model cannot be made as small as 9 parameters: config.model.units=1 comes nearest, with 54"),
    compare("compare_parameters_between_sizes", f"{BOTH} --models=trellis,tcn --parameters=10000",
        "trellis of --task=adding cannot be made as large as 10,000 parameters: config.model.units=24 comes nearest, with 10,105; choose another number by --parameters, or other --models"),
    compare("compare_config_file_missing", f"{BOTH} --config_files=none.json", "none.json: No such file or directory"),
    compare("compare_config_file_without_its_model", f"{BOTH} --config_files=a.json --models=lstm,gru",
        "--config_files must be of one of --tasks and --models. Received: a.json, of the layer 'trellis' on --task=adding", {"a.json": ADDING}),
    compare("compare_config_file_twice", f"{BOTH} --config_files=a.json,b.json",
        "--config_files has the layer 'trellis' on --task=adding twice, at last in b.json", {"a.json": ADDING, "b.json": ADDING}),
    compare("compare_output_is_a_file", BOTH, "--output must be a folder, or the name of a new one. Received: --output=c, which is no folder", {"c": "text"}),
    compare("compare_output_in_a_run", "--tasks=adding --output=r/0", "--output=r/0 is in the folder of a run, {any}r, which holds nothing else; choose another folder",
        {"r/config.json": ADDING, "r/lock": ""}),
    compare("compare_text_files_missing", "--tasks=adding,text --output=c --data_dir=d", "{any}d{any}train.txt{any}", {"d": folder}),
)
