r"""Measures the table of `watch`: five folds, three seeds, with a stem and without, and a rival.

    python -m docs.studies.watch_table --output=FOLDER
    python -m docs.studies.watch_table --output=FOLDER --rocket=rocket/bin/python

The same command goes on where it was stopped. FOLDER/stem and FOLDER/small are comparisons by
`trainers.compare`: in the first the same convolution stands before each layer, in the second none.
Both trainings of a layer have the same CPU seconds and trials. FOLDER/minirocket.csv has the rival,
which needs an environment of its own; see docs/studies/minirocket.py. With `--patience` a second
pair of comparisons trains to the end, with the settings of the first.
"""

import pathlib
import subprocess
import sys
from collections.abc import Sequence

from absl import app, flags

FLAGS = flags.FLAGS
_FOLDS = 5
# The other presets' is the first layer's. A TCN has no size within 1 % of that of `stem`.
_PARAMETERS = {"stem": 98_000}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("output", None, "The folder of all results.", required=True)
    flags.DEFINE_integer(
        "seeds", 15, "Runs of each layer, of one fold after the other.", 1
    )
    flags.DEFINE_float("seconds", 20, "CPU seconds of a run.")
    flags.DEFINE_integer("trials", 4, "Trials of each layer.", 0)
    flags.DEFINE_integer("validations", 10, "Validations of a run.", 1)
    flags.DEFINE_integer(
        "patience", None, "Also train to the end, as trainers.compare.", 1
    )
    flags.DEFINE_float("most_seconds", 100, "The most CPU seconds of these runs.")
    flags.DEFINE_list("models", "trellis,tcn,gru,lstm,sru".split(","), "The layers.")
    flags.DEFINE_list("presets", ["stem", "small"], "The presets that they begin with.")
    flags.DEFINE_string("rocket", None, "A Python that has aeon; None: no MiniRocket.")


def main(argv: Sequence[str]) -> None:
    """Makes what is missing."""
    del argv
    folder = pathlib.Path(FLAGS.output)
    for preset in FLAGS.presets:
        _compare(preset, folder / preset, FLAGS.seconds, f"--trials={FLAGS.trials}")
    if FLAGS.patience:
        for preset in FLAGS.presets:
            files = sorted((folder / preset / "watch").glob("*/0/config.json"))
            settings = f"--config_files={','.join(map(str, files))}"
            patience = f"--patience={FLAGS.patience}"
            end = folder / f"{preset}_end"
            _compare(preset, end, FLAGS.most_seconds, settings, patience)
    if FLAGS.rocket:
        _minirocket(folder)


def _compare(preset: str, output: pathlib.Path, seconds: float, *others: str) -> None:
    run = ("-m", "trainers.compare", "--tasks=watch", f"--preset={preset}")
    models = f"--models={','.join(FLAGS.models)}"
    length = (f"--seeds={FLAGS.seeds}", f"--seconds={seconds:g}", "--threads=1")
    if preset in _PARAMETERS:
        others = (*others, f"--parameters={_PARAMETERS[preset]}")
    validations = f"--validations={FLAGS.validations}"
    place = f"--output={output}"
    command = [sys.executable, *run, models, *length, validations, *others, place]
    print(*command, flush=True)
    subprocess.run(command, check=True)


def _minirocket(folder: pathlib.Path) -> None:
    """Cuts the windows of each fold, and fits to them."""
    table = folder / "minirocket.csv"
    if table.exists():
        return
    windows = [folder / f"watch-{fold}.npz" for fold in range(_FOLDS)]
    for fold, path in enumerate(windows):
        if not path.exists():
            module = ("-m", "docs.studies.recording_windows", "--task=watch")
            place = (f"--fold={fold}", f"--output={path}")
            subprocess.run([sys.executable, *module, *place], check=True)
    study = pathlib.Path(__file__).with_name("minirocket.py")
    command = [FLAGS.rocket, str(study), *map(str, windows), "--seeds=3"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    table.write_text(done.stdout)
    print(done.stderr, flush=True)


if __name__ == "__main__":
    define_flags()
    app.run(main)
