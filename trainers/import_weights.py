"""Makes a run's folder of weights that the authors' scripts saved.

    python -m trainers.import_weights --task=ptb --checkpoint=FILE.pkl --workdir=DIR --data_dir=TEXT
    python -m trainers.lm --workdir=DIR --data_dir=TEXT --mode=evaluate

The preset is `released`, the defaults of those scripts, unless another is given. Most sizes are
told by the shapes in the file; depth and dilation are not: they are the preset's or, where the
shapes are not the preset's, are asked for. The file has no vocabulary: it is that of the training
text, in order of first appearance.
"""

import ml_collections
from absl import app, flags
from etils import epath
from ml_collections import config_flags

from trainers import command, files, language_runs, released, runs
from trainers.data.text import sha256
from trainers.measures import of_tokens
from trainers.torch_files import read_state_dict
from trainers.training import checkpoints
from trainers.training.workdir import WorkdirError, open_workdir

FLAGS = flags.FLAGS
# The corpora whose vocabulary has the order in which the authors' scripts come upon it.
_NUMBERED_AS_THEIRS = {"order": ("appearance",), "form": ("released", "paper")}

flags.adopt_module_key_flags(command)
flags.DEFINE_string("checkpoint", None, "The file of weights that the authors' script saved.")


def main(argv: list[str]) -> int:
    """Imports the weights; returns the exit status."""
    return command.run(argv, _import)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line for `app.run`; exits with one line where it is not valid."""
    # Before the others, of which the last one counts.
    return command.parse_flags([argv[0], "--preset=released", *argv[1:]], _check_flags)


def _check_flags(argv: list[str]) -> None:
    del argv
    command.require("task", "checkpoint", "workdir")


def _import() -> None:
    path = epath.Path(FLAGS.workdir).expanduser()
    if path.exists():
        raise WorkdirError(f"{path} is there already; choose a new --workdir")
    _check_numbering(FLAGS.config)
    checkpoint = epath.Path(FLAGS.checkpoint).expanduser()
    source = released.model_of(read_state_dict(checkpoint), FLAGS.config)
    given = config_flags.get_override_values(FLAGS["config"]).keys()
    config = released.with_told_sizes(FLAGS.config, source, given)
    corpus, types = language_runs.load_corpus(config, FLAGS.data_dir), of_tokens(config.task).types
    if source.vocabulary_size != corpus.vocabulary.size:
        raise ValueError(
            f"{checkpoint} has vectors of {source.vocabulary_size:,} {types}, and the training "
            f"text ({corpus.labels['train']}) has {corpus.vocabulary.size:,}; give the text that "
            "the weights were trained on by --data_dir"
        )
    model = released.built(config, source)
    with open_workdir(path, config.to_dict()):
        provenance = {"checkpoint": checkpoint.name, "sha256": sha256(checkpoint)}
        files.write_json(path / language_runs.IMPORTED, provenance)
        language_runs.keep_corpus(path, corpus)
        weights = checkpoints.variable_arrays("model", model.variables)
        if not checkpoints.Checkpoints(path / "checkpoints").save_best(weights):
            raise OSError(f"the weights are not in {path}; remove it, and import them again")
    print(
        f"{path}: {runs.parameters(model):,} parameters, {corpus.vocabulary.size:,} "
        f"{types}, depth {config.model.depth}, dilation {config.model.dilation_rate}"
    )


def _check_numbering(config: ml_collections.ConfigDict) -> None:
    """Raises ValueError where a row of the weights would be taken for another word's."""
    for name, value in config.get("corpus", {}).items():
        theirs = _NUMBERED_AS_THEIRS.get(name, (value,))
        if value not in theirs:
            raise ValueError(
                f"`config.corpus.{name}` must be {' or '.join(map(repr, theirs))}: the authors' "
                "scripts number the vocabulary in that order. Received: "
                f"config.corpus.{name}={value!r}"
            )


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
