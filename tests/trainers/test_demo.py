"""`python -m trainers.demo`: it serves an export, opens the page, and ends."""

import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser

import pytest

from trainers import demo

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")


def test_ctrl_c_ends_it_as_soon_as_its_address_is_told(exports):
    model = exports["page"].parent
    line = [sys.executable, "-m", "trainers.demo", f"--model={model}", "--port=0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        address = re.search(r"in a browser (http://127\.0\.0\.1:\d+/)$", said)[1]
        with urllib.request.urlopen(address) as page:
            assert b"A language model reads and writes" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_port_in_use_is_told_before_the_model_loads(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as used,
        pytest.raises(OSError, match="in use"),
    ):
        demo.serve(str(tmp_path), "127.0.0.1", used.getsockname()[1])


@pytest.mark.parametrize(
    "terminal, browser, opens",
    [
        (True, webbrowser.BackgroundBrowser("firefox"), True),
        (True, webbrowser.GenericBrowser("lynx"), False),  # it would take the terminal
        (False, webbrowser.BackgroundBrowser("firefox"), False),
    ],
)
def test_the_page_opens_where_somebody_looks_on(monkeypatch, terminal, browser, opens):
    opened, done = [], threading.Event()

    def serve(model, host, port, limits, key, ready):
        ready("http://127.0.0.1:1/")

    monkeypatch.setattr(demo.server, "serve", serve)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    monkeypatch.setattr(
        browser, "open", lambda address: (opened.append(address), done.set())
    )
    demo.serve("models/a", "127.0.0.1", 0)
    assert done.wait(10 if opens else 0.1) == opens
    assert opened == ["http://127.0.0.1:1/"] * opens
