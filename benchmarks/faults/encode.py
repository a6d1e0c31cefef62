"""Encodes a user's text, as the trainers do first.

    python -m benchmarks.faults.encode --data_dir=DIR

It reads a few words at once; the trainers read a megabyte.
"""

from absl import flags

from trainers.cli import command, run_flags
from trainers.data import text
from trainers.language import corpora

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(run_flags)
BYTES = 64  # of text at once


def main(argv: list[str]) -> int:
    """Encodes the text; returns the exit status."""
    text._BLOCK_BYTES = BYTES
    return command.exit_status(argv, _encode)


def _encode():
    corpus = corpora.load("text", FLAGS.data_dir)
    print(f"{corpus.vocabulary.size} words, {len(corpus.train)} tokens")


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return command.parse(argv, lambda: command.require("data_dir"))


if __name__ == "__main__":
    command.start(main, parse_flags)
