"""The model server that other tests ask: its protocol is TensorFlow Serving's."""

import json

import numpy as np
import pytest
import requests
import tensorflow as tf
from numpy.testing import assert_array_equal

from tests.serving import batching, model_server, rest


class Affine(tf.Module):
    """Two signatures: one input and one output, several of both."""

    def __init__(self, slope):
        super().__init__()
        self.slope = tf.Variable(slope)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def one(self, x):
        return {"y": self.slope * x}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, "ids"),
            tf.TensorSpec([None], tf.string, "text"),
        ]
    )
    def two(self, ids, text):
        return {"ids": ids + 1, "text": text, "text_bytes": text}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "affine"
    for version, slope in (("9", 1.0), ("10", 0.1), (".exporting-1", 7.0)):
        module = Affine(slope)
        signatures = {"serving_default": module.one, "two": module.two}
        tf.saved_model.save(module, str(folder / version), signatures=signatures)
    return model_server.Model(folder)


@pytest.fixture(scope="module")
def post(model):
    with model_server.serve(model) as (_, address):

        def post(body, path="affine:predict"):
            data = body if isinstance(body, str) else json.dumps(body)
            answer = requests.post(
                f"http://{address}/v1/models/{path}", data, timeout=30
            )
            return answer.status_code, answer.text

        post.address = address
        yield post


def test_the_newest_version_is_served(model, post):
    assert model.version == 10
    status = requests.get(f"http://{post.address}/v1/models/affine", timeout=30).json()
    (version,) = status["model_version_status"]
    assert (version["version"], version["state"]) == ("10", "AVAILABLE")


def test_rows_and_columns(post):
    numbers = [[1.0, 2.0], [3.0, 4.0]]
    expected = [[0.1, 0.2], [0.3, 0.4]]
    assert post({"instances": numbers}) == (200, json.dumps({"predictions": expected}))
    assert post({"inputs": numbers}) == (200, json.dumps({"outputs": expected}))
    assert post({"inputs": {"x": numbers}}) == (200, json.dumps({"outputs": expected}))
    versioned = post({"instances": numbers}, "affine/versions/10:predict")
    assert json.loads(versioned[1]) == {"predictions": expected}


def test_several_inputs_and_outputs_have_names(post):
    row = {"ids": [1, 2], "text": {"b64": "w6k="}}
    answer = {"ids": [2, 3], "text": "é", "text_bytes": {"b64": "w6k="}}
    _, rows = post({"signature_name": "two", "instances": [row]})
    assert json.loads(rows) == {"predictions": [answer]}
    columns = {name: [value] for name, value in row.items()}
    _, columns = post({"signature_name": "two", "inputs": columns})
    assert json.loads(columns) == {
        "outputs": {name: [value] for name, value in answer.items()}
    }


def test_errors_are_escaped_as_in_c():
    assert rest.c_escape("'é'\n") == r"\'\303\251\'\n"


def test_numbers_read_back_as_the_same_float32():
    bits = np.random.default_rng(0).integers(0, 2**32, 2000, dtype=np.uint32)
    numbers = np.append(bits.view(np.float32), np.float32([0.1, -0.0, 3e38, np.inf]))
    numbers = numbers[~np.isnan(numbers)]
    read = json.loads(json.dumps(rest.to_json("y", numbers)))
    assert_array_equal(np.float32(read).view(np.uint32), numbers.view(np.uint32))


def test_requests_are_merged_and_taken_apart():
    requests = [
        {"ids": np.array([[1, 2, 3]]), "seed": np.array([7])},
        {"ids": np.array([[4], [5]]), "seed": np.array([8, 9])},
    ]
    merged = batching.merged(requests, (2, 5, 8))
    # The narrow request is filled with its first value, the batch with that request's first row.
    ids = [[1, 2, 3], [4, 4, 4], [5, 4, 4], [4, 4, 4], [4, 4, 4]]
    assert_array_equal(merged["ids"], ids)
    assert_array_equal(merged["seed"], [7, 8, 9, 8, 8])
    first, second = batching.split(merged, [1, 2])
    assert_array_equal(first["ids"], ids[:1])
    assert_array_equal(second["ids"], ids[1:3])


def test_nothing_can_be_made_as_wide_as_something():
    requests = [{"ids": np.zeros([1, 0])}, {"ids": np.zeros([1, 2])}]
    with pytest.raises(tf.errors.InvalidArgumentError, match="empty tensor"):
        batching.merged(requests, (2,))
