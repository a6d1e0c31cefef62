"""The server: its answers are the runtime's, whoever else asks, and whatever it is asked."""

import concurrent.futures
import json
import re
import socket
import time
import types
from importlib import metadata

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.testing import assert_allclose

from keras_trellis.serving import runtime
from tests.serving.serving import Server, events

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from keras_trellis.serving.server.answers import Choice, pieces  # noqa: E402
from keras_trellis.serving.server.schemas import CompletionRequest  # noqa: E402
from keras_trellis.serving.server.service import Prompt  # noqa: E402

# Small enough to be reached.
FLAGS = (
    "--slots=3",
    "--queue=4",
    "--prompt-tokens=2000",
    "--new-tokens=60000",
    "--alternatives=3000",
    "--body-bytes=20000",
    "--arriving=1",
    "--deadline=20",
)
LONG = {"model": "tied", "prompt": "a", "max_tokens": 60_000, "seed": 1}


@pytest.fixture(scope="module")
def model(exports):
    return runtime.load(exports["tied"])


@pytest.fixture(scope="module")
def server(exports):
    made = Server(exports["tied"].parent, *FLAGS)
    yield made
    status = made.stop()
    assert status == 0 and "Traceback" not in made.printed, made.printed


def expected(model, asked, index=0):
    """Returns the fields of a choice that the runtime gives."""
    count = asked.get("logprobs")
    answer = model.complete(
        [asked["prompt"]],
        max_length=asked["max_tokens"],
        seed=asked["seed"] + index,
        temperature=asked.get("temperature", 1.0),
        top_k=asked.get("top_k", 0),
        top_p=asked.get("top_p", 1.0),
        stop=asked.get("stop", []),
        forbidden_ids=() if asked.get("allow_unknown") else [-1],
        alternatives=count or 0,
    )
    reason = "stop" if answer.stopped[0] else "length"
    return answer, {"text": answer.text[0], "finish_reason": reason}


ASKED = st.fixed_dictionaries(
    {
        "prompt": st.sampled_from(["a b c", "", "j zz i\nh", "a b c d e f g h " * 5]),
        "max_tokens": st.integers(1, 30),
        "seed": st.integers(-(2**63), 2**63 - 3),
    },
    optional={
        "temperature": st.sampled_from([0.0, 0.6]),
        "top_k": st.integers(0, 14),
        "top_p": st.sampled_from([0.5, 1.0]),
        "stop": st.lists(st.sampled_from(["a", "b c", "\n", "d e f"]), max_size=2),
        "allow_unknown": st.booleans(),
        "stream": st.booleans(),
        "n": st.integers(1, 2),
    },
)


def choices_of(server, asked):
    """Returns the texts and the reasons of an answer, streamed or not."""
    body = {"model": "tied", **asked}
    if not asked.get("stream"):
        return server.answer("/v1/completions", body)["choices"]
    *parts, end = events(server.answer("/v1/completions", body))
    assert end == "[DONE]"
    choices = {}
    for part in map(json.loads, parts):
        (part,) = part["choices"]
        nothing = {"text": "", "printed": "", "finish_reason": None}
        choice = choices.setdefault(part["index"], nothing)
        assert choice["finish_reason"] is None
        choice["text"] += part["text"]
        choice["printed"] += part["printed"]
        choice["finish_reason"] = part["finish_reason"]
    return [choices[index] for index in sorted(choices)]


@hypothesis.given(requests=st.lists(ASKED, min_size=3, max_size=3))
@hypothesis.settings(max_examples=15)
def test_answers_beside_others_are_the_runtimes(server, model, requests):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        answers = [*pool.map(lambda asked: choices_of(server, asked), requests)]
    for asked, choices in zip(requests, answers, strict=True):
        assert len(choices) == asked.get("n", 1)
        for index, choice in enumerate(choices):
            _, fields = expected(model, asked, index)
            assert {name: choice[name] for name in fields} == fields
            prompt = asked["prompt"].rstrip(" ")
            in_print = model.tokenizer.in_print
            whole = in_print(prompt + choice["text"])
            assert in_print(prompt) + choice["printed"] == whole


