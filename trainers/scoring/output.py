"""The folder of a corpus's scores: what it was made with, and whether it is complete."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from trainers.data import files
from trainers.scoring.corpus import COUNTERS, UNFINISHED, Corpus
from trainers.training.hold import LOCK

SETTINGS, SUMMARY = "settings.json", "summary.json"
_COUNTED = dict.fromkeys((name for name in COUNTERS if name != "empty"), int)
_START_FILES = {LOCK, f".{SETTINGS}.part"}  # which a killed command may have left
_WRITTEN = re.compile(r"(scores|kept|failures)-\d+-of-\d+(-\d+)?\.jsonl")


def described(corpus: Corpus, version: str, paths: Sequence[str]) -> dict[str, Any]:
    """Returns what determines the scores, as `begin` keeps it."""
    settings = corpus._asdict() | {"model": version, "keep": list(corpus.keep)}
    settings["files"] = hashlib.sha256("\n".join(paths).encode()).hexdigest()
    del settings["output"]
    return settings


def check(folder: epath.Path, settings: Mapping[str, Any]) -> dict[str, int] | None:
    """Checks that a folder is a new one, or that of the same command.

    Returns:
        the counts of a command that came to its end; else None.

    Raises:
        ValueError: it holds something else.
    """
    files.check_folder("output", folder)
    if files.exists(folder / SETTINGS):
        done = files.exists(folder / SUMMARY)
        _check_same(folder, settings, "the scores" if done else "an unfinished run")
        return files.read_json(folder / SUMMARY, _COUNTED) if done else None
    names = [entry.name for entry in folder.iterdir()] if files.exists(folder) else []
    if not _START_FILES.issuperset(names):
        raise ValueError(
            "--output must be a new or an empty folder, or that of the same command. Received: "
            f"--output={folder}, which is not empty and has no {SETTINGS}"
        )
    return None


def begin(folder: epath.Path, settings: Mapping[str, Any]) -> None:
    """Makes a folder ready that `check` has let pass."""
    if files.exists(folder / SETTINGS):
        _clear(folder)
    files.write_json(folder / SETTINGS, settings)


def finish(folder: epath.Path, counts: Mapping[str, int]) -> None:
    """Says that all is written."""
    unfinished = folder / UNFINISHED
    if files.exists(unfinished):
        unfinished.rmtree()
    files.write_json(folder / SUMMARY, counts)


def _check_same(folder: epath.Path, settings: Mapping[str, Any], what: str) -> None:
    # An earlier version wrote `score`, and no name for it.
    was = {"output_field": "score"} | files.read_json(folder / SETTINGS)
    now = files.json_value(settings)
    if differing := [name for name in now if was.get(name) != now[name]]:
        raise ValueError(
            f"--output={folder} has {what} of another {' and '.join(differing)}; "
            "choose another folder"
        )


def _clear(folder: epath.Path) -> None:
    """Removes what the killed command has written."""
    for path in folder.iterdir():
        if _WRITTEN.fullmatch(path.name):
            path.unlink()
    if files.exists(folder / UNFINISHED):
        (folder / UNFINISHED).rmtree()
