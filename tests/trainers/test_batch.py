"""`python -m trainers.batch`: a corpus from files to scores."""

import functools
import gzip
import json
import os
import pathlib
import signal
import sys
import time

import pytest
import tensorflow as tf
from etils import epath

from tests.refusals import refuses
from tests.trainers.test_bad_inputs import fresh_flags
from trainers import batch
from trainers.scoring import output as scores_folder
from trainers.scoring import scorer
from trainers.scoring.corpus import Corpus
from trainers.scoring.scorer import ModelError
from trainers.training import hold
from trainers.training.workdir import NotKeptError, WorkdirError

pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
KEPT = 11
COUNTS = {
    "documents": 15,
    "tokens": 2 * 312 + 6,
    "kept": KEPT,
    "empty": 2,
    "failures": 7,
}
# The client's side of Flink and Spark, with a server of jobs in this process.
PORTABLE = (
    *("--runner=PortableRunner", "--job_endpoint=embed"),
    "--environment_type=LOOPBACK",
)
TEXTS = ["a b c", "é zebra a", "zebra zebra", "", "a\nb\n", "d e f " * 100]
# Lines of JSON that are kept as they are, and lines that have no score, with the reason.
ODD = [
    '{"text": "a b", "of": "\\ud800", "n": [1e400, 1.10]}',
    '\t{ "of":\r1, "of": "é", "text":"a \\u0062" }\r',
]
WRONG = {
    '{"text": "a b", "n": %s}' % ("9" * 5000): "4300 digits",
    '{"text": "a b", "n": %s}' % ("[" * 700 + "]" * 700): "deeper than 500",
    '{"text": "a b", "n": %s}' % ("[" * 99_999): "deeper than 500",
    '{"text": "a b", "score": null}': "--output_field",
}