def test_log_probabilities_of_a_prompt_and_of_its_continuation(server, model):
    asked = {"prompt": "a zz b", "max_tokens": 5, "seed": 3, "logprobs": 2}
    body = {"model": "tied", **asked, "echo": True}
    answer = server.answer("/v1/completions", body)
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
    }
    (choice,) = answer["choices"]
    written, fields = expected(model, asked)
    scores = model.score(["a zz b"], 2)
    log_probs = choice["logprobs"]
    assert choice["text"] == "a zz b" + fields["text"] == "".join(log_probs["tokens"])
    assert log_probs["tokens"][:3] == ["a", " zz", " b"]
    assert_allclose(
        log_probs["token_logprobs"],
        [*-scores.nll[0], *written.log_probs[0]],
        atol=1e-5,
    )
    whole = model.tokenizer.in_print(choice["text"])
    assert "".join(log_probs["printed"]) == whole == choice["printed"] != choice["text"]
    offsets = np.cumsum([0, *map(len, log_probs["tokens"])])
    assert log_probs["text_offset"] == offsets[:-1].tolist()
    best = [*scores.likeliest_ids[0], *written.likeliest_ids[0]]
    for listed, ids in zip(log_probs["top_logprobs"], best, strict=True):
        words = {token.strip(" ") for token in listed}
        assert words == {model.tokenizer.tokens[i].replace("<eos>", "\n") for i in ids}
    # As ids, streamed, and without a continuation.
    body["prompt"] = model.tokenizer.encode(["a zz b"]).ids[0].tolist()
    answer = server.answer("/v1/completions", body)
    same = answer["choices"][0]["logprobs"]
    assert same["token_logprobs"] == pytest.approx(log_probs["token_logprobs"])
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    *parts, usage, _ = map(str, events(server.answer("/v1/completions", body)))
    pieces = [json.loads(part)["choices"][0]["logprobs"]["tokens"] for part in parts]
    assert sum(pieces, []) == same["tokens"]
    printed = [json.loads(part)["choices"][0]["logprobs"]["printed"] for part in parts]
    assert sum(printed, []) == same["printed"]
    assert json.loads(usage)["usage"]["total_tokens"] == 8
    body = {"model": "tied", "prompt": "a b", "max_tokens": 0, "echo": True}
    (choice,) = server.answer("/v1/completions", {**body, "logprobs": 0})["choices"]
    assert choice["text"] == "a b" and choice["logprobs"]["top_logprobs"] is None
    nll = -np.array(choice["logprobs"]["token_logprobs"])
    assert_allclose(nll, model.score(["a b"]).nll[0], atol=1e-5)


def test_a_prompt_is_sent_once_it_is_read(model):
    request = CompletionRequest(model="tied", prompt="a b", echo=True)
    (ids,) = model.tokenizer.encode(["a b"]).ids
    prompt = Prompt("a b", np.append(model.tokenizer.eos_id, ids), ["a", "b"], 0)
    assert pieces(model.tokenizer, prompt) == ["a", " b"]
    row = types.SimpleNamespace(outcome=None, is_read=False, written=[], text="")
    choice = Choice(0, row, prompt, request, model.tokenizer)
    assert choice.part() is None
    row.is_read = True
    assert choice.part()["text"] == "a b"
    assert choice.part() is None


def test_scores_next_tokens_and_tokens(server, model):
    texts = ["a zz c\nd", "", "j i h g f e d c b a " * 9]
    answer = server.answer("/score", {"texts": texts, "alternatives": 2})
    scores = model.score(texts, 2)
    assert answer["separator"] == " " and answer["version"] == "1"
    for row, score in enumerate(answer["scores"]):
        count = score["count"]
        assert count == scores.count[row] and score["unknown"] == scores.unknown[row]
        assert score["tokens"] == scores.tokens[row, :count].tolist()
        assert score["words"] == scores.words[row, :count].tolist()
        assert score["ranks"] == scores.ranks[row, :count].tolist()
        assert_allclose(score["nll"], scores.nll[row, :count], atol=1e-5)
        assert score["total"] == pytest.approx(scores.total[row], abs=1e-3)
        best = [[one["token"] for one in place] for place in score["likeliest"]]
        ids = scores.likeliest_ids[row, :count]
        assert best == [[model.tokenizer.tokens[i] for i in place] for place in ids]
    tokens, probabilities = model.next(texts, 3)
    answer = server.answer("/next", {"texts": texts, "count": 3})
    assert [[one["token"] for one in row] for row in answer["next"]] == tokens
    log_probs = [[one["log_prob"] for one in row] for row in answer["next"]]
    assert_allclose(np.exp(log_probs), probabilities, atol=1e-5)
    answer = server.answer("/tokenize", {"texts": texts})
    encoded = model.tokenize(texts)
    assert answer["words"] == encoded.words
    assert answer["unknown"] == encoded.unknown.tolist()
    assert [len(ids) for ids in answer["ids"]] == encoded.lengths.tolist()
    assert answer["ids"][0] == encoded.ids[0, :5].tolist()


