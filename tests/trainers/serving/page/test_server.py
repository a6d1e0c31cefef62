"""The page's server over HTTP."""

import concurrent.futures
import json
import threading
import time

import pytest
import requests

from tests.serving import models
from tests.trainers.serving.page.running import serving
from trainers.serving.page import server
from trainers.serving.page.served import ServedModel
from trainers.serving.writing import Sampling, generate

SETTINGS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3, "max_length": 20}


@pytest.fixture(scope="module")
def model(exports):
    served = ServedModel(str(exports["page"].parent))
    # The first call of a signature takes seconds, which some tests do not have.
    next(generate(served, "", Sampling(**SETTINGS)))
    return served


def send(address, path, body=None, **options):
    """Returns the answer to a request."""
    url = "http://{}:{}".format(*address) + path
    method = "GET" if body is None and "data" not in options else "POST"
    return requests.request(method, url, json=body, timeout=300, **options)


def ask(model, path, body=None, *, headers=None, data=None, **options):
    """Returns the answer of a page of `model` that is there for this request alone."""
    sent = {} if data is None else {"data": data}
    with serving(model, **options) as address:
        return send(address, path, body, headers=headers, **sent)


class Gate:
    """A model whose calls of one signature wait until they are let, and are counted."""

    def __init__(self, model, signature):
        self._model, self._signature = model, signature
        self.calls, self._let = 0, threading.Semaphore(0)

    def let(self, calls):
        self._let.release(calls)

    def __call__(self, signature, **inputs):
        if signature == self._signature:
            self.calls += 1
            assert self._let.acquire(timeout=300)
        return self._model(signature, **inputs)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "javascript")],
)
def test_the_page_may_load_nothing_from_elsewhere(model, path, kind):
    answer = ask(model, path)
    assert answer.status_code == 200 and kind in answer.headers["Content-Type"]
    policy = dict(
        part.strip().split(" ", 1)
        for part in answer.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert {policy[f"{name}-src"] for name in ("script", "style", "connect")} == {
        "'self'"
    }
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not any(word in answer.text for word in ("http:", "https:", "innerHTML"))


def test_a_text_is_scored_and_the_model_named(model):
    with serving(model) as address:
        named = send(address, "/model").json()
        scored = send(address, "/score", {"text": f"the {models.SCRIPT}"}).json()
    card = named.pop("card")
    assert named == {"name": "page, version 1", "most_tokens": 2000}
    assert card["Vocabulary"] == "8 tokens" and models.FACTS.items() <= card.items()
    assert scored["words"] == ["the", models.SCRIPT] and scored["known"] == [True, True]
    assert len(scored["nll"]) == 2 and scored["blanks"] == ["", " "]


def test_a_model_of_characters_is_shown_with_a_text_of_its_own(exports):
    model = ServedModel(str(exports["page_characters"].parent))

    with serving(model) as address:
        text = send(address, "/example").json()["text"]
        own = send(address, "/score", {"text": text}).json()
        other = send(address, "/score", {"text": "a\0é\n"}).json()
        written = send(address, "/generate", {"text": "aé", **SETTINGS})
    assert own["words"] and all(own["known"])
    assert other["words"] == ["a", "\0", "é", "<eos>"]
    assert other["known"] == [True, False, False, True]
    assert json.loads(written.text.splitlines()[0]) == {
        "unknown": {"tokens": 1, "of": 2}
    }


def test_a_text_is_written_piece_by_piece(model):
    gate = Gate(model, "generate")
    body = {"text": "the", **SETTINGS, "max_length": 24}

    gate.let(1)
    with (
        serving(gate) as address,
        send(address, "/generate", body, stream=True) as response,
    ):
        lines = response.iter_lines(1)
        # While the model waits in the next call.
        told, *written = next(lines), next(lines)
        gate.let(2)
        written += lines
    assert json.loads(told) == {"unknown": {"tokens": 0, "of": 1}}
    assert len(written) == 3 == gate.calls
    assert written == ask(model, "/generate", body).content.splitlines()[1:]


def test_the_server_stops_when_the_client_goes_away(model):
    gate = Gate(model, "generate")
    gate.let(server.MOST_TOKENS)

    body = {"text": "the", **SETTINGS, "max_length": server.MOST_TOKENS}
    with serving(gate) as address:
        with send(address, "/generate", body, stream=True) as response:
            next(response.iter_lines(1))
        # The model's calls are in one line: while a text is written, its next call comes between
        # any two others.
        deadline, before = time.monotonic() + 60, -1
        while gate.calls > before and time.monotonic() < deadline:
            before = gate.calls
            for _ in range(3):
                assert send(address, "/score", {"text": "the"}).status_code == 200
    assert before == gate.calls < server.MOST_TOKENS / 8


def test_the_page_stays_alive_while_the_model_works(model):
    gate = Gate(model, "score")
    with serving(gate) as address, concurrent.futures.ThreadPoolExecutor() as pool:
        scoring = pool.submit(send, address, "/score", {"text": "the"})
        while not gate.calls:
            time.sleep(0.01)
        assert send(address, "/page.js").status_code == 200
        assert not scoring.done()
        gate.let(1)
        assert scoring.result().status_code == 200


def test_a_request_has_its_time(model):
    gate = Gate(model, "score")
    try:
        answer = ask(gate, "/score", {"text": "the"}, seconds=0.5)
    finally:
        gate.let(1)
    assert answer.status_code == 504
    assert "longer than 0.5 seconds" in answer.text


def test_a_text_that_has_begun_ends_with_the_error(model):
    class Failing:
        calls = 0

        def __call__(self, signature, **inputs):
            self.calls += signature == "generate"
            if self.calls == 2:
                raise ValueError("no more")
            return model(signature, **inputs)

    answer = ask(Failing(), "/generate", {"text": "the", **SETTINGS})
    _, first, last = answer.text.splitlines()
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert first.startswith('{"text"') and last == '{"error": "no more"}'


def test_a_text_has_its_time_too(model):
    gate = Gate(model, "generate")
    gate.let(1)
    try:
        text = ask(gate, "/generate", {"text": "the", **SETTINGS}, seconds=3).text
    finally:
        gate.let(1)
    _, first, last = text.splitlines()
    assert first.startswith('{"text"') and "longer than 3 seconds" in last


def test_a_request_that_is_too_long_is_refused(model):
    fits = {"text": "the " * 16_000}
    assert ask(model, "/score", fits).status_code == 200
    answer = ask(model, "/score", {"text": "the " * 17_000})
    assert answer.status_code == 413
    assert "65536" in answer.text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"text": 3}, "`text` must be a string. Received: text=3"),
        ({"text": "the dog"}, "`text` must be made of symbols of the vocabulary"),
        (
            {"temperature": "hot"},
            "`temperature` must be a finite number. Received: temperature='",
        ),
        (
            {"temperature": -1},
            "`temperature` must be a number of at least 0. Received: -1",
        ),
        ({"temperature": 10**400}, "`temperature` must be a finite number."),
        ({"temperature": float("nan")}, "`temperature` must be a finite number."),
        ({"top_p": 0}, "`top_p` must be in (0, 1]. Received: 0"),
        (
            {"top_k": True},
            "`top_k` must be an integer of at least 0 and below 2**31. Received",
        ),
        (
            {"max_length": 2001},
            "`max_length` must be an integer of at least 1 and at most 2000. Received",
        ),
        (
            {"max_length": 0},
            "`max_length` must be an integer of at least 1 and at most 2000. Received",
        ),
        (
            {"seed": 2**53},
            "`seed` must be an integer of at least -9007199254740991 and at most 9007",
        ),
        (
            {"seed": -(2**53)},
            "`seed` must be an integer of at least -9007199254740991 and at most 9007",
        ),
        ({"seed": 3.0}, "`seed` must be an integer of"),
        ({"seed": 1e16}, "`seed` must be an integer of"),
        (
            {"top_k": 40.0},
            "`top_k` must be an integer of at least 0 and below 2**31. Received",
        ),
        ({"seed": None}, "`seed` must be an integer"),
    ],
)
def test_a_bad_request_is_explained(model, changed, message):
    # `requests` sends no NaN.
    answer = ask(
        model,
        "/generate",
        data=json.dumps({"text": "the", **SETTINGS, **changed}),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(message)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ("{", "application/json", 400),
        ('["the"]', "application/json", 400),
        ("[" * 60_000, "application/json", 400),
        ('{"text": ' * 7_000, "application/json", 400),
        (b'{"text": "\xff"}', "application/json", 400),
        ('{"text": "\\ud800"}', "application/json", 400),
        ('{"text": "the"}', "text/plain", 415),
    ],
)
def test_what_is_no_json_object_is_refused(model, body, kind, status):
    answer = ask(model, "/score", data=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert [*answer.json()] == ["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8600"}, 200),
        ({"Host": "[::1]:8600"}, 200),
        ({"Host": "192.0.2.1"}, 200),
        ({"Host": "Page.Example:8600"}, 200),  # what --host names
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:8600"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost:8600", "Origin": "http://localhost:8600"}, 200),
        ({"Host": "localhost:8600", "Origin": "http://localhost:8601"}, 403),
        ({"Host": "localhost:8600", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:8600", "Origin": "null"}, 403),
    ],
)
def test_other_sites_and_names_are_refused(model, headers, status):
    answer = ask(model, "/score", {"text": "the"}, headers=headers, host="page.example")
    assert answer.status_code == status


def test_what_is_not_there_is_told(model):
    for body in (None, {"text": "the"}):
        answer = ask(model, "/nothing", body)
        assert (answer.status_code, answer.text) == (404, '{"error": "Not Found"}')
