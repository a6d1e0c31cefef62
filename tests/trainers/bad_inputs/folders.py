"""Folders of runs: where none can be, where another thing is, and damaged ones."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

import json

from tests.trainers.bad_inputs.row import (
    LANGUAGE,
    NO_FLAGS,
    TASKS,
    Row,
    fifo,
    folder,
    link,
    refused,
    texts,
)
from trainers.tasks import config as configs

TRAIN = "--task=text --data_dir=text"
GENERATE = "--mode=generate --workdir=run"
EVALUATE = "--mode=evaluate --workdir=run --data_dir=text"
PIXELS = "--mode=evaluate --workdir=run --data_dir=digits"
CONFIG = configs.load("text").to_dict()
VOCABULARY = "a\nb\nc\nd\n<eos>\n<unk>\n"
METRICS = "kind,step,epoch,perplexity\nvalidation,10,1.0,9.5\n"
RESULT = {
    "epochs": CONFIG["training"]["epochs"],
    "summary": "best of epoch 1",
    "scores": {"test": {"exact": {"tokens": 9, "perplexity": 5.0}}},
}


def run(name: str = "run", **files) -> dict:
    """Returns the files of a run without weights; `config` and so on replace one, None leaves it out."""
    kept = {
        "config.json": json.dumps(CONFIG),
        "vocabulary.txt": VOCABULARY,
        "metrics.csv": METRICS,
        "result.json": json.dumps(RESULT),
        "checkpoints": folder,
    } | {name.replace("__", "/"): content for name, content in files.items()}
    return {f"{name}/{file}": text for file, text in kept.items() if text is not None}


def damaged(name: str, command: str, flags: str, line: str, **files) -> Row:
    """Returns the row of a run's folder of which files are replaced."""
    return Row(name, command, flags, line, texts() | run(**files))


def broken(name: str, command: str, flags: str, file: str, content: str | bytes, why: str) -> Row:
    """Returns the row of a run of which a file cannot be used, and why."""
    line = f"run/{file} is damaged: {why}. Bring it back from a backup, or choose another --workdir"
    return damaged(name, command, flags, line, **{file: content})


def changed(**fields) -> str:
    """Returns a run's config with fields of its groups changed, `group__field`."""
    values = json.loads(json.dumps(CONFIG))
    for name, value in fields.items():
        group, _, field = name.partition("__")
        if field:
            values[group][field] = value
        else:
            values[group] = value
    return json.dumps(values)


def of(task: str, preset: str) -> str:
    """Returns the config of a run of another task."""
    return json.dumps(configs.load(task, preset).to_dict())


PIXEL_RUN = {"config.json": of("permuted_mnist", "small"), "vocabulary.txt": None}

