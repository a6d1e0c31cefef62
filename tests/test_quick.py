"""The choices of `tests/conftest.py` name what is there."""

import pytest

from tests import ROOT, conftest


@pytest.mark.parametrize("name", [*conftest.SLOW, *conftest.QUICK])
def test_a_choice_names_what_is_there(name):
    path, _, test = name.partition("::")
    place = ROOT / "tests" / path
    assert place.exists()
    if test:
        function = test.partition("[")[0]
        assert f"def {function}(" in place.read_text(encoding="utf-8")


def test_what_is_quick_is_not_slow():
    assert not {*conftest.SLOW} & {*conftest.QUICK}
