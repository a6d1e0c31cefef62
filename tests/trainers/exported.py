"""A small language model, exported once for all tests of a process."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np

import keras_trellis
from keras_trellis.export import export_language_model

SCRIPT = "<script>document.title='taken'</script>"
IMAGE = "<img/src=x/onerror=document.title='taken'>"
FACTS = {"Trained on": "cats | mats", "Test perplexity": "12.34 (56 tokens)", "Made by": SCRIPT}
WORDS = ("<eos>", "the", "cat", "sat", "on", "mat", SCRIPT, IMAGE)


@functools.cache
def folder() -> Path:
    """Returns the folder of a model of words, which has two tokens that a page must not obey."""
    return _export(WORDS, seed=0)


@functools.cache
def folder_of_characters() -> Path:
    """Returns the folder of a model of characters, which reads `<unk>` for others."""
    return _export(("<eos>", " ", "a", "b", "<unk>"), seed=1)


def _export(vocabulary, seed):
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    model = keras_trellis.TrellisLM(len(vocabulary), 8, 2, embedding_units=8)
    model(np.zeros([1, 1], np.int32))
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:  # large, so that answers differ
        variable.assign(random.normal(size=variable.shape))
    export_language_model(model, vocabulary, path / "small", facts=FACTS)
    return path / "small"
