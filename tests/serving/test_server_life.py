"""A server's life: versions that come and go, its end, its key, and a worker that fails."""

import asyncio
import http.client
import json
import os
import shutil
import signal
import threading
import time

import pytest

from keras_trellis.serving import runtime
from tests.serving.serving import Server, events

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx", reason="the extra `test` is not installed")
import starlette.requests  # noqa: E402

from keras_trellis.serving.server import app, command, errors, guard  # noqa: E402
from keras_trellis.serving.server.service import Service  # noqa: E402
from keras_trellis.serving.server.settings import Limits  # noqa: E402

ASKED = {"model": "model", "prompt": "b a", "max_tokens": 60, "seed": 3}


def publish(source, folder, number):
    """Writes a version as an export does: whole or not at all."""
    shutil.copytree(source, folder / "part")
    os.rename(folder / "part", folder / number)


def test_an_error_of_the_api_reads_as_its_sentence():
    assert str(errors.ApiError(400, "it is wrong", param="n")) == "it is wrong"


def test_a_listener_waits_for_other_news_than_it_has_heard():
    async def heard():
        listener = guard.Listener(30)
        listener.wake()
        await listener.wait()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(listener.wait(), 0.1)

    asyncio.run(heard())


def test_versions_are_swapped_without_a_wrong_or_failed_answer(exports, tmp_path):
    """Clients ask without a pause; a good version comes, a damaged one, and the first again."""
    folder = tmp_path / "model"
    folder.mkdir()
    publish(exports["stack"], folder, "1")
    models = {"1": exports["stack"], "2": exports["tied"]}
    settings = {"max_length": 60, "seed": 3, "forbidden_ids": [-1]}
    texts = {
        number: runtime.load(path).complete(["b a"], **settings).text[0]
        for number, path in models.items()
    }
    assert texts["1"] != texts["2"]
    server = Server(folder, "--poll=0.05", "--slots=3", "--grace=10")
    answered, stopped, problems = [], threading.Event(), []

    def ask(stream):
        while not stopped.is_set():
            answer = server.answer("/v1/completions", {**ASKED, "stream": stream})
            if stream:
                parts = [json.loads(part) for part in events(answer)[:-1]]
                answer = parts[0]
                text = "".join(part["choices"][0]["text"] for part in parts)
            else:
                text = answer["choices"][0]["text"]
            number = answer["system_fingerprint"].partition("-")[0]
            answered.append(number)
            if text != texts[number]:
                problems.append((number, text))

    def guarded(stream):
        try:
            ask(stream)
        except BaseException as error:  # the thread's end would hide it
            problems.append(error)

    def wait_for(number):
        end = time.monotonic() + 30
        while server.answer("/readyz")["version"] != number:
            assert time.monotonic() < end, server.printed
            time.sleep(0.05)
        count = len(answered)
        while len(answered) < count + 6:
            assert time.monotonic() < end and not problems, problems
            time.sleep(0.02)

    threads = [threading.Thread(target=guarded, args=[i % 2 > 0]) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_for("1")
        publish(exports["tied"], folder, "2")
        wait_for("2")
        broken = tmp_path / "broken"
        shutil.copytree(exports["tied"], broken)
        graph = bytearray((broken / "step.onnx").read_bytes())
        graph[-1] ^= 1
        (broken / "step.onnx").write_bytes(graph)
        publish(broken, folder, "3")
        while server.metric("version_failures") == 0:
            time.sleep(0.05)
        wait_for("2")
        shutil.rmtree(folder / "3")
        shutil.rmtree(folder / "2")
        wait_for("1")
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)
        status = server.stop()
    assert not problems and {*answered} == {"1", "2"}
    assert status == 0 and "Traceback" not in server.printed
    assert "3 cannot be served" in server.printed and "step.onnx" in server.printed


def test_open_requests_end_before_the_server_and_long_ones_within_its_grace(exports):
    server = Server(exports["tied"].parent, "--grace=3", "--new-tokens=60000")
    asked = {**ASKED, "model": "tied", "stream": True}
    endless = {**asked, "max_tokens": 60_000}
    unstreamed, answers = {**endless, "stream": False}, []
    thread = threading.Thread(
        target=lambda: answers.append(server.ask("/v1/completions", unstreamed))
    )
    thread.start()
    streams = []
    for body in (endless, {**asked, "max_tokens": 1_000}):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        streams.append(connection.getresponse())  # the first token has come
    while server.metric("slots_busy") < 2:
        time.sleep(0.01)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    told, whole = (events(stream.read().decode()) for stream in streams)
    assert server.stop() == 0
    assert time.monotonic() - begin < 15  # the grace, and what the machine adds
    assert whole[-1] == "[DONE]" and '"finish_reason": "length"' in whole[-2]
    assert "the server is being stopped" in json.loads(told[-1])["error"]["message"]
    thread.join(10)
    assert answers[0][0] == 503
    assert "Traceback" not in server.printed, server.printed


