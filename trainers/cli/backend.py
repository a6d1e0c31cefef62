"""Which of Keras's backends the commands run on."""

import sys

import keras


def check() -> None:
    """Exits with a line if Keras runs on another backend than TensorFlow."""
    name = keras.backend.backend()
    if name != "tensorflow":
        print(
            "error: KERAS_BACKEND must be tensorflow for the trainers: they train with "
            f"`tf.distribute` and export SavedModels. Received: {name}. Unset it, or correct "
            '"backend" in ~/.keras/keras.json',
            file=sys.stderr,
        )
        sys.exit(2)
