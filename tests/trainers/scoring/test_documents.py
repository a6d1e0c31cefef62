"""The documents of files, whole and damaged."""

import gzip
import json

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from trainers.scoring import documents
from trainers.scoring.documents import Document, Fields


def read(path, output=None, opened=lambda name: open(name, "rb")):
    return [*documents.read(str(path), Fields("text", output), opened)]


def example(**features):
    made = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        for name, values in features.items()
    }
    features = tf.train.Features(feature=made)
    return tf.train.Example(features=features).SerializeToString()


def write_records(path, records, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_text_file_is_a_document(tmp_path, compress):
    path = tmp_path / "a.txt.gz"  # its first bytes say whether it is compressed
    path.write_bytes(compress("é b\n".encode()))
    assert read(path) == [Document(str(path), "é b\n", '{"text": "é b\\n"}')]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_line_of_json_is_a_document(tmp_path, compress):
    path = tmp_path / "a.jsonl"
    objects = [{"text": "a b", "url": "x"}, {"text": ""}]
    lines = [json.dumps(each) for each in objects]
    path.write_bytes(compress("\n\n".join(lines).encode()))  # a blank line between
    assert read(path) == [
        Document(f"{path}:1", "a b", lines[0]),
        Document(f"{path}:3", "", lines[1]),
    ]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_record_is_a_document(tmp_path, compression):
    path = tmp_path / "a.tfrecord-00000-of-00001"
    long = b"a" * 0x8B1F  # its length begins like gzip
    records = [long, example(text=[b"a b"], url=[b"x"]), b"raw text", b""]
    write_records(path, records, compression)
    texts = [long.decode(), "a b", "raw text", ""]
    assert read(path) == [
        Document(f"{path}:{number}", text, json.dumps({"text": text}))
        for number, text in enumerate(texts, 1)
    ]


def test_lines_that_are_no_documents_are_told_and_passed(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        b"{",
        b"[1]",
        b'{"body": "a"}',
        b'{"text": 1}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"text": "' + b"a" * documents.LONGEST + b'"}',
        b'{"text": "", "out": 1}',
        b'{"text": "a"}',
    ]
    path.write_bytes(b"\n".join(lines))
    *failures, last = read(path, "out")
    reasons = [
        "it is not JSON: ",
        "it is no JSON object",
        "it has no text in the field 'text'",
        "it has no text in the field 'text'",
        "it is not UTF-8: ",
        "it is not UTF-8: ",
        "it is longer than 16,777,216 bytes",
        "it has a field 'out', which the scores would replace: choose another --output_field",
    ]
    for number, (found, reason) in enumerate(zip(failures, reasons, strict=True), 1):
        assert (found.id, found.text) == (f"{path}:{number}", None)
        assert found.reason.startswith(reason)
    assert last == Document(f"{path}:9", "a", '{"text": "a"}')
    assert read(path)[7].text == ""  # nothing is written again


def test_a_line_stays_as_it_was_written(tmp_path):
    path = tmp_path / "a.jsonl"
    line = '{ "n": [1e400, 1.10],%s"of": "\\ud800", "n": 2, "text":"\\u0061" }'
    path.write_text(f"\t{line % chr(13)} \r\n", newline="")
    (found,) = read(path)
    assert (found.text, found.record) == ("a", line % " ")
    assert found.with_field("é", {"b": 1}) == f'{(line % " ")[:-1]}, "é": {{"b": 1}}}}'


@pytest.mark.parametrize("opens, closes", [("[", "]"), ('{"a[": ', "}")])
def test_a_line_has_a_depth_that_no_caller_changes(tmp_path, opens, closes):
    path = tmp_path / "a.jsonl"
    shallow = ", ".join(["{}"] * 999)

    def nested(depth):  # within the object
        value = opens * (depth - 1) + r'"[[\"[["' + closes * (depth - 1)
        return f'{{"many": [{shallow}], "text": "a", "n": {value}}}'

    path.write_text(f"{nested(documents.DEEPEST)}\n{nested(documents.DEEPEST + 1)}\n")
    first, second = read(path)
    assert first.text == "a"
    assert second.reason == f"it is nested deeper than {documents.DEEPEST}"


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"a\nb\xff", "it is not UTF-8: byte 0xff in line 2, at offset 3 of it"),
        (b"a" * (2**24 + 1), "it is longer than 16,777,216 bytes"),
    ],
    ids=["not_utf8", "too_long"],
)
def test_texts_that_are_no_documents_are_told(tmp_path, content, reason):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    (found,) = read(path)
    assert (found.id, found.text) == (str(path), None)
    assert found.reason.startswith(reason)


def test_records_that_are_no_documents_are_told(tmp_path):
    path = tmp_path / "a.tfrecord"
    examples = [
        example(body=[b"a"]),
        example(text=[b"a", b"b"]),
        example(text=[b"\xff"]),
    ]
    write_records(path, [*examples, b"\xff", b"a"])
    *failures, last = read(path)
    assert [each.reason[:14] for each in failures] == [
        *["it has no text"] * 2,
        *["it is not UTF-"] * 2,
    ]
    assert last.text == "a"


