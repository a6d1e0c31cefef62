"""The requests by which a server warms a model up, which stand beside it."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2


@pytest.mark.parametrize("name", ["tied", "sequences", "images"])
def test_each_signature_is_asked_once_and_answers(exports, load, name):
    model = load(name)
    asked = []
    path = exports[name] / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(
            record
        ).predict_log.request
        signature = request.model_spec.signature_name
        inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        for key, spec in model.inputs(signature).items():
            assert (
                inputs[key].dtype == spec.dtype.as_numpy_dtype
                or spec.dtype == tf.string
            )
            assert len(inputs[key]) == 1
        answers = model(signature, inputs)
        assert all(len(answer) == 1 for answer in answers.values())
        assert all(
            np.isfinite(a).all() for a in answers.values() if a.dtype.kind == "f"
        )
        asked.append(signature)
    assert sorted(asked) == sorted(model.signatures())
