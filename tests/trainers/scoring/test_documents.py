"""The documents of files, whole and damaged."""

import gzip
import json

import pytest
import tensorflow as tf

from trainers.scoring import documents
from trainers.scoring.documents import Document


def read(path):
    return [*documents.read(str(path), "text", lambda name: open(name, "rb"))]


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
    assert read(path) == [Document(str(path), "é b\n", {"text": "é b\n"})]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_line_of_json_is_a_document(tmp_path, compress):
    path = tmp_path / "a.jsonl"
    objects = [{"text": "a b", "url": "x"}, {"text": ""}]
    lines = [json.dumps(each) for each in objects]
    path.write_bytes(compress("\n\n".join(lines).encode()))  # a blank line between
    assert read(path) == [
        Document(f"{path}:1", "a b", objects[0]),
        Document(f"{path}:3", "", objects[1]),
    ]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_record_is_a_document(tmp_path, compression):
    path = tmp_path / "a.tfrecord-00000-of-00001"
    records = [example(text=[b"a b"], url=[b"x"]), b"raw text", b""]
    write_records(path, records, compression)
    texts = ["a b", "raw text", ""]
    assert read(path) == [
        Document(f"{path}:{number}", text, {"text": text})
        for number, text in enumerate(texts, 1)
    ]


def test_lines_that_are_no_documents_are_told_and_passed(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "LONGEST", 40)
    path = tmp_path / "a.jsonl"
    lines = [
        b"{",
        b"[1]",
        b'{"body": "a"}',
        b'{"text": 1}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"text": "' + b"a" * 100 + b'"}',
        b'{"text": "a"}',
    ]
    path.write_bytes(b"\n".join(lines))
    *failures, last = read(path)
    reasons = [
        "it is not JSON: ",
        "it is no JSON object",
        "it has no text in the field 'text'",
        "it has no text in the field 'text'",
        "it is not UTF-8: ",
        "it is not UTF-8: ",
        "it is longer than 40 bytes",
    ]
    for number, (found, reason) in enumerate(zip(failures, reasons, strict=True), 1):
        assert (found.id, found.text) == (f"{path}:{number}", None)
        assert found.reason.startswith(reason)
    assert last == Document(f"{path}:8", "a", {"text": "a"})


@pytest.mark.parametrize(
    "content, reason",
    [(b"\xff", "it is not UTF-8: "), (b"a" * 41, "it is longer than 40 bytes")],
)
def test_texts_that_are_no_documents_are_told(tmp_path, content, reason, monkeypatch):
    monkeypatch.setattr(documents, "LONGEST", 40)
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


def test_a_file_that_is_gone_is_told(tmp_path):
    (found,) = read(tmp_path / "a.txt")
    assert found.id == str(tmp_path / "a.txt")
    assert "No such file" in found.reason


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
