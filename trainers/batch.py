r"""Scores a corpus with an exported language model, by Apache Beam.

    python -m trainers.batch --model=MODELS/NAME --input='texts/*.txt.gz' --output=scores
    python -m trainers.batch --model=MODELS/NAME --input='web/*.jsonl' --output=scores \
        --keep='perplexity<200'

Flags of Beam, such as `--runner`, are passed to it. docs/howto/corpus.md describes files and
runners.
"""

import logging as silenced
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from absl import flags, logging
from etils import epath

from keras_trellis.export import versions
from trainers.cli import command, flag_errors
from trainers.data.stores import to_path
from trainers.scoring import keep, output
from trainers.scoring.corpus import Corpus, check_fields, format_counts
from trainers.scoring.scorer import Scorer
from trainers.training import hold
from trainers.training.workdir import NotKeptError

FLAGS = flags.FLAGS
_ROOT = Path(__file__).parents[1]
_HELP = {
    "input": "The files: a name, or a pattern with * for several. Text, JSON Lines or TFRecord.",
    "output": "The folder of the scores, a new one.",
    "keep": "Which documents to write again: FIELD<NUMBER, or <=, >, >=. Several must all hold.",
    "text_field": "The field of the text in JSON Lines and in tf.train.Example.",
    "max_failures": "How many documents may have no score, a number or a share of all; with more "
    "the command writes all the same and ends with status 2.",
    "output_field": "The field of the scores in kept documents, one that they do not have.",
}
# What stops a worker, as the line of a traceback: a runner hands on the text of an error alone.
_MEMORY = re.compile(
    r"^(?:\w+\.)*(?:MemoryError|ResourceExhaustedError)\b:? ?(.*)", re.MULTILINE
)
_MODEL = re.compile(r"^(?:\w+\.)*ModelError: (.*)", re.MULTILINE)
_MOST = re.compile(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?)%")  # a number, or a share
_PLACE = re.compile(r" ?\[while running .*")  # of Beam
# Beam's runner on this machine. Its default would look for a program on the network first.
_LOCAL = "--runner=FnApiRunner"


def define_flags() -> None:
    """Defines the command's flags, in a function because other commands share their names."""
    flags.DEFINE_string("model", None, "The folder of an exported language model.")
    flags.DEFINE_string("input", None, _HELP["input"])
    flags.DEFINE_string("output", None, _HELP["output"])
    flags.DEFINE_multi_string("keep", [], _HELP["keep"])
    flags.DEFINE_string("text_field", "text", _HELP["text_field"])
    flags.DEFINE_string("output_field", "score", _HELP["output_field"])
    flags.DEFINE_string("max_failures", "1%", _HELP["max_failures"])


def main(argv: list[str]) -> int:
    """Scores the corpus; returns the exit status."""
    stray = [argument for argument in argv if not argument.startswith("--")]
    beam_flags = [argument for argument in argv if argument.startswith("--")]
    corpus = Corpus(
        FLAGS.model,
        FLAGS.input,
        FLAGS.output,
        FLAGS.keep,
        FLAGS.text_field,
        FLAGS.output_field,
    )
    return command.exit_status(stray, lambda: _score(corpus, beam_flags))


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid.

    Returns:
        what are no flags, the command's name first, and the flags of Beam.
    """
    beam_flags = [argument for argument in argv if _is_beam_flag(argument)]
    ours = [argument for argument in argv if not _is_beam_flag(argument)]
    return [*command.parse(ours, _check_flags), *beam_flags]


def score(corpus: Corpus, beam_flags: Sequence[str] = ()) -> dict[str, int]:
    """Scores a corpus, if its folder has not the scores already.

    Args:
        corpus: what to score, by what, and where to write.
        beam_flags: flags of Beam.

    Returns:
        the numbers of documents, of their tokens, of kept, of empty documents and of failures.

    Raises:
        ValueError, OSError, ImportError: something cannot be used; nothing is written.
        ValueError: the model failed in the pipeline. The same call begins again.
        MemoryError: memory ran out in the pipeline. The same call begins again.
        NotKeptError: the pipeline failed otherwise. The same call begins again.
        WorkdirError: another process is at work in the folder, or has taken it over.
    """
    for condition in corpus.keep:
        keep.parse(condition)
    check_fields(corpus.text_field, corpus.output_field)
    beam = _import_pipeline()
    pipeline = beam.pipeline([_LOCAL, *beam_flags])
    paths = beam.matched(corpus.input)
    with flag_errors.naming("model", "path"):
        version = versions.newest(corpus.model)
    folder = to_path(corpus.output)
    described = output.described(corpus, version, paths)
    if counts := output.check(folder, described):
        return _report_done(folder, counts)
    Scorer(version)  # an error now, not in each worker
    _let_workers_import()
    folder.mkdir(parents=True, exist_ok=True)
    with hold.held(folder) as held:
        # Another process may have begun, or come to its end, since.
        if counts := output.check(folder, described):
            return _report_done(folder, counts)
        output.begin(folder, described)
        counts = _run(lambda: beam.run(pipeline, corpus, version, paths))
        held.check()
        output.finish(folder, counts)
    return counts


def _run(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Runs a pipeline; raises its error as one of the kinds that have an exit status."""
    try:
        return work()
    except Exception as error:
        logging.debug("The pipeline's error:", exc_info=True)  # with --verbosity=1
        raise _stopped_by(error) from error


