"""The stores of these tests, each started when a test asks for it."""

import contextlib

import pytest

from benchmarks.faults import stores as servers


@pytest.fixture(scope="session")
def served():
    """Returns the store of a scheme, to clients in this process too."""
    with contextlib.ExitStack() as stack:
        made = {}

        def serve(scheme):
            if scheme not in made:
                made[scheme] = stack.enter_context(servers.serving(scheme))
                stack.enter_context(servers.configured(made[scheme]))
            return made[scheme]

        yield serve


@pytest.fixture
def s3(served):
    """The store of S3, which has no faults at the beginning and after the test."""
    yield from _without_faults(served("s3"))


@pytest.fixture(params=["s3", "gs"])
def store(served, request):
    """Each store, which has no faults at the beginning and after the test."""
    yield from _without_faults(served(request.param))


def _without_faults(store):
    yield store
    store.fault = lambda *_: None
