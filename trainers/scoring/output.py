"""The folder of a corpus's scores: what it was made with, and whether it is complete."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from trainers.data import files
from trainers.scoring.corpus import UNFINISHED, Corpus

SETTINGS, SUMMARY = "settings.json", "summary.json"
_WRITTEN = re.compile(r"(scores|kept|failures)-\d+-of-\d+(-\d+)?\.jsonl")


def described(corpus: Corpus, version: str, paths: Sequence[str]) -> dict[str, Any]:
    """Returns what determines the scores, as `begin` keeps it."""
    return {
        "model": version,
        "input": corpus.input,
        "files": hashlib.sha256("\n".join(paths).encode()).hexdigest(),
        "keep": list(corpus.keep),
        "text_field": corpus.text_field,
        "output_field": corpus.output_field,
    }


def check(folder: epath.Path, settings: Mapping[str, Any]) -> None:
    """Checks that a folder is a new one, or that of the same command, which was killed.

    Raises:
        ValueError: it holds something else.
    """
    files.check_folder("output", folder)
    if files.exists(folder / SUMMARY):
        raise ValueError(
            f"--output must be a new folder. Received: --output={folder}, which has scores already"
        )
    if files.exists(folder / SETTINGS):
        _check_same(folder, settings)
    elif files.exists(folder) and any(folder.iterdir()):
        raise ValueError(
            f"--output must be a new or an empty folder. Received: --output={folder}, which is not "
            "empty"
        )


def begin(folder: epath.Path, settings: Mapping[str, Any]) -> None:
    """Makes a folder ready that `check` has let pass."""
    if files.exists(folder / SETTINGS):
        _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / SETTINGS, settings)


def finish(folder: epath.Path, counts: Mapping[str, int]) -> None:
    """Says that all is written."""
    unfinished = folder / UNFINISHED
    if files.exists(unfinished):
        unfinished.rmtree()
    files.write_json(folder / SUMMARY, counts)


def _check_same(folder: epath.Path, settings: Mapping[str, Any]) -> None:
    # An earlier version wrote `score`, and no name for it.
    was = {"output_field": "score"} | files.read_json(folder / SETTINGS)
    now = files.json_value(settings)
    if differing := [name for name in now if was.get(name) != now[name]]:
        raise ValueError(
            f"--output={folder} has an unfinished run with another {' and '.join(differing)}; "
            "choose another folder"
        )


def _clear(folder: epath.Path) -> None:
    """Removes what the killed command has written."""
    for path in folder.iterdir():
        if _WRITTEN.fullmatch(path.name):
            path.unlink()
    if files.exists(folder / UNFINISHED):
        (folder / UNFINISHED).rmtree()
