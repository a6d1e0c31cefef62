"""Operations that make a text ready; tests/trainers/data has those of the tasks."""

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_trellis.export import Standardizer

MADE = Standardizer(
    ["replace", r"^|$", "|"],
    ["replace", r"[\p{Lu}\d$-]+|(\s)\.", r"<\1>"],
    ["lower"],
    ["replace", r"\x{df}+", "ss"],
)


@given(text=st.text(max_size=20) | st.text("aA1$.-ßΣς \n\v\0[]", max_size=20))
@settings(max_examples=100)
def test_python_does_what_the_graph_does(text):
    (expected,) = MADE(tf.constant([text.encode()])).numpy()
    assert MADE.apply(text) == expected.decode()


@pytest.mark.parametrize(
    "operation, message",
    [
        (["upper"], r"must be lists like \['lower'\].*Received: \['upper'\]"),
        (["lower", "a"], "Received: \\['lower', 'a'\\]"),
        (["replace", "a"], "Received: \\['replace', 'a'\\]"),
        (["replace", r"[^\S\n]", " "], r"no classes but .*Received: \\S in '\[\^"),
        (["replace", r"\ba", " "], r"Received: \\b"),
    ],
)
def test_what_python_has_no_form_of_is_refused(operation, message):
    with pytest.raises(ValueError, match=message):
        Standardizer(["lower"], operation)
