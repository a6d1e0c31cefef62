"""What a command leaves in its folder, as values that can be compared between two runs.

Seconds, rates, memory, names that hold a time, a run's id and the version that trained it differ
between runs, and are left out. So is the folder's own name, which some files have.
"""

import csv
import hashlib
import io
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message

from benchmarks.faults.programs import STRAY_CHECKPOINTS, STRAYS
from keras_trellis.formats import manifest
from trainers.data.files import CHECKSUM
from trainers.scoring.output import SETTINGS
from trainers.studies.places import JOURNAL
from trainers.training.workdir import CONFIG, RUN, RUN_ID

Values = dict[str, Any]
_OWN = {"cost/seconds", "cost/peak_bytes", RUN_ID}  # arrays that are a run's own
_RATE = re.compile(r".*_per_second")
_LEFT = re.compile(r".*\.part|\.exporting-.*|\..*\.part")
_VERSION = re.compile(r"models/(\d+)/")
_EXPORTED = 2  # the version that an undisturbed export makes
# A lock holds a process's number; a picture is drawn from the table; a log has all that was tried;
# events that were written once more do no harm.
_IGNORED = re.compile(r"\bcurves\.png$|\block$|\.log$|/tensorboard/.*\.unreadable$")
# They may be incomplete, and so may the points that a comparison takes from them.
RECORDS = ("metrics.csv", "tensorboard", "curves.png", "drawing.gif", "points.csv")
_PATH_FIELDS = (CHECKSUM, "files")
# What a line of a journal has of the process that wrote it.
_PROCESS_FIELDS = ("seconds", "processor_seconds", "version", "commit", RUN_ID)


def read(folder: Path) -> Values:
    """Returns the contents of a folder's files by name, and the names of files left over."""
    values: Values = {}
    events: list[tuple[int, str, Any]] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(_LEFT.fullmatch(part) for part in path.relative_to(folder).parts):
            values[f"left: {_plain(name)}"] = True
        elif not path.is_file() or _IGNORED.search(name):
            continue
        elif "tfevents" in path.name:
            events += summaries(path.read_bytes())
        else:
            values[_plain(name)] = _values(path, folder)
    if events:
        values["tensorboard"] = sorted(events)
    return _without_repeated_versions(values)


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Returns a line for each name that differs, is missing or is new."""
    lines = []
    for name in sorted({*expected, *actual}):
        if name not in actual:
            lines.append(f"{name} is missing")
        elif name not in expected:
            lines.append(f"{name} is new")
        elif expected[name] != actual[name]:
            lines.append(f"{name} differs{_where(expected[name], actual[name])}")
    return lines


def progress(folder: Path) -> dict[str, int]:
    """Returns what is done: the step of each run's newest whole checkpoint, each journal's lines.

    A study removes the weights of its trials.
    """
    done = {}
    for path in folder.rglob("checkpoints"):
        run = path.parent.relative_to(folder)
        if "trials" not in run.parts:
            steps = [-1]
            for file in path.glob("step-*.npz"):
                step = re.fullmatch(r"step-(\d+)\.npz", file.name)
                if step and isinstance(_arrays(file), dict):
                    steps.append(int(step[1]))
            done[f"steps in {run}"] = max(steps)
    for path in folder.rglob(JOURNAL):
        done[f"lines in {path.relative_to(folder)}"] = path.read_bytes().count(b"\n")
    return done


def contents(folder: Path) -> dict[str, str]:
    """Returns a digest of each file by name."""
    digests = {}
    for path in folder.rglob("*"):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def summaries(data: bytes) -> list[tuple[int, str, Any]]:
    """Returns (step, tag, value) of a file of events, up to the first broken record."""
    entries, start = [], 0
    while start + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        record = data[start + 12 : start + 12 + size]
        if len(record) < size:
            break
        start += size + 16
        try:
            entries += _event_summaries(tf.compat.v1.Event.FromString(record))
        except (message.DecodeError, TypeError, ValueError):
            break
    return entries


def _event_summaries(event):
    entries = []
    for summary in event.summary.value:
        value = tf.make_ndarray(summary.tensor)
        if summary.metadata.plugin_data.plugin_name == "images":
            pixels = b"".join(map(bytes, value.ravel()))
            entries.append(
                (event.step, summary.tag, hashlib.sha256(pixels).hexdigest())
            )
        elif not _RATE.match(summary.tag):
            entries.append((event.step, summary.tag, float(value)))
    return entries


def _values(path, folder):
    if path.name in {*STRAYS, *STRAY_CHECKPOINTS}:
        return path.read_bytes()
    if path.suffix == ".npz":
        return _arrays(path)
    if path.name == "result.json":
        return _result(path.read_bytes())
    if path.name == CONFIG:
        return _config(path.read_bytes())
    if path.name == JOURNAL:
        return _journal(path.read_bytes())
    if path.name == "metrics.csv":
        return _rows(path.read_text(errors="replace"))
    if path.name == manifest.NAME:
        return _manifest(path.parent)
    is_graph = path.name in ("saved_model.pb", "fingerprint.pb", "variables.index")
    if is_graph or path.suffix == ".onnx":
        return "is there"  # node names and a random number
    content = path.read_bytes().replace(os.fsencode(folder), b"FOLDER")
    if path.name == "card.md":
        return re.sub(rb"[\d.,]+ minutes", b"", content)
    return _settings(content) if path.name == SETTINGS else content


def _manifest(folder):
    """Returns what a manifest says that is the same each time, if it fits its files."""
    try:
        entries = manifest.read(folder)
        manifest.check(folder, entries)
    except manifest.ManifestError as error:
        return f"cannot be read: {error}"
    return {"fingerprint": entries.fingerprint, "files": sorted(entries.files)}


def _arrays(path):
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name not in _OWN}
    except Exception as error:
        return f"cannot be read: {error}"
    entries = {}
    for name, array in arrays.items():
        entries[name] = (str(array.dtype), array.shape, array.tobytes())
    return entries


def _result(text):
    try:
        result = json.loads(text)
        result["cost"] = {"weight": result["cost"]["weight"]}
        for name in (CHECKSUM, RUN_ID):  # that is the checksum of the seconds, too
            result.pop(name, None)
    except (ValueError, KeyError, TypeError) as error:
        return f"cannot be read: {error}"
    return result


def _config(text):
    try:
        return {
            name: value
            for name, value in json.loads(text).items()
            if name not in (CHECKSUM, RUN)
        }
    except (ValueError, AttributeError) as error:
        return f"cannot be read: {error}"


def _settings(text):
    """Returns what a corpus was scored with, but for checksums of paths."""
    try:
        settings = json.loads(text)
        return {name: settings[name] for name in settings if name not in _PATH_FIELDS}
    except (ValueError, TypeError) as error:
        return f"cannot be read: {error}"


def _journal(data):
    """Returns the lines of a study's journal, but for those that tell times alone."""
    entries = []
    for line in data.splitlines():
        try:
            entry = json.loads(line)
            event = entry["event"]
        except (ValueError, KeyError, TypeError) as error:
            return f"cannot be read: {error}"
        for name in (CHECKSUM, *_PROCESS_FIELDS):
            entry.pop(name, None)
        if event != "worked":
            entries.append(entry)
    return entries


