"""ONNX Runtime is to report to nobody, whoever imports it."""

import os


def refuse() -> None:
    """Refuses, for ONNX Runtime that is imported afterwards; a user's own value stays.

    Its version 1.32 writes an identifier of the machine to the user's cache and tells its maker
    what it runs, unless this variable is set before it is imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
