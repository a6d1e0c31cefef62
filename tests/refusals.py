"""What the library refuses."""

import pytest


def refuses(message):
    """Expects a `ValueError` whose text matches a regular expression."""
    return pytest.raises(ValueError, match=message)
