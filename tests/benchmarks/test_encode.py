"""What encoding takes: a table of three rows."""

import re

from tests.benchmarks.commands import run


def test_prints_what_it_measured(tmp_path):
    for name, lines in (("train", 500), ("valid", 40), ("test", 40)):
        (tmp_path / f"{name}.txt").write_text("the cat sat on the mat\n" * lines)
    flags = ("--task=text", f"--data_dir={tmp_path}", f"--cache_dir={tmp_path / 'c'}", "--steps=2")
    done = run("encode", *flags)
    assert done.returncode == 0, done.stderr
    rows = [re.split(r"\s*\|\s*", line)[1:4] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["encode", "load again", "draw 2 batches"]
    assert [row[2] for row in rows] == ["4,060", "4,060", "1,280"]
