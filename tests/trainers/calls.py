"""Runs commands of the trainers in the test's own process."""

from absl import flags as absl_flags
from absl.testing import flagsaver

from trainers.cli import config_flags


def summary(output):
    """Returns the line of a run's scores, after which other lines come."""
    (line,) = [line for line in output.splitlines() if line.startswith("best of epoch")]
    return line


def flags(text):
    """Returns flags as words of a text; a word without `--` is a field of the config."""
    words = text.split()
    return tuple(w if w.startswith("--") else f"--config.{w}" for w in words)


def config_of(*arguments):
    """Returns the config of a command line of a program that trains."""
    flag_values = absl_flags.FlagValues()
    for name in ("task", "preset", "config_file", "workdir"):
        absl_flags.DEFINE_string(name, None, "", flag_values=flag_values)
    absl_flags.DEFINE_string("mode", "train", "", flag_values=flag_values)
    config_flags.parse(["lm", *arguments], flag_values)
    return flag_values["config"].value


def in_process(default, capsys):
    """Returns a function that runs a command line, of the program `default` or another.

    It checks the exit status, and returns what the command printed, if the status is not 0 as an
    error. Its attribute `output` has both streams of the last call.
    """

    def call(*arguments, status=0, program=default):
        saved = flagsaver.save_flag_values()
        try:
            program.parse_flags(["program", *map(str, arguments)])
            assert program.main(["program"]) == status
        except SystemExit as exit_:
            assert exit_.code == status
        finally:
            flagsaver.restore_flag_values(saved)
        output = call.output = capsys.readouterr()
        return output.out if status == 0 else output.err

    return call