ROWS = (
    # where no run can be
    Row("workdir_empty", "lm", f"{TRAIN} --workdir=", "--workdir must not be empty. Received: --workdir=", texts()),
    Row("workdir_is_a_space", "lm", f"{TRAIN} --workdir=' '",
        "--workdir must be a name without control characters or white space at its ends. Received: --workdir=' '", texts()),
    Row("workdir_with_trailing_space", "lm", f"{TRAIN} --workdir='run '",
        "--workdir must be a name without control characters or white space at its ends. Received: --workdir='run '", texts()),
    Row("workdir_with_line_break", "lm", f"{TRAIN} --workdir='run\n'",
        "--workdir must be a name without control characters or white space at its ends. Received: --workdir='run\\n'", texts()),
    refused("workdir_is_a_file", "lm", f"{TRAIN} --workdir=text/train.txt",
        "a folder, or the name of a new one", texts(), received="text/train.txt, which is no folder"),
    refused("workdir_below_a_file", "lm", f"{TRAIN} --workdir=text/train.txt/run",
        "a folder, or the name of a new one", texts(), received="text/train.txt/run, of which text/train.txt is no folder"),
    Row("workdir_is_the_text", "lm", f"{TRAIN} --workdir=text",
        "text holds files but no run (config.json is missing): test.txt, train.txt, valid.txt; choose an empty or a new folder", texts()),
    Row("workdir_holds_the_text", "lm", f"{TRAIN} --workdir=.",
        ". holds files but no run (config.json is missing): text; choose an empty or a new folder", texts()),
    refused("workdir_is_a_pipe", "lm", f"{TRAIN} --workdir=run",
        "a folder, or the name of a new one", texts() | {"run": fifo}, received="run, which is no folder"),
    refused("workdir_link_to_nowhere", "lm", f"{TRAIN} --workdir=run",
        "a folder, or the name of a new one", texts() | {"run": link("nowhere")}, received="run, which is a link that leads nowhere"),
    refused("workdir_link_to_itself", "lm", f"{TRAIN} --workdir=run",
        "a folder, or the name of a new one", texts() | {"run": link("run")}, received="run, which is a link that leads nowhere"),
    Row("workdir_with_notes", "lm", f"{TRAIN} --workdir=run",
        "run holds files but no run (config.json is missing): notes.txt; choose an empty or a new folder", texts() | {"run/notes.txt": "mine"}),
    Row("s3_workdir_with_one_slash", "lm", f"{TRAIN} --workdir=s3:/bucket/run",
        "a path must be one of this machine, or s3://BUCKET/NAME or gs://BUCKET/NAME. Received: s3:/bucket/run", texts()),
    Row("workdir_in_proc", "lm", f"{TRAIN} --workdir=/proc/run", "/proc/run: {any}", texts()),
    refused("workdir_below_dev_null", "lm", f"{TRAIN} --workdir=/dev/null/run",
        "a folder, or the name of a new one", texts(), received="/dev/null/run, of which /dev/null is no folder"),
    Row("workdir_name_too_long", "lm", f"{TRAIN} --workdir=" + 300 * "r",
        "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr: File name too long", texts()),
    Row("workdir_with_other_units", "lm", f"{TRAIN} --config.model.units=300 --workdir=run",
        "run belongs to another run, whose config differs (model.units: 256 there, 300 here); the same command without --config.model.units goes on with that run, or choose another folder", texts() | run()),
    Row("workdir_with_other_preset", "lm", f"{TRAIN} --preset=paper --workdir=run",
        "run belongs to another run, that of --preset=small; give that to go on with it, or choose another folder", texts() | run()),
    Row("workdir_with_other_task", "pixels", "--task=adding --preset=small --workdir=run",
        "run belongs to another run, that of --task=text; give that to go on with it, or choose another folder", texts() | run()),
    Row("workdir_with_imported_weights", "lm", f"{TRAIN} --workdir=run",
        "run holds imported weights, which training would replace; choose another --workdir", texts() | run(**{"imported.json": "{}"})),
    # where none is
    Row("generate_mode_without_run", "lm", GENERATE, "run holds no run: config.json is missing; train one there first"),
    Row("generate_mode_from_text_folder", "lm", f"{GENERATE} --workdir=text",
        "text holds no run: config.json is missing; train one there first", texts()),
    Row("generate_mode_from_text_file", "lm", f"{GENERATE} --workdir=text/train.txt",
        "text/train.txt holds no run: config.json is missing; train one there first", texts()),
    Row("generate_mode_without_task", "lm", "--mode=generate", f"--task is missing; expected one of {LANGUAGE}"),
    Row("generate_mode_default_run_missing", "lm", "--mode=generate --task=text",
        "runs/text-small holds no run: config.json is missing; train one there first"),
    Row("evaluate_mode_workdir_empty", "lm", "--mode=evaluate --workdir=", "--workdir must not be empty. Received: --workdir="),
    Row("pixels_evaluate_without_run", "pixels", "--mode=evaluate --workdir=run",
        "run holds no run: config.json is missing; train one there first"),
    Row("pixels_evaluate_language_run", "pixels", "--mode=evaluate --workdir=run",
        "--task=text is one of python -m trainers.lm, not of trainers.pixels", run()),
    Row("generate_mode_other_task", "lm", f"{GENERATE} --task=ptb",
        "--task=ptb is not that of the run in run, text; leave out --task, or choose another --workdir", run()),
    Row("generate_mode_other_preset", "lm", f"{GENERATE} --preset=paper",
        "--preset=paper is not that of the run in run, small; leave out --preset, or choose another --workdir", run()),
    # evaluate and generate, which take any run
    Row("evaluate_without_flags", "evaluate", NO_FLAGS, "--task is missing; expected one of ptb, {any}"),
    Row("evaluate_without_run", "evaluate", "--workdir=run", "run holds no run: config.json is missing; train one there first"),
    Row("evaluate_other_task", "evaluate", "--workdir=run --task=ptb",
        "--task=ptb is not that of the run in run, text; leave out --task, or choose another --workdir", run()),
    Row("evaluate_with_field", "evaluate", "--workdir=run --config.model.depth=3",
        "--config.model.depth has no use here: --workdir says which run", run()),
    Row("evaluate_cache_size_alone", "evaluate", "--workdir=run --cache_size=3",
        "--cache_size, --cache_theta, --cache_lambda go together; missing: --cache_theta, --cache_lambda", run()),
    Row("evaluate_protocol_with_pixels", "evaluate", "--workdir=run --protocol=exact",
        "--protocol is for language models. Received: a run of permuted_mnist", run(**PIXEL_RUN)),
    Row("evaluate_with_mode", "evaluate", "--workdir=run --mode=train", "unknown flag --mode; --help lists those that there are", run()),
    Row("generate_without_flags", "generate", NO_FLAGS, "--task is missing; expected one of ptb, {any}"),
    Row("generate_without_run", "generate", "--workdir=run", "run holds no run: config.json is missing; train one there first"),
    refused("generate_top_p_above_one", "generate", "--workdir=run --top_p=2",
        "a number above 0 and at most 1", run(), received="2.0"),
    Row("generate_with_data_dir", "generate", "--workdir=run --data_dir=text",
        "--data_dir has no use here: the run holds its vocabulary", run()),
    Row("generate_from_pixel_run", "generate", "--workdir=run",
        "run must hold a language model. Received: a run of permuted_mnist", run(**PIXEL_RUN)),
    # what is lost or damaged
    damaged("run_without_vocabulary", "lm", GENERATE,
        "run has no trained weights yet: vocabulary.txt is missing", **{"vocabulary.txt": None}),
    damaged("run_without_weights", "lm", GENERATE, "run has no trained weights yet: run/checkpoints/best.npz is missing"),
    damaged("run_weights_empty", "lm", GENERATE,
        "run/checkpoints/best.npz cannot be read (its end is missing)", **{"checkpoints/best.npz": b""}),
    damaged("run_weights_cut_short", "lm", GENERATE,
        "run/checkpoints/best.npz cannot be read (its end is missing)", **{"checkpoints/best.npz": b"PK\x03\x04"}),
    damaged("run_weights_are_a_folder", "lm", GENERATE,
        "run/checkpoints/best.npz cannot be read, its contents are unknown: [Errno 21] Is a directory: 'run/checkpoints/best.npz'", **{"checkpoints/best.npz": folder}),
    broken("run_config_empty", "lm", GENERATE, "config.json", b"", "it is empty"),
    broken("run_config_cut_off", "lm", GENERATE, "config.json", "{", "it is cut off"),
    broken("run_config_is_a_list", "lm", GENERATE, "config.json", "[]", "it holds a list, not fields"),
    damaged("run_config_without_task", "lm", GENERATE,
        f"run/config.json: `config.task` is missing; it must be one of {TASKS}", **{"config.json": "{}"}),
    broken("run_config_is_null", "lm", GENERATE, "config.json", "null", "it holds null, not fields"),
    broken("run_config_not_utf8", "lm", GENERATE, "config.json", b"{\n\xff\xfe",
        "it is not UTF-8 (byte 0xff in line 2, at offset 2)"),
    broken("run_config_wrong_checksum", "lm", GENERATE, "config.json", changed(checksum="0"),
        "its values do not fit its `checksum` (take that line out if you have edited it)"),
    damaged("run_config_is_a_folder", "lm", GENERATE, "run/config.json: Is a directory", **{"config.json": folder}),
    damaged("run_config_misspelt_task", "lm", GENERATE,
        "run/config.json: unknown config.task 'ptbb'; did you mean 'ptb'?", **{"config.json": '{"task": "ptbb"}'}),
    damaged("run_config_task_changed", "lm", GENERATE,
        "run/config.json: unknown config field 'data.history'; did you mean 'data.validation'?", **{"config.json": changed(task="seq_mnist")}),
    damaged("run_config_model_is_a_number", "lm", GENERATE,
        "run/config.json: unknown config field 'model'; did you mean 'model.head'?", **{"config.json": changed(model=3)}),
    damaged("run_config_units_in_words", "lm", GENERATE,
        "run/config.json: `config.model.units` must be an integer of at least 1 and below 2**31. Received: config.model.units='many'", **{"config.json": changed(model__units="many")}),
    damaged("run_config_depth_zero", "lm", GENERATE,
        "run/config.json: `config.model.depth` must be an integer of at least 1 and below 2**31. Received: config.model.depth=0", **{"config.json": changed(model__depth=0)}),
    damaged("run_config_unknown_layer", "lm", GENERATE,
        "run/config.json: `config.model.layer` must be one of ('trellis', 'equilibrium', 'lstm', 'skip_lstm', 'gru', 'gru_reset_before', 'weight_drop_lstm', 'irc_gru', 'irc_lstm', 'ihc_lstm', 'ihc_lstm_projected', 'sru', 'irc_sru', 't_lstm', 'irc_t_lstm', 'fast_grnn', 'irc_fast_grnn', 'tensorized', 'grid_lstm', 'tcn', 'transformer'). Received: config.model.layer='rnn'", **{"config.json": changed(model__kind="rnn")}),
    damaged("run_config_unknown_field", "lm", GENERATE,
        "run/config.json: unknown config field 'model.width'; did you mean 'model.depth'?", **{"config.json": changed(model__width=3)}),
    broken("vocabulary_empty", "lm", GENERATE, "vocabulary.txt", b"", "it has not one token a line, in UTF-8 (it is empty)"),
    broken("vocabulary_without_eos", "lm", GENERATE, "vocabulary.txt", b"a\nb\n",
        "it has not one token a line, in UTF-8 ('<eos>' must be a token. Received: 2 tokens without it)"),
    broken("vocabulary_token_twice", "lm", GENERATE, "vocabulary.txt", b"a\na\n<eos>\n",
        "it has not one token a line, in UTF-8 (each token must stand there once. Received: 'a' a second time, as token 1 of 3)"),
    broken("vocabulary_not_utf8", "lm", GENERATE, "vocabulary.txt", b"a\n\xff\n<eos>\n",
        "it has not one token a line, in UTF-8 (byte 0xff in line 2, at offset 2)"),
    damaged("vocabulary_is_a_folder", "lm", GENERATE, "run/vocabulary.txt: Is a directory", **{"vocabulary.txt": folder}),
    damaged("vocabulary_unlike_text", "lm", EVALUATE,
        "run belongs to a run on another text (train); give that run's text by --data_dir, or choose another --workdir", **{"vocabulary.txt": "a\nb\n<eos>\n<unk>\n"}),
    broken("corpus_cut_off", "lm", EVALUATE, "corpus.json", "{", "it is cut off"),
    damaged("vocabulary_is_a_pipe", "lm", GENERATE,
        "run/vocabulary.txt: it is a pipe, no file", **{"vocabulary.txt": fifo}),
    damaged("run_weights_are_a_pipe", "lm", GENERATE,
        "run/checkpoints/best.npz cannot be read, its contents are unknown: [Errno 22] it is a pipe, no file: 'run/checkpoints/best.npz'", **{"checkpoints/best.npz": fifo}),
    damaged("run_config_is_a_pipe", "lm", GENERATE, "run/config.json: it is a pipe, no file", **{"config.json": fifo}),
    damaged("corpus_is_a_pipe", "lm", EVALUATE, "run/corpus.json: it is a pipe, no file", **{"corpus.json": fifo}),
    broken("corpus_is_a_list", "lm", EVALUATE, "corpus.json", "[]", "it holds a list, not fields"),
    broken("corpus_without_sha256", "lm", EVALUATE, "corpus.json", "{}", "it lacks `sha256`"),
    damaged("corpus_lacks_hashes", "lm", EVALUATE,
        "run belongs to a run on another text (train, validation, test); give that run's text by --data_dir, or choose another --workdir", **{"corpus.json": '{"sha256": {"train": "0"}}'}),
    damaged("corpus_hashes_differ", "lm", EVALUATE,
        "run belongs to a run on another text (train, validation, test); give that run's text by --data_dir, or choose another --workdir", **{"corpus.json": '{"sha256": {"train": "0", "validation": "0", "test": "0"}}'}),
    broken("train_config_cut_off", "lm", f"{TRAIN} --workdir=run", "config.json", "{", "it is cut off"),
    damaged("lock_is_a_folder", "lm", f"{TRAIN} --workdir=run", "run/lock: Is a directory", **{"lock": folder}),
    damaged("lock_is_a_pipe", "lm", f"{TRAIN} --workdir=run", "run/lock: it is a pipe, no file", **{"lock": fifo}),
    broken("changes_cut_off", "lm", f"{TRAIN} --workdir=run", "changes.json", "{", "it is cut off"),
    broken("changes_without_changes", "lm", f"{TRAIN} --workdir=run", "changes.json", "{}", "it lacks `changes`"),
    broken("changes_with_a_number", "lm", f"{TRAIN} --workdir=run", "changes.json", '{"changes": [3]}',
        "one of `changes` is none"),
    damaged("changes_are_a_pipe", "lm", f"{TRAIN} --workdir=run", "run/changes.json: it is a pipe, no file", **{"changes.json": fifo}),
    damaged("lstm_run_without_weights", "lm", GENERATE,
        "run has no trained weights yet: run/checkpoints/best.npz is missing", **{"config.json": of("ptb", "small_lstm_200")}),
    damaged("generate_mode_from_adding_run", "lm", GENERATE,
        "--task=adding is one of python -m trainers.pixels, not of trainers.lm", **{"config.json": of("adding", "small")}),
    broken("run_config_too_many_brackets", "lm", GENERATE, "config.json", "[" * 100_000, "it is not JSON (too many brackets)"),
    broken("run_config_is_a_string", "lm", GENERATE, "config.json", '"task"', "it holds a text, not fields"),
    damaged("run_config_seed_infinite", "lm", GENERATE,
        "run/config.json: `config.seed` must be an integer of at least 0 and at most 4294967295. Received: config.seed=inf", **{"config.json": changed(seed=float("inf"))}),
    Row("pixel_run_digits_missing", "pixels", PIXELS,
        "--data_dir must be a folder of {any}. Received: --data_dir=digits, which is no folder", run(**PIXEL_RUN)),
    Row("run_data_cut_off", "pixels", PIXELS,
        "run/data.json is damaged: it is cut off. Bring it back from a backup, or choose another --workdir", run(**PIXEL_RUN, **{"data.json": "{"})),
    Row("run_data_without_sha256", "pixels", PIXELS,
        "run/data.json is damaged: it lacks `sha256`. Bring it back from a backup, or choose another --workdir", run(**PIXEL_RUN, **{"data.json": "{}"})),
    Row("run_data_permutation_repeats", "pixels", PIXELS,
        "run/data.json is damaged: `permutation` is neither null nor each of 0, ..., T - 1 once. Bring it back from a backup, or choose another --workdir", run(**PIXEL_RUN, **{"data.json": '{"sha256": {}, "permutation": [0, 0]}'})),
    Row("run_data_is_a_pipe", "pixels", PIXELS, "run/data.json: it is a pipe, no file", run(**PIXEL_RUN, **{"data.json": fifo})),
    # reports
    Row("report_run_missing", "report", "run", "run holds no run: config.json is missing; train one there first"),
    Row("report_text_folder", "report", "text",
        "text holds no run: config.json is missing; train one there first", texts()),
    Row("report_text_file", "report", "text/train.txt",
        "text/train.txt holds no run: config.json is missing; train one there first", texts()),
    Row("report_run_twice", "report", "run run", "expected folders of runs, each once. Received: run run", run()),
    Row("report_run_twice_with_slash", "report", "run run/", "expected folders of runs, each once. Received: run run/", run()),
    Row("report_run_twice_with_dot", "report", "run ./run", "expected folders of runs, each once. Received: run ./run", run()),
    Row("report_second_run_missing", "report", "run missing",
        "missing holds no run: config.json is missing; train one there first", run()),
    Row("report_empty_name", "report", "''", "expected folders of runs, each once. Received: ''", run()),
    Row("report_output_empty", "report", "run --output=", "--output must not be empty. Received: --output=", run()),
    refused("report_output_is_a_file", "report", "run --output=text/train.txt",
        "a folder, or the name of a new one", run() | texts(), received="text/train.txt, which is no folder"),
    refused("report_output_below_a_file", "report", "run --output=text/train.txt/docs",
        "a folder, or the name of a new one", run() | texts(), received="text/train.txt/docs, of which text/train.txt is no folder"),
    Row("report_output_in_proc", "report", "run --output=/proc/docs", "/proc/docs: {any}", run()),
    Row("report_output_is_the_run", "report", "run --output=run",
        "--output=run is in the folder of a run, run, which holds nothing else; choose another folder", run()),
    Row("report_config_cut_off", "report", "run",
        "run/config.json is damaged: it is cut off. Bring it back from a backup, or choose another --workdir", run(**{"config.json": "{"})),
    Row("report_config_without_task", "report", "run",
        "run/config.json is damaged: it lacks `task`. Bring it back from a backup, or choose another --workdir", run(**{"config.json": "{}"})),
    Row("report_config_is_a_list", "report", "run",
        "run/config.json is damaged: it holds a list, not fields. Bring it back from a backup, or choose another --workdir", run(**{"config.json": "[]"})),
    Row("report_config_without_epochs", "report", "run",
        "run/config.json is damaged: it lacks `training.epochs`. Bring it back from a backup, or choose another --workdir", run(**{"config.json": '{"task": "ptbb", "preset": "small"}'})),
    Row("report_result_cut_off", "report", "run",
        "run/result.json is damaged: it is cut off; the training command scores the run again", run(**{"result.json": "{"})),
    Row("report_result_is_a_list", "report", "run",
        "run/result.json is damaged: it holds a list, not fields; the training command scores the run again", run(**{"result.json": "[]"})),
    Row("report_result_epochs_in_words", "report", "run",
        "run/result.json is damaged: `epochs` is a text, not a whole number; the training command scores the run again", run(**{"result.json": '{"epochs": "many"}'})),
    Row("report_result_without_perplexity", "report", "run",
        "run/result.json is damaged: its scores are not those of a run (they lack 'perplexity')", run(**{"result.json": '{"epochs": 99, "scores": {"test": {"exact": {}}}}'})),
    Row("report_config_is_a_pipe", "report", "run", "run/config.json: it is a pipe, no file", run(**{"config.json": fifo})),
    Row("report_result_is_a_pipe", "report", "run", "run/result.json: it is a pipe, no file", run(**{"result.json": fifo})),
)
