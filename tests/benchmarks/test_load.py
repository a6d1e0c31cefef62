"""The benchmark of concurrent requests, against a server that does nothing."""

import threading
from concurrent import futures

import grpc
import pytest
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks import load
from benchmarks.workers import Reading, Result
from trainers.serving import remote


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers once as many requests are there as there are clients."""

    def __init__(self, clients):
        self.requests, self._together = [], threading.Barrier(clients, timeout=60)

    def Predict(self, request, context):  # noqa: N802
        self._together.wait()
        self.requests.append(request)
        return predict_pb2.PredictResponse()


@pytest.fixture
def service():
    return Service(3)


@pytest.fixture
def address(service):
    server = grpc.server(futures.ThreadPoolExecutor(3))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait()


def test_clients_ask_at_the_same_time(service, address):
    contender = load.score(
        load.Setting(address, "words", "a b", requests=6, clients=3, deadline=60)
    )
    contender.step()
    (waits,) = contender.learn()["waits"]
    assert len(waits) == len(service.requests) == 6 and all(wait > 0 for wait in waits)
    for request in service.requests:
        assert (request.model_spec.name, request.model_spec.signature_name) == ("words", "score")
        assert list(request.inputs["text"].string_val) == [b"a b"]


def test_an_error_of_the_server_is_one_of_the_benchmark(address):
    setting = load.Setting(address, "words", "a", requests=1, clients=1, deadline=0.01)
    with pytest.raises(remote.RemoteError):  # the other two never come
        load.score(setting).step()


def test_rows_leave_out_the_first_round():
    waits = [[9.0] * 4, [float(each) for each in range(101)]]
    setting = load.Setting("", "", "", requests=101, clients=4, deadline=60)
    found = load.row(setting, Result({"waits": waits}, [Reading(10.1, None)]))
    assert found["percentiles"] == pytest.approx([50, 95, 99])
    assert load.table({"rows": [found]}).splitlines()[-1] == (
        "| 4 | 10.0 | 50,000.0 | 95,000.0 | 99,000.0 |"
    )


def test_the_server_of_the_tests_scores(model):
    with load.started(str(model.path())) as address:
        contender = load.score(
            load.Setting(address, "float32", "w1 w2", requests=2, clients=2, deadline=60)
        )
        contender.step()
        (waits,) = contender.learn()["waits"]
        assert len(waits) == 2


def test_a_server_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(load, "SERVER", "tests.benchmarks.nobody")
    with pytest.raises(RuntimeError, match="the server ended: .* -m tests.benchmarks.nobody"):
        with load.started("folder"):
            pass
