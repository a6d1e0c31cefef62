"""`python -m trainers.batch`: a corpus from files to scores."""

import gzip
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from trainers import batch
from trainers.scoring import scorer
from trainers.scoring.corpus import Corpus
from trainers.training.workdir import NotKeptError

pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
KEPT = 9
COUNTS = {"documents": 13, "tokens": 2 * 312 + 2, "kept": KEPT, "failures": 3}
TEXTS = ["a b c", "é zebra a", "zebra zebra", "", "a\nb\n", "d e f " * 100]


@pytest.fixture(scope="module")
def model(exports):
    return str(exports["words"].parent)


def write_texts(folder, copies=1):
    """Writes a corpus with documents that cannot be read; returns the pattern of its files."""
    folder.mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"text": text, "of": name}) for text in TEXTS * copies]
        path = folder / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join([*lines, "{"]).encode()))
    (folder / "c.txt").write_bytes(b"\xff")
    (folder / "d.txt").write_text("a b")
    return f"{folder}/*"


@pytest.fixture(scope="module")
def corpus(model, tmp_path_factory):
    """A corpus, and in `output` its scores."""
    folder = tmp_path_factory.mktemp("batch")
    pattern = write_texts(folder / "texts")
    made = Corpus(model, pattern, f"{folder}/scores", ["tokens>1", "unknown_share<0.5"])
    assert batch.score(made) == COUNTS
    return made


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def lines(corpus, kind):
    files = contents(output(corpus))
    texts = [files[name].decode() for name in sorted(files) if name.startswith(kind)]
    return [json.loads(line) for line in "".join(texts).splitlines()]


def output(corpus):
    return pathlib.Path(corpus.output)


def scores_of(model, texts):
    (version,) = pathlib.Path(model).iterdir()
    return [each._asdict() for each in scorer.Scorer(str(version))(texts)]


def test_each_document_has_its_scores(corpus, model):
    texts = pathlib.Path(corpus.input).parent
    names = ("a.jsonl.gz", "b.jsonl.gz")
    ids = [f"{texts / name}:{line}" for name in names for line in range(1, 7)]
    found = lines(corpus, "scores")
    assert [each.pop("id") for each in found] == [*ids, str(texts / "d.txt")]
    expected = scores_of(model, [*TEXTS, *TEXTS, "a b"])
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_documents_that_pass_are_kept_with_all_that_they_had(corpus):
    kept = [
        each
        for each in lines(corpus, "scores")
        if each["tokens"] > 1 and each["unknown_share"] < 0.5
    ]
    found = lines(corpus, "kept")
    assert [each["score"] for each in found] == kept and len(kept) == KEPT
    for each in found[:-1]:
        assert {*each} == {"text", "of", "score"} and each["text"] in TEXTS
    assert {*found[-1]} == {"text", "score"} and found[-1]["text"] == "a b"


def test_documents_that_cannot_be_read_are_told(corpus):
    texts = pathlib.Path(corpus.input).parent
    found = {each["id"]: each["reason"] for each in lines(corpus, "failures")}
    wrong = [
        f"{texts / 'a.jsonl.gz'}:7",
        f"{texts / 'b.jsonl.gz'}:7",
        str(texts / "c.txt"),
    ]
    assert sorted(found) == wrong
    assert found[wrong[0]].startswith("it is not JSON: ")
    assert found[wrong[2]].startswith("it is not UTF-8: ")


def test_the_folder_says_that_it_is_complete(corpus):
    found = json.loads((output(corpus) / "summary.json").read_text())
    assert {name: found[name] for name in COUNTS} == COUNTS
    assert {path.name for path in output(corpus).iterdir()} == {
        *("settings.json", "summary.json"),
        *(f"scores-0000{part}-of-00004.jsonl" for part in (0, 1, 3)),
        *(f"kept-0000{part}-of-00004.jsonl" for part in (0, 1, 3)),
        *(f"failures-0000{part}-of-00004.jsonl" for part in (0, 1, 2)),
    }


def test_scores_are_not_overwritten(corpus):
    before = contents(output(corpus))
    with pytest.raises(ValueError, match="which has scores already"):
        batch.score(corpus)
    assert contents(output(corpus)) == before


def test_two_workers_write_the_same(corpus, tmp_path):
    again = corpus._replace(output=str(tmp_path / "scores"))
    flags = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    assert batch.score(again, flags) == COUNTS
    assert contents(output(again)) == contents(output(corpus))


def test_a_pipeline_that_fails_shows_nothing_and_begins_again(
    corpus, tmp_path, monkeypatch
):
    again = corpus._replace(output=str(tmp_path / "scores"))
    calls = []

    def score(self, texts):
        calls.append(texts)
        if len(calls) == 2:
            raise OSError("no space left")
        return whole(self, texts)

    whole = scorer.Scorer.__call__
    monkeypatch.setattr(scorer.Scorer, "__call__", score)
    with pytest.raises(NotKeptError, match="no space left .*begins again"):
        batch.score(again)
    assert len(calls) == 2
    assert {*contents(output(again))} == {"settings.json"}
    other = again._replace(keep=[])
    with pytest.raises(ValueError, match="unfinished run with another keep; choose"):
        batch.score(other)
    (output(again) / "scores-00000-of-00009.jsonl").touch()  # as of an earlier attempt
    assert batch.score(again) == COUNTS
    assert contents(output(again)) == contents(output(corpus))


def test_a_killed_command_shows_nothing_half_written(model, tmp_path):
    pattern = write_texts(tmp_path / "texts", copies=3000)
    killed = Corpus(model, pattern, str(tmp_path / "scores"))
    names = ("model", "input", "output")
    flags = [f"--{name}={getattr(killed, name)}" for name in names]
    line = [sys.executable, "-m", "trainers.batch", *flags]
    unfinished = tmp_path / "scores" / "unfinished"
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
        for _ in range(6000):
            if any(path.stat().st_size for path in unfinished.glob("*")):
                break
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert {*contents(tmp_path / "scores")} == {"settings.json"}


def test_a_command_without_beam_names_the_extra(corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[beam\]'"):
        batch.score(corpus)
