"""The page's server over HTTP."""

import asyncio
import json
import threading
import time

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tests.serving import models
from trainers.serving.page import server
from trainers.serving.page.connections import Limits
from trainers.serving.page.served import ServedModel
from trainers.serving.writing import Sampling, generate

SETTINGS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3, "max_length": 20}


@pytest.fixture(scope="module")
def model(exports):
    served = ServedModel(str(exports["page"].parent))
    # The first call of a signature takes seconds, which some tests do not have.
    next(generate(served, "", Sampling(**SETTINGS)))
    return served


def run(model, talk, host="127.0.0.1", **limits):
    """Runs `talk` with a client of the page of `model`."""

    async def session():
        page = server.application(model, host, Limits(**limits))
        async with TestClient(TestServer(page)) as client:
            return await asyncio.wait_for(talk(client), 300)

    return asyncio.run(session())


def ask(model, path, body=None, *, headers=None, **options):
    """Returns the status, the headers and the text of an answer."""

    async def talk(client):
        method = client.get if body is None else client.post
        sent = {} if body is None else {"json": body}
        async with method(path, headers=headers, **sent) as response:
            return response.status, response.headers, await response.text()

    return run(model, talk, **options)


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
    ("path", "kind"), [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "javascript")]
)
def test_the_page_may_load_nothing_from_elsewhere(model, path, kind):
    status, headers, text = ask(model, path)
    assert status == 200 and kind in headers["Content-Type"]
    policy = dict(
        part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert {policy[f"{name}-src"] for name in ("script", "style", "connect")} == {"'self'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "http:" not in text and "https:" not in text and "innerHTML" not in text


def test_a_text_is_scored_and_the_model_named(model):
    async def talk(client):
        named = await (await client.get("/model")).json()
        scored = await (await client.post("/score", json={"text": f"the {models.SCRIPT}"})).json()
        return named, scored

    named, scored = run(model, talk)
    card = named.pop("card")
    assert named == {"name": "page, version 1", "most_tokens": 2000}
    assert card["Vocabulary"] == "8 tokens" and models.FACTS.items() <= card.items()
    assert scored["words"] == ["the", models.SCRIPT] and scored["known"] == [True, True]
    assert len(scored["nll"]) == 2 and scored["separator"] == " "


def test_a_model_of_characters_is_shown_with_a_text_of_its_own(exports):
    model = ServedModel(str(exports["page_characters"].parent))

    async def talk(client):
        text = (await (await client.get("/example")).json())["text"]
        own = await (await client.post("/score", json={"text": text})).json()
        other = await (await client.post("/score", json={"text": "a\0é\n"})).json()
        written = await client.post("/generate", json={"text": "aé", **SETTINGS})
        return own, other, json.loads(await written.content.readline())

    own, other, first = run(model, talk)
    assert own["words"] and all(own["known"])
    assert other["words"] == ["a", "\0", "é", "<eos>"]
    assert other["known"] == [True, False, False, True]
    assert first == {"unknown": {"tokens": 1, "of": 2}}


def test_a_text_is_written_piece_by_piece(model):
    gate = Gate(model, "generate")
    body = {"text": "the", **SETTINGS, "max_length": 24}

    async def talk(client):
        writing = asyncio.ensure_future(client.post("/generate", json=body))
        gate.let(1)
        response = await writing
        # While the model waits in the next call.
        lines = [await response.content.readline() for _ in range(2)]
        gate.let(2)
        return lines + [line async for line in response.content]

    lines = run(gate, talk)
    assert json.loads(lines.pop(0)) == {"unknown": {"tokens": 0, "of": 1}}
    assert len(lines) == 3 == gate.calls
    assert b"".join(lines).decode() == ask(model, "/generate", body)[2].partition("\n")[2]


def test_the_server_stops_when_the_client_goes_away(model):
    gate = Gate(model, "generate")
    gate.let(server.MOST_TOKENS)

    async def scored(client):
        async with client.post("/score", json={"text": "the"}) as response:
            assert response.status == 200

    async def talk(client):
        body = {"text": "the", **SETTINGS, "max_length": server.MOST_TOKENS}
        response = await client.post("/generate", json=body)
        await response.content.readline()
        response.close()
        # The model's calls are in one line: while a text is written, its next call comes between
        # any two others.
        deadline, before = time.monotonic() + 60, -1
        while gate.calls > before and time.monotonic() < deadline:
            before = gate.calls
            for _ in range(3):
                await scored(client)
        return before

    assert run(gate, talk) == gate.calls < server.MOST_TOKENS / 8


def test_the_page_stays_alive_while_the_model_works(model):
    gate = Gate(model, "score")

    async def talk(client):
        scoring = asyncio.ensure_future(client.post("/score", json={"text": "the"}))
        while not gate.calls:
            await asyncio.sleep(0)
        async with client.get("/page.js") as response:
            status = response.status
        finished = scoring.done()
        gate.let(1)
        return status, finished, (await scoring).status

    assert run(gate, talk) == (200, False, 200)


def test_a_request_has_its_time(model):
    gate = Gate(model, "score")
    try:
        status, _, text = ask(gate, "/score", {"text": "the"}, seconds=0.5)
    finally:
        gate.let(1)
    assert status == 504
    assert "longer than 0.5 seconds" in text


def test_a_text_that_has_begun_ends_with_the_error(model):
    class Failing:
        calls = 0

        def __call__(self, signature, **inputs):
            self.calls += signature == "generate"
            if self.calls == 2:
                raise ValueError("no more")
            return model(signature, **inputs)

    status, headers, text = ask(Failing(), "/generate", {"text": "the", **SETTINGS})
    _, first, last = text.splitlines()
    assert status == 200 and headers["Content-Type"] == "application/x-ndjson"
    assert first.startswith('{"text"') and last == '{"error": "no more"}'


def test_a_text_has_its_time_too(model):
    gate = Gate(model, "generate")
    gate.let(1)
    try:
        text = ask(gate, "/generate", {"text": "the", **SETTINGS}, seconds=3)[2]
    finally:
        gate.let(1)
    _, first, last = text.splitlines()
    assert first.startswith('{"text"') and "longer than 3 seconds" in last


def test_a_request_that_is_too_long_is_refused(model):
    fits = {"text": "the " * 16_000}
    assert ask(model, "/score", fits)[0] == 200
    status, _, text = ask(model, "/score", {"text": "the " * 17_000})
    assert status == 413
    assert "65536" in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"text": 3}, "`text` must be a string. Received: text=3"),
        ({"text": "the dog"}, "`text` must be made of symbols of the vocabulary"),
        ({"temperature": "hot"}, "`temperature` must be a finite number. Received: temperature='"),
        ({"temperature": -1}, "`temperature` must be a number of at least 0. Received: -1"),
        ({"temperature": 10**400}, "`temperature` must be a finite number."),
        ({"temperature": float("nan")}, "`temperature` must be a finite number."),
        ({"top_p": 0}, "`top_p` must be in (0, 1]. Received: 0"),
        ({"top_k": True}, "`top_k` must be a whole number from 0 to 2,147,483,647. Received"),
        ({"max_length": 2001}, "`max_length` must be a whole number from 1 to 2,000. Received"),
        ({"max_length": 0}, "`max_length` must be a whole number from 1 to 2,000. Received"),
        ({"seed": 2**53}, "`seed` must be a whole number from -9,007,199,254,740,991 to 9,007,199"),
        ({"seed": -(2**53)}, "`seed` must be a whole number from -9,007,199,254,740,991 to 9,007"),
        ({"seed": 3.0}, "`seed` must be a whole number from"),
        ({"seed": 1e16}, "`seed` must be a whole number from"),
        ({"top_k": 40.0}, "`top_k` must be a whole number from 0 to 2,147,483,647. Received"),
        ({"seed": None}, "`seed` must be a whole number"),
    ],
)
def test_a_bad_request_is_explained(model, changed, message):
    async def talk(client):
        response = await client.post("/generate", json={"text": "the", **SETTINGS, **changed})
        return response.status, (await response.json())["error"]

    status, error = run(model, talk)
    assert status == 400
    assert error.startswith(message)


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
    async def talk(client):
        response = await client.post("/score", data=body, headers={"Content-Type": kind})
        return response.status, await response.json()

    answered, answer = run(model, talk)
    assert answered == status
    assert [*answer] == ["error"]


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
    assert ask(model, "/score", {"text": "the"}, headers=headers, host="page.example")[0] == status


def test_what_is_not_there_is_told(model):
    status, _, text = ask(model, "/nothing")
    assert (status, text) == (404, '{"error": "404: Not Found"}')
