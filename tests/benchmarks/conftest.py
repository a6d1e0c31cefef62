"""A tiny exported model for the benchmarks of serving."""

import functools

import pytest

from benchmarks import exported


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    model = exported.Model(11, 8, 6, 3, threads=1, folder=str(folder))
    exported.export(exported.FULL, model).step()
    with pytest.MonkeyPatch.context() as patch:  # loading takes seconds
        patch.setattr(exported.Model, "load", functools.cache(exported.Model.load))
        yield model
