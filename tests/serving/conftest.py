"""The exports that the tests of this folder share."""

import os

import filelock
import pytest

from tests.serving import models


@pytest.fixture(scope="session")
def keras_models():
    """The models that were exported, by name."""
    return {name: make() for name, make in models.MODELS.items()}


@pytest.fixture(scope="session")
def exports(tmp_path_factory, keras_models):
    """The folder of a version of each, by name: made once, whichever worker comes first."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exports"
    with filelock.FileLock(f"{shared}.lock"):
        if not shared.exists():
            for name, model in keras_models.items():
                models.export_model(name, model, shared / name)
    return {name: shared / name / "1" for name in keras_models}
