"""What is refused."""

import pytest


def refuses(message, kind=ValueError):
    """Expects an error of a kind whose text matches a regular expression."""
    return pytest.raises(kind, match=message)
