"""What has no finite answers is not published."""

import contextlib

import numpy as np
import pytest

from keras_trellis import TrellisClassifier, TrellisLayer, TrellisLM, export

VOCABULARY = ["<eos>", "<unk>", "a"]


@pytest.fixture(scope="module")
def language_model():
    layer = TrellisLayer(4, 2, output_units=4)
    return TrellisLM(len(VOCABULARY), layer, embedding_units=4)


@pytest.fixture(scope="module")
def classifier():
    model = TrellisClassifier(3, TrellisLayer(4, 2, output_units=3))
    model.build((None, None, 2))
    return model


@contextlib.contextmanager
def with_value(variable, value, places=-1):
    """Sets some places of a variable, in flat order, for as long as the context lasts."""
    before = variable.numpy()
    changed = before.copy()
    changed.flat[places] = value
    variable.assign(changed)
    yield
    variable.assign(before)


def refused(path, model, precision="float32"):
    """Returns the message of the error, once nothing is published."""
    language = isinstance(model, TrellisLM)
    arguments = [VOCABULARY] if language else []
    write = export.export_language_model if language else export.export_classifier
    with pytest.raises(ValueError) as error:
        write(model, *arguments, path / "model", precision=precision)
    assert not [*path.rglob("*.pb")] and not [*path.glob("model/*")]
    return str(error.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(language_model, classifier, tmp_path, value):
    # A bias may be infinite, and all answers finite: gates are bounded.
    for model in (language_model, classifier):
        for variable in (model.trellis.bias, model.trellis.recurrent_kernel):
            with with_value(variable, value):
                message = refused(tmp_path, model)
            size = variable.numpy().size
            assert message == (
                "`model` must have weights that are finite in float32. "
                f"Received: {variable.path} with {value}, in 1 of {size} places"
            )


def test_weights_that_less_precision_cannot_hold(language_model, tmp_path):
    kernel = language_model.trellis.kernel
    with with_value(kernel, 1e6):
        message = refused(tmp_path, language_model, "float16")
    assert "finite in float16" in message and f"{kernel.path} with inf" in message


def test_answers_that_are_not_finite(language_model, classifier, tmp_path):
    everywhere = slice(None)
    with with_value(language_model.head.bias, [3e38, -3e38, 0], everywhere):
        message = refused(tmp_path, language_model)
    assert message == (
        "`model` must answer the warm-up requests by finite numbers. "
        "Received: -inf in the output 'log_probs' of the signature 'prefill_v2'"
    )
    with (
        with_value(classifier.trellis.bias, 100.0, everywhere),
        with_value(classifier.dense.kernel, 3e38, everywhere),
    ):
        message = refused(tmp_path, classifier)
    assert message.endswith(
        "Received: nan in the output 'probabilities' of the signature 'serving_default'"
    )