def test_a_connection_that_is_kept_is_told_of_the_end_and_never_reset(exports):
    server = Server(exports["tied"].parent, "--grace=5")
    body = json.dumps({**ASKED, "model": "tied", "max_tokens": 3})
    headers = {"Content-Type": "application/json"}
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)]
    connections += [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)]
    idle, kept = connections

    def ask(connection):
        connection.request("POST", "/v1/completions", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
        return answer.getheader("connection")

    assert [ask(each) for each in connections] == [None, None]
    server.process.send_signal(signal.SIGTERM)
    while ask(kept) != "close":
        time.sleep(0.01)
    assert server.stop() == 0 and "Traceback" not in server.printed
    idle.close()


def test_a_path_that_is_refused_before_its_route_is_counted_as_its_own(service):
    async def ask(client):
        body = b'{"texts": ["' + b"a" * 300_000 + b'"]}'
        headers = {"Content-Type": "application/json"}
        large = await client.post("/score", content=body, headers=headers)
        other = await client.post("/nowhere", content=body, headers=headers)
        assert large.status_code == other.status_code == 413
        return (await client.get("/metrics")).text

    text = asyncio.run(asked_in_process(service, ask))
    for path in ("/score", "other"):
        line = f'keras_trellis_requests_total{{path="{path}",status="413"}} 1.0'
        assert line in text


def test_no_request_begins_a_thread(service, monkeypatch):
    """Where memory is short, such a thread would be waited for without an end."""

    def begun(thread):
        raise AssertionError(f"{thread} is begun")

    async def ask(client):
        # Those of the application alone; the client is in the same process.
        monkeypatch.setattr(threading.Thread, "start", begun)
        long = "a " * 3000
        body = {"texts": [long, "b a"]}
        return [await client.post("/score", json=body) for _ in range(2)]

    answers = asyncio.run(asked_in_process(service, ask))
    assert [answer.status_code for answer in answers] == [200, 200]


def test_a_server_whose_steps_do_not_end_is_not_ready(service, monkeypatch):
    async def ask(client):
        ready = await client.get("/readyz")
        monkeypatch.setattr(service, "problem", lambda: "a step does not end")
        return ready, await client.get("/readyz")

    ready, stuck = asyncio.run(asked_in_process(service, ask))
    assert ready.status_code == 200 and stuck.status_code == 503
    assert stuck.json()["status"] == "a step does not end"


def test_a_request_without_memory_is_told_to_come_again(service, monkeypatch):
    """Wherever it is short: where the body is parsed, and where texts are made into rows."""

    def fail(*_, **__):
        raise MemoryError

    async def ask(client):
        answers = []
        body = {**ASKED, "model": "tied"}
        for owner, name in ((starlette.requests.Request, "json"), (service, "read")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fail)
                answers.append(await client.post("/v1/completions", json=body))
        answers.append(await client.post("/v1/completions", json=body))
        return answers

    *short, good = asyncio.run(asked_in_process(service, ask))
    assert good.status_code == 200
    for answer in short:
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert "out of memory; ask again later" in answer.json()["error"]["message"]


def test_a_proxys_name_may_be_allowed(service):
    async def ask(client):
        names = ("evil.example", "trellis.example", "TRELLIS.example:8080", "127.0.0.1")
        answers = [
            await client.get("/v1/models", headers={"Host": name}) for name in names
        ]
        assert "--allow-host" in answers[0].json()["error"]["message"]
        return [answer.status_code for answer in answers]

    hosts = ["trellis.example"]
    statuses = asyncio.run(asked_in_process(service, ask, hosts=hosts))
    assert statuses == [403, 200, 200, 200]


def test_a_proxy_is_asked_not_to_collect_a_stream(service):
    async def ask(client):
        body = {**ASKED, "model": "tied", "stream": True}
        return await client.post("/v1/completions", json=body)

    answer = asyncio.run(asked_in_process(service, ask))
    assert answer.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize(
    "name, least",
    [
        *(("queue", 0), ("alternatives", 0), ("grace", 0), ("threads", 0)),
        *(("slots", 1), ("rows", 1), ("poll", 0.01), ("body_bytes", 1024)),
    ],
)
def test_the_least_of_a_limit(name, least):
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"`{name}` must be from {least:g} to "):
        Limits(**{name: least - 0.01})