def test_the_openai_package(server, model):
    openai = pytest.importorskip("openai", reason="the extra `test` is not installed")
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{server.port}/v1", api_key="any", max_retries=0
    )
    (listed,) = client.models.list()
    assert listed.id == "tied" and client.models.retrieve("tied").id == "tied"
    asked = {"prompt": "a b", "max_tokens": 12, "seed": 5, "stop": ["e"]}
    _, fields = expected(model, asked)
    answer = client.completions.create(model="tied", **asked)
    assert answer.choices[0].text == fields["text"]
    assert answer.choices[0].finish_reason == fields["finish_reason"]
    stream = client.completions.create(model="tied", stream=True, **asked)
    assert "".join(part.choices[0].text for part in stream) == fields["text"]
    with pytest.raises(openai.NotFoundError, match="tied is no chat model"):
        messages = [{"role": "user", "content": "a"}]
        client.chat.completions.create(model="tied", messages=messages)
    with pytest.raises(openai.NotFoundError, match="`model` must be 'tied'"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="`temperature` must be"):
        client.completions.create(model="tied", prompt="a", temperature=-1)
    client.close()


BAD = [
    ({"prompt": 5}, "prompt", "a list of ids or a list of lists of ids. Received: 5"),
    ({"prompt": {}}, "prompt", "`prompt` must be a text, a list of texts, a list of"),
    ({"prompt": []}, "prompt", "`prompt` must have from 1 to 16 texts"),
    ({"prompt": ["a"] * 17}, "prompt", "`prompt` must have from 1 to 16 texts"),
    ({"prompt": [3, 12]}, "prompt", r"`prompt` must be in [0, 12)"),
    ({"prompt": [3, -1]}, "prompt.1", "greater than or equal to 0. Received: -1"),
    ({"prompt": [[3], [2, -1]]}, "prompt.1.1", "or equal to 0. Received: -1"),
    ({"prompt": ["a", 3]}, "prompt", "Received: ['a', 3]"),
    ({"prompt": "a " * 2001}, "prompt", "at most 2000 tokens"),
    ({"prompt": "\ud800"}, None, "`prompt"),
    ({"max_tokens": -1}, "max_tokens", "greater than or equal to 0. Received: -1"),
    ({"max_tokens": 2**70}, "max_tokens", "`max_tokens` must be at most 60000"),
    ({"max_tokens": "5"}, "max_tokens", "a valid integer. Received: '5'"),
    ({"max_tokens": True}, "max_tokens", "a valid integer. Received: True"),
    ({"temperature": float("nan")}, "temperature", "finite number"),
    ({"temperature": 1e999}, "temperature", "finite number"),
    ({"temperature": -0.1}, "temperature", "greater than or equal to 0"),
    ({"top_p": 0}, "top_p", "greater than 0"),
    ({"top_p": 1.5}, "top_p", "less than or equal to 1"),
    ({"top_k": -1}, "top_k", "greater than or equal to 0"),
    ({"seed": 2**63}, "seed", "less than"),
    ({"n": 0}, "n", "greater than or equal to 1"),
    ({"n": 17}, "n", "times `n` must be at most 16"),
    ({"logprobs": 101}, "logprobs", "less than or equal to 100"),
    ({"logprobs": 100, "max_tokens": 31}, None, "at most 3000.* Received: 3100"),
    ({"stop": ["x" * 257]}, "stop", "of 1 to 256 bytes"),
    ({"stop": ["x"] * 17}, "stop", "at most 16 texts"),
    ({"stop": [3]}, "stop", "`stop` must be a text or a list of texts. Received: [3]"),
    ({"best_of": 2}, "best_of", "`best_of` must be `n`"),
    ({"logit_bias": {"3": -100}}, "logit_bias", "is not supported"),
    ({"presence_penalty": 0.5}, "presence_penalty", "is not supported"),
    ({"suffix": "b"}, "suffix", "is not supported"),
    ({"cache_steps": [3]}, "cache_steps", "`cache_steps` is no field of this request"),
    ({"stream": 1}, "stream", "a valid boolean"),
]