def _rows(text):
    rows = csv.DictReader(io.StringIO(text))
    comparable = []
    for row in rows:
        names = [name for name in row if name and not _RATE.fullmatch(name)]
        comparable.append({name: row[name] for name in names})
    return comparable


def _without_repeated_versions(values):
    """Leaves out versions of a model that equal the one before them.

    If an export is stopped after it has completed its version, giving its command again makes the
    same version once more.
    """
    versions: dict[int, Values] = {}
    for name, value in values.items():
        match = _VERSION.match(name)
        if match:
            files = versions.setdefault(int(match[1]), {})
            files[name.removeprefix(match[0])] = value
    unrepeated = dict(values)
    for number, files in versions.items():
        if number > _EXPORTED and files == versions.get(number - 1):
            for name in files:
                del unrepeated[f"models/{number}/{name}"]
    return unrepeated


def _plain(name):
    """Returns a name without its random numbers and times."""
    return re.sub(r"[0-9a-f]{16,}", "*", name)


def _where(expected, actual):
    """Returns a few words on how two values differ."""
    if isinstance(actual, str) and actual.startswith("cannot"):
        return f" ({actual})"
    if isinstance(expected, dict) and isinstance(actual, dict):
        both = {**expected, **actual}
        keys = [key for key in both if expected.get(key) != actual.get(key)]
        return f" ({', '.join(map(str, keys[:4]))})"
    if isinstance(expected, list) and isinstance(actual, list):
        fewer = [row for row in expected if row not in actual]
        more = [row for row in actual if row not in expected]
        return f" ({len(expected)} and {len(actual)}; {fewer[:1]} against {more[:1]})"
    return ""