@pytest.mark.parametrize(
    "flag, value", [("--poll", "soon"), ("--grace", "nan"), ("--deadline", "inf")]
)
def test_a_flag_that_is_no_number_is_named(capsys, flag, value):
    with pytest.raises(SystemExit) as ended:
        command.main(["serve", "models", f"{flag}={value}"])
    assert ended.value.code == 2
    assert (
        f"argument {flag}: invalid number value: '{value}'" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        (["{tmp}"], "MODEL must be the folder of an export"),
        (["{sequences}"], "must hold a language model. Received: 'classifier'"),
        (["{mixture}"], "runs in TensorFlow alone"),
        (["{tied}", "--slots=0"], "`slots` must be from 1 to 4096. Received: slots=0"),
        (["{tied}", "--port=99999"], "`port` must be from 0 to 65535"),
        (["{tied}", "--host=192.0.2.1"], "--host=192.0.2.1 --port=0: "),
        (
            ["{tied}", "--key-file={tmp}/none"],
            "none` cannot be read: No such file or directory",
        ),
        (["{tied}", "--key-file=/dev/null"], "must have a key in one line"),
        (["{tied}", "--key-file={tied}/step.onnx"], "must have a key in one line"),
    ],
)
def test_a_command_that_cannot_be_carried_out(
    exports, tmp_path, capsys, flags, message
):
    names = {name: exports[name] for name in ("tied", "sequences", "mixture")}
    flags = [flag.format(tmp=tmp_path, **names) for flag in flags]
    assert command.main(["serve", "--port=0", *flags]) == 2
    told = capsys.readouterr().err
    assert (
        message in told and told.count("\n") == 1 and told.startswith("keras-trellis: ")
    )


@pytest.mark.parametrize(
    "error, status, message",
    [
        (MemoryError(), 2, "cannot be served with --slots=64: MemoryError"),
        (RuntimeError("bad_alloc\nof 3"), 2, "--slots=64: RuntimeError: bad_alloc"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_a_model_that_does_not_fit_and_a_begin_that_is_interrupted(
    exports, capsys, monkeypatch, error, status, message
):
    def fail(*_):
        raise error

    monkeypatch.setattr("keras_trellis.serving.slots.Slots.warm_up", fail)
    assert command.main(["serve", str(exports["tied"]), "--port=0"]) == status
    told = capsys.readouterr().err
    assert told.count("\n") == (message is not None) and (message or "") in told


async def asked_in_process(service, ask, key=None, hosts=None):
    """Returns what a function of a client returns, which asks the application itself."""
    service.begin()
    application = app.make_app(service, key, hosts)
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost"
    ) as client:
        return await ask(client)


@pytest.fixture
def service(exports):
    made = Service(exports["tied"].parent, Limits(slots=2, deadline=1), print)
    yield made
    made.give_up()
    made.join()


def test_a_key_is_asked_for_by_everything_but_the_probes(service):
    async def ask(client):
        statuses = []
        for headers in (
            {},
            {"Authorization": "Bearer other"},
            {"Authorization": "Bearer secret"},
        ):
            for path in ("/v1/models", "/metrics", "/openapi.json", "/healthz"):
                answer = await client.get(path, headers=headers)
                statuses.append(answer.status_code)
        assert (await client.get("/metrics")).json()["error"]["code"]
        return statuses

    statuses = asyncio.run(asked_in_process(service, ask, key="secret"))
    assert statuses == [401, 401, 401, 200] * 2 + [200] * 4


def test_a_deadline_and_a_model_that_fails(service, monkeypatch):
    body = {**ASKED, "model": "tied", "max_tokens": 4096, "n": 2}
    monkeypatch.setattr("keras_trellis.serving.worker._PAUSE", 0.01)

    async def ask(client):
        late = await client.post("/v1/completions", json={**body, "n": 16})
        ready = await client.get("/healthz")
        assert ready.json() == {"status": "ok"}

        def fail(ids, cache):
            raise MemoryError

        reader = service.versions.current.model.reader
        with monkeypatch.context() as patch:
            patch.setattr(reader, "step", fail)
            failed = await client.post("/v1/completions", json=body)
            while service.problem() is None:
                await asyncio.sleep(0.01)
            after = await client.post("/v1/completions", json=body)
            sick = await client.get("/healthz")
        while service.problem():
            await asyncio.sleep(0.01)
        again = await client.post("/v1/completions", json={**body, "max_tokens": 2})
        return late, failed, after, sick, again

    late, failed, after, sick, again = asyncio.run(asked_in_process(service, ask))
    assert late.status_code == 504
    assert "longer than 1 seconds" in late.json()["error"]["message"]
    assert failed.status_code == 500
    assert "has failed in this step; ask again" in failed.json()["error"]["message"]
    assert after.status_code == sick.status_code == 503
    assert "have failed: MemoryError" in after.json()["error"]["message"]
    assert "steps in a row have failed: MemoryError" in sick.json()["status"]
    assert again.status_code == 200
    assert service.failures.count("step") > 1


def test_a_step_that_does_not_end_keeps_nobody_waiting(service, monkeypatch):
    stuck, reader = threading.Event(), service.versions.current.model.reader
    step = reader.step

    def wait(ids, cache):
        stuck.wait(30)
        return step(ids, cache)

    monkeypatch.setattr(reader, "step", wait)

    async def ask(client):
        try:
            body = {**ASKED, "model": "tied"}
            return await client.post("/v1/completions", json=body)
        finally:
            stuck.set()

    answer = asyncio.run(asked_in_process(service, ask))
    assert answer.status_code == 504
