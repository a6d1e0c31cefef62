"""What is exported, where to, and what the demo is given to show."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

from tests.trainers.bad_inputs.folders import of, run
from tests.trainers.bad_inputs.row import TASKS, Row, fifo, link, texts
from trainers.tasks import registry

EXPORTED = ", ".join(name for name, task in registry.TASKS.items() if task.program != "trainers.pixels" or task.reads_files)
EXPORT = "--workdir=run --output=models/text"
NO_EXPORT = "--model must be the folder of an export, or of one of its versions, with a file manifest.json. Received: --model={any}"

ROWS = (
    Row("export_without_run", "export", EXPORT, "run holds no run: config.json is missing; train one there first"),
    Row("export_workdir_empty", "export", "--workdir= --output=models",
        "--workdir must not be empty. Received: --workdir="),
    Row("export_output_empty", "export", "--workdir=run --output=",
        "--output must not be empty. Received: --output=", run()),
    Row("export_output_with_leading_space", "export", "--workdir=run --output=' models'",
        "--output must be a name without control characters or white space at its ends. Received: --output=' models'", run()),
    Row("export_without_weights", "export", EXPORT,
        "run has no trained weights yet: run/checkpoints/best.npz is missing", run()),
    Row("export_text_folder", "export", "--workdir=text --output=models",
        "text holds no run: config.json is missing; train one there first", texts()),
    Row("export_text_file", "export", "--workdir=text/train.txt --output=models",
        "text/train.txt holds no run: config.json is missing; train one there first", texts()),
    Row("export_output_is_a_file", "export", "--workdir=run --output=models",
        "--output must be a model's folder, in which each export is a new version. Received: --output='models', which is a file", run() | {"models": "a file"}),
    Row("export_output_below_a_file", "export", "--workdir=run --output=models/text",
        "--output must be a folder, or the name of a new one. Received: --output=models/text, of which models is no folder", run() | {"models": "a file"}),
    Row("export_output_is_a_pipe", "export", "--workdir=run --output=models",
        "--output must be a model's folder, in which each export is a new version. Received: --output='models', which is a file", run() | {"models": fifo}),
    Row("export_output_is_a_saved_model", "export", "--workdir=run --output=models",
        "--output must be a model's folder, in which each export is a new version. Received: --output='models', which is a SavedModel itself", run() | {"models/saved_model.pb": b""}),
    Row("export_output_named_like_a_version", "export", "--workdir=run --output=models/3",
        "--output must be a model's folder, in which each export is a new version. Received: --output='models/3', whose name is that of a version", run()),
    Row("export_output_is_the_run", "export", "--workdir=run --output=run",
        "--output=run is in the folder of a run, run, which holds nothing else; choose another folder", run()),
    Row("export_output_in_the_run", "export", "--workdir=run --output=run/models",
        "--output=run/models is in the folder of a run, run, which holds nothing else; choose another folder", run()),
    Row("export_output_is_the_run_by_a_detour", "export", "--workdir=run --output=./run/../run",
        "--output=./run/../run is in the folder of a run, run/../run, which holds nothing else; choose another folder", run()),
    Row("export_to_proc_without_weights", "export", "--workdir=run --output=/proc/models",
        "run has no trained weights yet: run/checkpoints/best.npz is missing", run()),
    Row("export_output_below_dev_null", "export", "--workdir=run --output=/dev/null/models",
        "--output must be a folder, or the name of a new one. Received: --output=/dev/null/models, of which /dev/null is no folder", run()),
    Row("export_int8_without_weights", "export", "--workdir=run --output=models --precision=int8",
        "run has no trained weights yet: run/checkpoints/best.npz is missing", run()),
    Row("export_config_cut_off", "export", "--workdir=run --output=models",
        "run/config.json is damaged: it is cut off. Bring it back from a backup, or choose another --workdir", run(**{"config.json": "{"})),
    Row("export_config_without_task", "export", "--workdir=run --output=models",
        f"run/config.json: `config.task` is missing; it must be one of {TASKS}", run(**{"config.json": "{}"})),
    Row("export_vocabulary_not_utf8", "export", "--workdir=run --output=models",
        "run/vocabulary.txt is damaged: it has not one token a line, in UTF-8 ({any}", run(**{"vocabulary.txt": b"\xff"})),
    Row("export_lstm_without_weights", "export", "--workdir=run --output=models",
        "run has no trained weights yet: run/checkpoints/best.npz is missing", run(**{"config.json": of("ptb", "small_lstm_200")})),
    Row("export_adding_run", "export", "--workdir=run --output=models",
        f"only runs of {EXPORTED} are exported. Received: a run of adding, in run", run(**{"config.json": of("adding", "small")})),
    Row("demo_model_missing", "demo", "--model=models --port=0", NO_EXPORT),
    Row("demo_model_empty", "demo", "--model= --port=0", "--model is missing"),
    Row("demo_model_is_a_file", "demo", "--model=models --port=0", NO_EXPORT, {"models": "a file"}),
    Row("demo_model_link_to_nowhere", "demo", "--model=models --port=0", NO_EXPORT, {"models": link("nowhere")}),
    Row("demo_model_without_version", "demo", "--model=models --port=0", NO_EXPORT, {"models/readme.txt": "no version"}),
    Row("demo_model_is_a_damaged_version", "demo", "--model=models/1 --port=0", NO_EXPORT, {"models/1/saved_model.pb": b"damaged"}),
    Row("demo_version_without_manifest", "demo", "--model=models --port=0",
        "{any}/models/1 has no manifest.json: it is no version of an export, or one of an earlier release; export the model again", {"models/1/notes.txt": b"no graph"}),
    Row("demo_manifest_damaged", "demo", "--model=models --port=0",
        "{any}/models/1/manifest.json is damaged: {any}", {"models/1/manifest.json": b"damaged"}),
    Row("demo_version_is_a_file", "demo", "--model=models --port=0", NO_EXPORT, {"models/1": "a file"}),
)