@pytest.fixture(scope="module")
def model(exports):
    return str(exports["words"].parent)


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    """Loading is what takes the time; the test that kills a command loads it in a process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scorer, "ExportedModel", functools.cache(scorer.ExportedModel))
        yield


def write_texts(folder, copies=1):
    """Writes a corpus with documents that cannot be read; returns the pattern of its files."""
    folder.mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"text": text, "of": name}) for text in TEXTS * copies]
        path = folder / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join([*lines, "{"]).encode()))
    (folder / "c.txt").write_bytes(b"\xff")
    (folder / "d.txt").write_text("a b")
    (folder / "e.ndjson").write_text("\n".join([*ODD, *WRONG]), newline="")
    return f"{folder}/*"


@pytest.fixture(scope="module")
def corpus(model, tmp_path_factory):
    """A corpus, and in `output` its scores."""
    folder = tmp_path_factory.mktemp("batch")
    pattern = write_texts(folder / "texts")
    conditions = ["tokens<1e9", "unknown_share<0.5"]  # an empty text meets no condition
    made = Corpus(model, pattern, f"{folder}/scores", conditions)
    assert batch.score(made) == COUNTS
    return made


def contents(folder):
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in files if path.name != "lock"}


def lines(corpus, kind):
    files = contents(output(corpus))
    texts = [files[name].decode() for name in sorted(files) if name.startswith(kind)]
    return [json.loads(line) for line in "".join(texts).splitlines()]


def forget(path, field):
    """Takes a field out of a JSON file, and the checksum with it."""
    fields = json.loads(path.read_text())
    kept = {name: fields[name] for name in fields if name not in (field, "checksum")}
    path.write_text(json.dumps(kept))


def output(corpus):
    return pathlib.Path(corpus.output)


def scores_of(model, texts):
    (version,) = pathlib.Path(model).iterdir()
    return [each._asdict() for each in scorer.Scorer(str(version))(texts)]


def test_each_document_has_its_scores(corpus, model):
    texts = pathlib.Path(corpus.input).parent
    names = ("a.jsonl.gz", "b.jsonl.gz")
    ids = [f"{texts / name}:{line}" for name in names for line in range(1, 7)]
    ids += [f"{texts}/d.txt", f"{texts}/e.ndjson:1", f"{texts}/e.ndjson:2"]
    found = lines(corpus, "scores")
    assert [each.pop("id") for each in found] == ids
    expected = scores_of(model, [*TEXTS, *TEXTS, *["a b"] * 3])
    for one, other in zip(found, expected, strict=True):
        if not one["tokens"]:
            assert one == {**other, "perplexity": None, "unknown_share": None}
            continue
        assert one == pytest.approx(other, rel=1e-5)


def test_documents_that_pass_are_kept_with_all_that_they_had(corpus):
    kept = [
        each
        for each in lines(corpus, "scores")
        if each["tokens"] and each["unknown_share"] < 0.5
    ]
    found = lines(corpus, "kept")
    assert [each["score"] for each in found] == kept and len(kept) == KEPT
    *of_json, of_text, first, second = found
    for each in of_json:
        assert {*each} == {"text", "of", "score"} and each["text"] in TEXTS
    assert {*of_text} == {"text", "score"} and of_text["text"] == "a b"
    for line, each in zip(ODD, (first, second), strict=True):
        assert each.pop("score")["tokens"] == 2 and each == json.loads(line)


def test_documents_that_cannot_be_read_are_told(corpus):
    texts = pathlib.Path(corpus.input).parent
    found = {each["id"]: each["reason"] for each in lines(corpus, "failures")}
    wrong = [
        f"{texts / 'a.jsonl.gz'}:7",
        f"{texts / 'b.jsonl.gz'}:7",
        str(texts / "c.txt"),
        *(f"{texts / 'e.ndjson'}:{line}" for line in range(3, 7)),
    ]
    assert sorted(found) == wrong
    assert found[wrong[0]].startswith("it is not JSON: ")
    assert found[wrong[2]].startswith("it is not UTF-8: ")
    for name, reason in zip(wrong[3:], WRONG.values(), strict=True):
        assert reason in found[name]


def test_the_folder_says_that_it_is_complete(corpus):
    found = json.loads((output(corpus) / "summary.json").read_text())
    assert {name: found[name] for name in COUNTS} == COUNTS
    assert {path.name for path in output(corpus).iterdir()} == {
        *("settings.json", "summary.json", "lock"),
        *(f"scores-0000{part}-of-00005.jsonl" for part in (0, 1, 3, 4)),
        *(f"kept-0000{part}-of-00005.jsonl" for part in (0, 1, 3, 4)),
        *(f"failures-0000{part}-of-00005.jsonl" for part in (0, 1, 2, 4)),
    }


def test_the_same_command_after_its_end_is_done_and_another_is_refused(corpus, capsys):
    before = contents(output(corpus))
    assert batch.score(corpus) == COUNTS
    assert "has the scores already" in capsys.readouterr().out
    with refuses("has the scores of another keep; choose"):
        batch.score(corpus._replace(keep=[]))
    assert contents(output(corpus)) == before


def test_two_commands_do_not_write_in_one_folder(corpus, tmp_path):
    other = corpus._replace(output=str(tmp_path / "scores"))
    output(other).mkdir()
    with hold.held(epath.Path(other.output)):
        with pytest.raises(WorkdirError, match="is at work in .*scores; wait for it"):
            batch.score(other)
        assert not contents(output(other))


def test_a_folder_of_a_command_that_was_killed_at_its_start_is_a_new_one(tmp_path):
    for name in ("lock", ".settings.json.part"):
        (tmp_path / name).touch()
    assert scores_folder.check(epath.Path(tmp_path), {}) is None
    (tmp_path / "notes.txt").touch()
    with refuses("which is not empty and has no settings.json"):
        scores_folder.check(epath.Path(tmp_path), {})


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
    other = again._replace(keep=[], output_field="of")
    differing = "has an unfinished run of another keep and output_field; choose"
    with refuses(differing):
        batch.score(other)
    forget(output(again) / "settings.json", "output_field")  # as of an earlier version
    (output(again) / "scores-00000-of-00009.jsonl").touch()  # as of an earlier attempt
    assert batch.score(again) == COUNTS
    assert contents(output(again)) == contents(output(corpus))


@pytest.mark.parametrize(
    "runner, error, expected, told",
    [
        ((), MemoryError(), MemoryError, "^$"),
        (PORTABLE, MemoryError("no room"), MemoryError, "^no room$"),
        (
            (),
            tf.errors.ResourceExhaustedError(None, None, "in a node\nOOM when\nx"),
            MemoryError,
            "^in a node$",
        ),
        ((), ModelError("the model fails"), ValueError, "^the model fails$"),
        (PORTABLE, ModelError("the model fails"), ValueError, "^the model fails$"),
        (PORTABLE, OSError("no space left"), NotKeptError, "complete: .*no space left"),
    ],
)
def test_what_no_document_is_to_blame_for_stops_with_its_error(
    model, tmp_path, monkeypatch, runner, error, expected, told
):
    def score(*_):
        raise error

    monkeypatch.setattr(scorer.Scorer, "__call__", score)
    (tmp_path / "a.txt").write_text("a b")
    stopped = Corpus(model, str(tmp_path / "*.txt"), str(tmp_path / "scores"))
    with pytest.raises(expected, match=told):
        batch.score(stopped, runner)
    assert {*contents(output(stopped))} == {"settings.json"}


def test_a_corpus_without_a_score_has_a_status(model, tmp_path, capsys):
    lines = ['{"text": ""}', '{"body": "a b"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    folder = tmp_path / "scores"
    flags = [f"--model={model}", f"--input={tmp_path}/*.jsonl", f"--output={folder}"]
    with fresh_flags(batch):
        assert batch.main(batch.parse_flags(["batch", *flags])) == 2
    printed = capsys.readouterr()
    counted = "0 tokens, 0 kept, 1 empty, 1 failures"
    assert printed.out == f"{folder}: 1 documents, {counted}\n"
    line = f"error: no document has a score; {folder}/failures-*.jsonl say why"
    assert printed.err.splitlines()[-1] == line
    assert json.loads((folder / "summary.json").read_text())["failures"] == 1


@pytest.mark.parametrize(
    "most, status",
    [((), 2), (("--max_failures=24.9%",), 2), (("--max_failures=25%",), 0)]
    + [(("--max_failures=0",), 2), (("--max_failures=1",), 0)],
    ids=str,
)
def test_more_failures_than_may_be_have_a_status(model, tmp_path, capsys, most, status):
    lines = ['{"text": "a"}', '{"text": "b"}', '{"text": "c"}', '{"body": "a b"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    folder = tmp_path / "scores"
    flags = [f"--model={model}", f"--input={tmp_path}/*.jsonl", f"--output={folder}"]
    for _ in ("scored", "again, where the scores are already"):
        with fresh_flags(batch):
            assert batch.main(batch.parse_flags(["batch", *flags, *most])) == status
        printed = capsys.readouterr()
        assert "3 documents, 3 tokens, 0 kept, 1 failures" in printed.out
        told = "error: 1 of 4 documents have no score, more than --max_failures="
        assert (told in printed.err) == bool(status)
    assert json.loads((folder / "summary.json").read_text())["failures"] == 1


@pytest.mark.parametrize("most", ["", "-1", "1.5", "101%", "nan", "many", "1%%"])
def test_what_is_no_number_of_failures(tmp_path, capsys, most):
    flags = ["--model=m", "--input=i", "--output=o", f"--max_failures={most}"]
    with fresh_flags(batch), pytest.raises(SystemExit) as ended:
        batch.parse_flags(["batch", *flags])
    assert ended.value.code == 2
    told = "--max_failures must be a number, such as 20, or a share, such as 1%"
    assert told in capsys.readouterr().err


def test_a_killed_command_shows_nothing_half_written(model, tmp_path, forks):
    pattern = write_texts(tmp_path / "texts", copies=3000)
    killed = Corpus(model, pattern, str(tmp_path / "scores"))
    names = ("model", "input", "output")
    flags = [f"--{name}={getattr(killed, name)}" for name in names]
    unfinished = tmp_path / "scores" / "unfinished"
    process = forks.start("-m", "trainers.batch", *flags)
    for _ in range(6000):
        if any(path.stat().st_size for path in unfinished.glob("*")):
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert {*contents(tmp_path / "scores")} == {"settings.json"}


def test_a_command_without_beam_names_the_extra(corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[beam\]'"):
        batch.score(corpus)


def test_the_portable_runner_writes_the_same(corpus, tmp_path):
    again = corpus._replace(output=str(tmp_path / "scores"))
    assert batch.score(again, PORTABLE) == COUNTS
    assert contents(output(again)) == contents(output(corpus))
