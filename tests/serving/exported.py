"""A small language model as an export has it.

    python -m tests.serving.exported FOLDER

writes it to FOLDER/words, for a server other than the one that tests start.
"""

import sys
from pathlib import Path

import keras

from keras_trellis import TrellisLM
from keras_trellis.export import export_language_model

VOCABULARY = ["<eos>", "<unk>", "a", "b", "c", "d", "e", "f", "é"]
NAME = "words"


def export(folder):
    """Exports a model of words, whose weights are random, to a folder; returns the model's folder.

    The answers of such a model depend on all of its input, which those of small weights hardly do.
    """
    keras.utils.set_random_seed(0)
    random = keras.initializers.RandomNormal(stddev=0.5)
    model = TrellisLM(
        len(VOCABULARY),
        units=6,
        depth=3,
        embedding_units=4,
        embeddings_initializer=random,
        kernel_initializer=random,
        recurrent_initializer=random,
    )
    model.build((None, None))
    export_language_model(model, VOCABULARY, folder / NAME)
    return folder / NAME


if __name__ == "__main__":
    export(Path(sys.argv[1]))
