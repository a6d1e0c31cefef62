"""Whatever is in a file, each of its documents has either a score or a failure."""

import gzip
import json
import pickle
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.trainers.scoring.test_documents import example, write_records
from trainers.scoring import keep
from trainers.scoring.documents import Document
from trainers.scoring.scorer import Scorer, Scores

pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
from trainers.scoring import pipeline  # noqa: E402

TEXTS = st.lists(st.sampled_from([*"ab", "zebra", "\n", "\0", "é"]), max_size=9).map(
    " ".join
) | st.text(st.characters())  # half surrogate pairs too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=5,
)
NAMES = st.sampled_from(["text", "score", "of", "\ud800"])
OBJECTS = st.fixed_dictionaries({"text": TEXTS}) | st.dictionaries(NAMES, VALUES)
DEEP = st.sampled_from(['{"text": "a", "n": ', ""]).flatmap(
    lambda start: st.integers(400, 5_000).map(
        lambda depth: f"{start}{'[' * depth}{']' * depth}{'}' if start else ''}"
    )
)
LONG = st.integers(4_000, 6_000).map(lambda n: f'{{"text": "a", "n": {"9" * n}}}')
LINES = st.one_of(
    OBJECTS.map(lambda value: json.dumps(value).encode()),
    OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False)).map(
        lambda line: line.encode(errors="surrogatepass")
    ),
    (DEEP | LONG).map(str.encode),
    st.binary().map(lambda line: line.replace(b"\n", b"")),
)
RECORDS = (
    st.binary()
    | LINES
    | st.dictionaries(
        st.sampled_from(["text", "of"]), st.lists(st.binary(), max_size=2)
    ).map(lambda features: example(**features))
)


@pytest.fixture(scope="module")
def scorer(exports):
    return Scorer(str(exports["words"]))


@pytest.fixture(scope="module")
def path_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    return lambda name: str(folder / name)


def written(path, scorer, conditions):
    """Returns the values of the lines of each kind, and the sum of the counts.

    Between its steps it does what a runner may do between workers.
    """
    parsed = [keep.parse(each) for each in conditions]
    score, write = pipeline.Score(""), pipeline.Write(parsed, "score")
    score.scorer = scorer
    write.setup()
    found, counts = {}, []
    fields = pipeline.Fields("text", "score" if parsed else None)
    for batch in pipeline.Read(fields).process(("0", [[path]])):
        for each in score.process(pickle.loads(pickle.dumps(batch))):
            *lines, count = write.process(pickle.loads(pickle.dumps(each)))
            counts.append(count.value)
            for name, line in lines:
                assert not re.search(r"[\r\n]", line)
                value = json.loads(line.encode().decode())
                found.setdefault(name, []).append(value)
    return found, pipeline.total(counts)


def check(found, counts, ids):
    """Checks that each document is written once, in its order, and that it is counted."""
    scores, failures = (found.get(name, []) for name in ("scores-0", "failures-0"))
    places = [ids.index(each["id"]) for each in [*scores, *failures]]
    assert sorted(places) == [*range(len(ids))]
    assert all(each["reason"] for each in failures)
    empty = sum(not each["tokens"] for each in scores)
    tokens = sum(each["tokens"] for each in scores)
    kept = found.get("kept-0", [])
    assert counts == (len(scores), tokens, len(kept), empty, len(failures))


@settings(max_examples=60)
@given(
    lines=st.lists(LINES, max_size=6),
    compress=st.booleans(),
    keeping=st.booleans(),
)
def test_each_line_has_a_score_or_a_failure(path_of, scorer, lines, compress, keeping):
    path = path_of("a.jsonl")
    content = b"\n".join(lines)
    assume(not content.startswith(b"\x1f\x8b\x08"))  # gzip
    with open(path, "wb") as file:
        file.write(gzip.compress(content) if compress else content)
    found, counts = written(path, scorer, ["tokens>=0"] if keeping else [])
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    check(found, counts, [f"{path}:{number}" for number in numbers])
    scored = [each for each in found.get("scores-0", []) if each["tokens"]]
    kept = found.get("kept-0", [])
    assert [each.pop("score") for each in kept] == (scored if keeping else [])
    for each, score in zip(kept, scored[: len(kept)], strict=True):
        line = lines[int(score["id"].rpartition(":")[2]) - 1]
        assert repr(each) == repr(json.loads(line))  # NaN is not equal to itself


@settings(max_examples=30)
@given(records=st.lists(RECORDS, max_size=6), compress=st.booleans())
def test_each_record_has_a_score_or_a_failure(path_of, scorer, records, compress):
    path = path_of("a.tfrecord")
    write_records(path, records, "GZIP" if compress else "")
    found, counts = written(path, scorer, ["tokens>=0"])
    check(found, counts, [f"{path}:{number + 1}" for number in range(len(records))])


@pytest.mark.parametrize("files", [1, 2, 99, 100, 101, 1234])
def test_a_corpus_has_at_most_100_parts_in_its_order(files):
    paths = [f"{number:04d}" for number in range(files)]
    made = pipeline.parts(paths)
    assert [path for _, part in made for path in part] == paths
    count = min(files, 100)
    assert [name for name, _ in made] == [
        f"{part:05d}-of-{count:05d}" for part in range(count)
    ]
    sizes = {len(part) for _, part in made}
    assert max(sizes) - min(sizes) <= 1


def test_a_worker_counts_for_the_runners_page_and_tells_how_far_it_is(
    monkeypatch, capsys
):
    counted = []

    class Counter:
        def __init__(self, space, name):
            self.name = f"{space}/{name}"

        def inc(self, count):
            counted.append((self.name, count))

    monkeypatch.setattr(pipeline.Metrics, "counter", Counter)
    monkeypatch.setattr(
        pipeline.time, "monotonic", iter([0.0, 9.0, 11.0, 11.0]).__next__
    )
    write = pipeline.Write([keep.parse("tokens>0")], "score")
    write.setup()
    one = ("0", Document("a", "b c", '{"text": "b c"}')), Scores(2, 3.0, 4.0, 0.0)
    for element in (one, (("0", Document("d", reason="why")), None)):
        assert [*write.process(element)]
    assert sorted(each for each in counted if each[1]) == [
        ("trainers.batch/documents", 1),
        ("trainers.batch/failures", 1),
        ("trainers.batch/kept", 1),
        ("trainers.batch/tokens", 2),
    ]
    line = "so far: 1 documents, 2 tokens, 1 kept, 1 failures\n"
    assert capsys.readouterr().err == line
