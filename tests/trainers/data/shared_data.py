"""Published data sets, which some tests read: those in the folder that TRELLIS_DATA names.

By default it is `../shared/data` beside the repository; what is not there is skipped.
"""

import os
import pathlib

import pytest

FOLDER = pathlib.Path(
    os.environ.get(
        "TRELLIS_DATA", pathlib.Path(__file__).parents[4] / "shared" / "data"
    )
)


def needs(name):
    """Skips a test where the folder has no such data set."""
    folder = FOLDER / name
    return pytest.mark.skipif(not folder.is_dir(), reason=f"no {folder} (TRELLIS_DATA)")
