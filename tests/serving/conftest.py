"""What the tests of this folder share: models, and their exports as loaded."""

import functools

import pytest

from tests.serving import models
from tests.serving.served import Served


@pytest.fixture(scope="session")
def keras_models():
    """The models of each kind, by name."""
    return {name: kind.make() for name, kind in models.KINDS.items()}


@pytest.fixture(scope="session")
def load(exports):
    """A function that loads an export by its name, once."""
    return functools.cache(lambda name: Served(exports[name]))
