"""A manifest is read whole, or refused in one sentence: each bit of it, and each of its entries."""

import copy
import json
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_trellis.formats import manifest

ENTRIES = {
    "language_model": {
        "files": ["tokenizer.json", "step.onnx", "chunk.onnx"],
        "cache": {
            "cache_steps": {"dtype": "int32", "sizes": []},
            "cache_0": {"dtype": "float32", "sizes": [2, 3], "first": [[0.5] * 3] * 2},
        },
        "vocabulary_size": 9,
    },
    "classifier": {"files": ["classify.onnx"], "labels": ["low", "high"]},
    "forecaster": {"refused": "it was exported without `runtime=True`"},
}


@pytest.fixture(scope="module", params=ENTRIES)
def version(request, tmp_path_factory):
    """A version whose files are three bytes each, beside a file of TensorFlow's."""
    folder = tmp_path_factory.mktemp("versions") / "1"
    (folder / "assets").mkdir(parents=True)
    runtime = ENTRIES[request.param]
    for name in [*runtime.get("files", []), "assets/vocabulary.txt"]:
        (folder / name).write_bytes(b"abc")
    manifest.write(folder, request.param, "a test", 2**52 - 1, runtime)
    return folder


def check_sizes(version, entries):
    manifest.check(version, entries, entries.runtime.files, sizes_alone=True)


def entries_of(version):
    return json.loads((version / manifest.NAME).read_text(encoding="utf-8"))


def read(version, data):
    """Reads a version with other bytes for its manifest; every error but ours is one."""
    path = version / manifest.NAME
    before = path.read_bytes()
    try:
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return manifest.read(version), None
    except manifest.ManifestError as error:
        assert "\n" not in str(error) and str(path) in str(error)
        return None, str(error)
    finally:
        path.write_bytes(before)


def test_what_was_written_is_read(version):
    read = manifest.read(version)
    manifest.check(version, read)
    check_sizes(version, read)
    assert read.fingerprint == 2**52 - 1 and read.written_by == "a test"
    runtime, wrote = read.runtime, ENTRIES[read.kind]
    assert runtime.files == wrote.get("files", ())
    assert runtime.labels == wrote.get("labels", ())
    assert runtime.refused == wrote.get("refused", "")
    if wrote.get("cache"):
        assert runtime.cache["cache_0"] == ("float32", [2, 3], [[0.5] * 3] * 2)


@given(st.data())
def test_a_flipped_bit_is_refused(version, data):
    wrote = (version / manifest.NAME).read_bytes()
    bit = data.draw(st.integers(0, 8 * len(wrote) - 1))
    flipped = bytearray(wrote)
    flipped[bit // 8] ^= 1 << bit % 8
    got, _ = read(version, bytes(flipped))
    if got is not None:  # the flip was of white space, or of how a character is escaped
        assert json.loads(flipped) == json.loads(wrote)


JUNK = st.sampled_from([None, True, -1, 0, 1.5, 2**60, "", "x", "/x", "../x", [], {}])


@given(st.data())
def test_an_entry_of_another_kind_is_refused_where_the_checksum_fits(version, data):
    entries = entries_of(version)
    places = list(paths(entries))
    *path, last = data.draw(st.sampled_from(places))
    forged = copy.deepcopy(entries)
    holder = forged
    for key in path:
        holder = holder[key]
    how = data.draw(st.sampled_from(["replaced", "removed", "beside"]))
    if how == "replaced":
        holder[last] = data.draw(JUNK)
    elif how == "removed":
        del holder[last]
    elif isinstance(holder, dict):
        holder["other"] = data.draw(JUNK)
    else:
        holder.append(data.draw(JUNK))
    if (last, *path) != ("checksum",):
        forged["checksum"] = manifest.checksum(forged)
    got, _ = read(version, json.dumps(forged).encode())
    if got is not None:  # of the same kinds
        assert shape(forged) == shape(entries) or got != manifest.read(version)


def paths(value, path=()):
    """Yields the path of each entry."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in items:
        yield *path, key
        if isinstance(entry, (dict, list)):
            yield from paths(entry, (*path, key))


def shape(value):
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        (b"[]", r"must have the format 2 or 1, which this release reads. Received: \[\]"),
        (b"{", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b'{"format": 3}', "must have the format 2 or 1"),
        (b'{"format": true}', "must have the format 2 or 1"),
        (b'{"format": 2}', r"must have the entries format, kind, .*Received: \['format'\]"),
    ],
)  # fmt: skip
def test_what_is_no_manifest(version, data, message):
    _, told = read(version, data)
    assert re.search(message, told), told


def test_a_manifest_of_an_earlier_release_is_read_and_that_is_said(version):
    entries = entries_of(version) | {"format": 1}
    del entries["checksum"]
    path = version / manifest.NAME
    before = path.read_bytes()
    try:
        path.write_text(json.dumps(entries))
        with pytest.warns(UserWarning, match="has no checksum, and whether it was"):
            old = manifest.read(version)
    finally:
        path.write_bytes(before)
    assert old == manifest.read(version)


def test_a_file_of_another_size(version):
    """`check_sizes` looks at what the runtime reads alone, of which some versions have nothing."""
    entries = manifest.read(version)
    for name in (*entries.runtime.files, "assets/vocabulary.txt"):
        checks = [manifest.check]
        if name in entries.runtime.files:
            checks.append(check_sizes)
        path = version / name
        try:
            path.write_bytes(b"ab")
            for check in checks:
                with pytest.raises(manifest.ManifestError, match="must have 3 bytes"):
                    check(version, entries)
            path.write_bytes(b"abd")
            check_sizes(version, entries)
            with pytest.raises(manifest.ManifestError, match="must have the SHA-256"):
                manifest.check(version, entries)
        finally:
            path.write_bytes(b"abc")


def test_a_path_out_of_the_folder(version):
    for name in ("/dev/zero", "../x", "a//b", "a\\b"):
        entries = entries_of(version)
        entries["files"][name] = {"bytes": 1, "sha256": "0" * 64}
        entries["checksum"] = manifest.checksum(entries)
        _, told = read(version, json.dumps(entries).encode())
        assert "must have paths within the folder" in told