def _report_done(folder: epath.Path, counts: dict[str, int]) -> dict[str, int]:
    print(f"{folder} has the scores already; another --output takes them anew")
    return {"empty": 0, **counts}  # an earlier version did not count these


def _stopped_by(error: Exception) -> Exception:
    """Returns an error of the pipeline as the kind that has its exit status."""
    text = f"{error}\n{type(error).__name__}: {error}"
    if match := _MEMORY.search(text):
        return MemoryError(_PLACE.sub("", match[1]))
    if match := _MODEL.search(text):
        return ValueError(_PLACE.sub("", match[1]))
    reason = str(error).strip().rpartition("\n")[2]
    return NotKeptError(
        f"the scores are not complete: {reason}; the same command begins again"
    )


def _score(corpus: Corpus, beam_flags: Sequence[str]) -> int:
    if not FLAGS["verbosity"].present:  # hide Beam's notes and tracebacks
        logging.set_verbosity(logging.FATAL)
    counts = score(corpus, beam_flags)
    print(f"{corpus.output}: {format_counts(counts)}")
    failures, documents = counts["failures"], counts["documents"]
    if failures and documents == counts["empty"]:
        told = "no document has a score"
    elif failures > _most_failures(FLAGS.max_failures, documents + failures):
        told = (
            f"{failures} of {documents + failures} documents have no score, more than "
        )
        told += f"--max_failures={FLAGS.max_failures}"
    else:
        return command.Status.DONE
    why = f"{told}; {corpus.output}/failures-*.jsonl say why"
    return command.fail(why, command.Status.REFUSED)


def _most_failures(text: str, documents: int) -> float:
    """Returns how many of so many documents may have no score.

    Raises:
        ValueError: the text is neither a number nor a share.
    """
    match = _MOST.fullmatch(text)
    if match is None or (match[2] and float(match[2]) > 100):
        raise ValueError(
            "--max_failures must be a number, such as 20, or a share, such as 1%. "
            f"Received: --max_failures={text}"
        )
    return float(match[1] or documents * float(match[2]) / 100)


def _check_flags() -> None:
    command.require("model", "input", "output", "text_field", "output_field")
    for name in ("text_field", "output_field"):
        flag_errors.check_text(name, FLAGS[name].value)
    check_fields(FLAGS.text_field, FLAGS.output_field)
    _most_failures(FLAGS.max_failures, 0)
    for condition in FLAGS.keep:
        keep.parse(condition)


def _is_beam_flag(argument: str) -> bool:
    """Returns whether an argument is a flag that this command does not have."""
    name = argument.removeprefix("--").partition("=")[0]
    known = name in FLAGS or name.removeprefix("no") in FLAGS
    return argument.startswith("--") and not known


def _import_pipeline() -> ModuleType:
    """Returns the module that needs Beam.

    Raises:
        ImportError: Beam is not installed; the message names the extra.
    """
    silenced.disable(silenced.WARNING)  # about what else could be installed
    try:
        import apache_beam  # noqa: F401

        from trainers.scoring import pipeline
    except ImportError as error:
        if not (error.name or "").startswith("apache_beam"):
            raise
        raise ImportError(
            f"a corpus needs Apache Beam, the extra `beam`: pip install '.[beam]' ({error})"
        ) from error
    finally:
        silenced.disable(silenced.NOTSET)
    return pipeline


def _let_workers_import() -> None:
    """Lets Beam's processes on this machine import what this one can."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags, computes=True)