# Within the frame of a record, and within its content.
@pytest.mark.parametrize("cut", [3, 20])
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.tfrecord", "a.tfrecord.gz"])
def test_a_file_that_is_cut_off_gives_what_is_before(tmp_path, name, cut):
    path = tmp_path / name
    texts = [f"text {number} {number * 7919}" for number in range(200)]
    if "jsonl" in name:
        lines = [json.dumps({"text": text}) for text in texts]
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        compression = "GZIP" if name.endswith("gz") else ""
        write_records(path, [text.encode() for text in texts], compression)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + cut])
    *before, last = read(path)
    assert [each.text for each in before] == texts[: len(before)]
    assert 0 < len(before) < 200
    told = f"the file cannot be read after {len(before)} documents: "
    assert last.id == str(path) and last.reason.startswith(told)


def test_a_file_that_changed_is_told(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"text one", b"text two"])
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    first, failure = read(path)
    assert first.text == "text one" and "corrupted record" in failure.reason


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Returns the content of a whole file by its name, and a place for a damaged one."""
    folder = tmp_path_factory.mktemp("damaged")
    texts = [f"text {number}" for number in range(9)]
    lines = "\n".join(json.dumps({"text": text}) for text in texts).encode()
    found = {"a.jsonl": lines, "b.jsonl": gzip.compress(lines)}
    for name, compression in {"a.tfrecord": "", "b.tfrecord": "GZIP"}.items():
        write_records(folder / name, [text.encode() for text in texts], compression)
        found[name] = (folder / name).read_bytes()
    return found, folder


@given(
    name=st.sampled_from(["a.jsonl", "b.jsonl", "a.tfrecord", "b.tfrecord"]),
    at=st.integers(0, 2**16),
    bits=st.integers(0, 255),
)
def test_a_damaged_file_gives_documents_or_reasons(whole, name, at, bits):
    files, folder = whole
    content = bytearray(files[name])
    at %= len(content)
    if bits:
        content[at] ^= bits
    else:
        del content[at:]
    (folder / name).write_bytes(content)
    found = read(folder / name)
    assert all((each.text is None) == bool(each.reason) for each in found)
    ids = [each.id for each in found]
    assert len({*ids}) == len(ids) <= 18  # a line may be cut in two


def test_a_file_that_is_gone_is_told(tmp_path):
    (found,) = read(tmp_path / "a.txt")
    assert found.id == str(tmp_path / "a.txt")
    assert "No such file" in found.reason


# Of one file, they are no reason to stop; of a disk or a store, they are none to leave files out.
@pytest.mark.parametrize(
    "error, stops",
    [
        (PermissionError(13, "no"), False),
        (gzip.BadGzipFile("no"), False),
        (OSError(5, "no"), True),
        (ConnectionResetError("no"), True),
        (MemoryError("no"), True),
        (tf.errors.ResourceExhaustedError(None, None, "no"), True),
    ],
    ids=repr,
)
def test_an_error_of_a_store_or_of_memory_is_no_failure_of_a_file(error, stops):
    def opened(_):
        raise error

    if not stops:
        (found,) = read("a.jsonl", opened=opened)
        assert (found.id, found.text) == ("a.jsonl", None) and "no" in found.reason
        return
    with pytest.raises((OSError, MemoryError, tf.errors.OpError), match="no"):
        read("a.jsonl", opened=opened)


@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize("part", ["", "-00003-of-00016"])
@pytest.mark.parametrize("end", ["jsonl", "ndjson", "tfrecord", "tfrecords"])
def test_names_may_end_with_a_part_and_gz(end, part, compressed):
    kind = "json" if end in ("jsonl", "ndjson") else "tfrecord"
    assert documents.check_name(f"a/b.{end}{part}{compressed}") == kind


def test_a_name_that_is_not_utf_8_is_refused():
    with pytest.raises(ValueError, match=r"are UTF-8. Received: 'a\\udcff.txt'"):
        documents.check_name("a\udcff.txt")


def test_batches_hold_bounded_texts():
    sizes = [1] * 300 + [2**21] * 3 + [1] * 5 + [2**23] + [1] * 2
    made = [Document(str(place), "a" * size) for place, size in enumerate(sizes)]
    batches = [*documents.in_batches(made)]
    assert [each for batch in batches for each in batch] == made
    for batch in batches:
        longest = max(len(each.text) for each in batch)
        assert len(batch) == 1 or len(batch) * longest <= 2**22
        assert len(batch) <= 256
    assert len(batches[0]) == 256
    wide = [Document("", "a", "a" * 2**20)] * 9  # their other fields take memory too
    assert [len(each) for each in documents.in_batches(wide)] == [4, 4, 1]