def test_null_is_a_field_that_is_not_there(server):
    """OpenAI's schema of `/v1/completions` lets these be null."""
    names = "best_of echo frequency_penalty logit_bias logprobs n presence_penalty stop stream"
    names += " stream_options suffix temperature top_p user"
    body = {"model": "tied", "prompt": "a", "max_tokens": 4, "seed": 3}
    left_out = server.answer("/v1/completions", body)
    nulls = {**body, **dict.fromkeys(names.split())}
    answer = server.answer("/v1/completions", nulls)
    assert answer["choices"] == left_out["choices"]
    nothing = server.answer("/v1/completions", {**body, "prompt": ""})
    answer = server.answer("/v1/completions", {**body, "prompt": None})
    assert answer["choices"] == nothing["choices"]
    usual = {name: body[name] for name in ("model", "prompt")}
    nulls = {**usual, "max_tokens": None, "seed": None}
    answer = server.answer("/v1/completions", nulls)
    assert answer["usage"]["completion_tokens"] == 16
    assert refused(server, "/score", {"texts": None})["param"] == "texts"


def refused(server, path, body, status=400):
    """Returns the error of an answer, which must have the form of one."""
    received, headers, answer = server.ask(path, body)
    assert received == status, answer
    assert answer.keys() == {"error"}, answer
    error = answer["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert "\n" not in error["message"] and len(error["message"]) < 400
    return error


@pytest.mark.parametrize("bad, param, message", BAD)
def test_a_bad_request_is_one_sentence(server, bad, param, message):
    body = json.dumps({"model": "tied", "prompt": "a", **bad}).encode()
    error = refused(server, "/v1/completions", body)
    if param is not None:
        assert error["param"] == param
    first, _, rest = message.partition(".*")
    assert first in error["message"] and rest in error["message"]


@pytest.mark.parametrize(
    "path, body, status, message",
    [
        ("/v1/completions", b"{", 400, "the request must be JSON"),
        ("/v1/completions", b"\xff\xfe{}", 400, ""),
        ("/v1/completions", b"[" * 19_000, 400, ""),
        ("/v1/completions", b"[]", 400, "the request must be"),
        ("/v1/completions", b'{"model": "tied"}', 400, "`prompt` is missing"),
        ("/score", {"texts": "a"}, 400, "`texts`"),
        ("/score", {"texts": [3]}, 400, "`texts.0`"),
        ("/score", {"texts": ["a"] * 17}, 400, "`texts` must have from 1 to 16 texts"),
        ("/score", {"texts": ["a " * 99], "alternatives": 40}, 400, "at most 3000"),
        ("/next", {"texts": ["a"], "count": 0}, 400, "`count` must be"),
        ("/tokenize", {"texts": []}, 400, "`texts` must have from 1 to 16 texts"),
        ("/tokenize", b'{"texts": ["' + b"a" * 20_000 + b'"]}', 413, "at most 20000"),
        ("/nowhere", None, 404, "there is no /nowhere"),
        ("/v1/completions", {"model": "x", "prompt": "a"}, 404, "`model` must be"),
        ("/v1/models/other", None, 404, "`model` must be 'tied'"),
        ("/v1/chat/completions", {}, 404, "tied is no chat model"),
        ("/score", None, 405, "Method Not Allowed"),
    ],
)
def test_what_is_no_request(server, path, body, status, message):
    assert message in refused(server, path, body, status)["message"]


def test_a_body_of_another_type_is_refused(server):
    status, _, answer = server.ask(
        "/score", {"texts": ["a"]}, **{"Content-Type": "text/plain"}
    )
    assert status == 400 and "application/json" in answer["error"]["message"]


def test_another_name_of_this_machine_is_refused(server):
    for name, status in (
        ("evil.example", 403),
        ("localhost:1", 200),
        ("[::1]:80", 200),
        ("[", 403),
    ):
        received, headers, _ = server.ask("/v1/models", Host=name)
        assert received == status
        assert not [header for header in headers if "access-control" in header.lower()]


def test_connections_that_ask_nothing_keep_nobody_waiting(server):
    """Some send nothing, some half a request, some a body that never ends."""
    beginnings = (
        b"",
        b"GET /v1/models HT",
        b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    )
    connections = []
    for number in range(150):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(beginnings[number % 3])
        connections.append(connection)
    begin = time.monotonic()
    assert server.answer("/v1/models")["data"][0]["id"] == "tied"
    assert time.monotonic() - begin < 2
    for number, connection in enumerate(connections):
        connection.settimeout(10)
        answer = b""
        try:
            while part := connection.recv(4096):
                answer += part
        except ConnectionResetError:
            pass
        connection.close()
        assert answer.startswith(b"HTTP/1.1 408") if number % 3 == 2 else not answer


def test_an_endless_body_is_cut_off(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        answer = b""
        with pytest.raises((BrokenPipeError, ConnectionResetError, AssertionError)):
            for _ in range(1000):
                connection.sendall(b"400\r\n" + b"a" * 1024 + b"\r\n")
                time.sleep(0.001)
                connection.setblocking(False)
                try:
                    answer += connection.recv(4096)
                except BlockingIOError:
                    pass
                connection.setblocking(True)
                assert b"413" not in answer
            pytest.fail("it takes all of it")


@pytest.mark.parametrize(
    "request_", [b"\0\1\2\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]
)
def test_what_is_no_http_is_refused_as_json(server, request_):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request_)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"application/json" in head
    assert json.loads(body)["error"]["message"] == "the request must be one of HTTP/1.1"


def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never comes"
        time.sleep(0.02)


def test_a_full_queue_and_a_client_that_leaves(server):
    """Seven rows fill slots and queue; others are told, short answers come, and all is freed."""
    streams = []
    for _ in range(7):
        connection = socket.create_connection(("127.0.0.1", server.port))
        body = json.dumps({**LONG, "stream": True}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        streams.append(connection)
    wait_until(lambda: server.metric("rows_waiting") == 4)
    assert server.metric("slots_busy") == 3
    status, headers, answer = server.ask("/score", {"texts": ["a"]})
    assert status == 429 and headers["Retry-After"] == "1"
    assert "4 rows wait for a slot" in answer["error"]["message"]
    assert server.answer("/tokenize", {"texts": ["a"]})["ids"] == [[0]]
    for connection in streams:
        connection.close()
    wait_until(lambda: server.metric("slots_busy") + server.metric("rows_waiting") == 0)
    assert server.answer("/score", {"texts": ["a"]})["scores"][0]["count"] == 1


def test_metrics_and_the_description(server):
    assert server.answer("/healthz") == {"status": "ok"}
    assert server.answer("/readyz") == {"status": "ok", "version": "1"}
    before = server.metric("step_seconds_count")
    server.answer("/score", {"texts": ["a b c"]})
    assert server.metric("step_seconds_count") > before
    assert server.metric("version") == 1 and server.metric("version_failures") == 0
    _, _, text = server.ask("/metrics")
    assert 'keras_trellis_requests_total{path="/score",status="200"}' in text
    (seconds,) = re.findall(r'request_seconds_sum\{path="/score"\} (\S+)', text)
    assert 0 < float(seconds) < 600
    description = server.answer("/openapi.json")
    assert description["info"]["version"] == metadata.version("keras_trellis")
    assert "/v1/completions" in description["paths"]
    for path in ("/v1/completions", "/score", "/next", "/tokenize"):
        answers = description["paths"][path]["post"]["responses"]
        assert answers.keys() == {"200", "400", "429", "500", "503", "504"}
        assert "example" in answers["200"]["content"]["application/json"]
    schemas = description["components"]["schemas"]
    example = schemas["CompletionRequest"]["example"]
    assert example.keys() <= schemas["CompletionRequest"]["properties"].keys()


def test_what_is_printed_at_the_start_has_every_limit_and_no_prompt(server):
    server.answer("/score", {"texts": ["zzsecretzz"]})
    assert server.lines[0].startswith("keras-trellis: tied, version 1: http://")
    for flag in FLAGS:
        name, _, value = flag.partition("=")
        assert any(line.split()[:2] == [name, value] for line in server.lines), flag
    assert "zzsecretzz" not in server.printed
