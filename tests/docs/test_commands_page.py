"""The page of commands: what each command's `--help` prints."""

import os

import pytest

from docs import commands


def words(text):
    """Returns a text's words, which no width of a terminal and no version of Python changes."""
    return text.split()


SECTIONS = {
    section.partition("\n")[0]: f"\n## {section}"
    for section in commands.PAGE.read_text().split("\n## ")[1:]
}


def test_every_command_has_a_section():
    assert len(SECTIONS) == len(commands.MODULES)


@pytest.mark.parametrize("module", commands.MODULES)
def test_the_page_has_what_help_prints(module, forks):
    env = {**os.environ, **commands.ENVIRONMENT}
    done = forks.run("-m", module, "--help", env=env)
    expected = commands.section(module, done.stdout)
    title = expected.split("\n")[1].removeprefix("## ")
    assert words(SECTIONS[title]) == words(expected), "run `python -m docs.commands`"
