"""Downloads that cannot succeed: found out soon, and told with ways out."""

import threading
import urllib.request
from collections.abc import Iterable

_PROBE_SECONDS = 10


def probe(url: str) -> None:
    """Reads a file's first byte: those who download try for minutes what cannot succeed.

    The thread bounds what a time-out does not: looking up the name, and one address after another.

    Raises:
        OSError: There is no answer, or another than the file.
    """
    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(url, timeout=_PROBE_SECONDS) as response:
                response.read(1)
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PROBE_SECONDS)
    error = outcome[0] if outcome else TimeoutError(f"no answer within {_PROBE_SECONDS} s")
    if error is not None:
        raise OSError(str(error)) from error


def failure(corpus: str, looked_for: str, error: Exception, files: Iterable[str]) -> OSError:
    """Returns the error that says what to do without a download.

    Args:
        corpus: What could not be downloaded.
        looked_for: Where it was looked for.
        error: Why it could not.
        files: The names of the corpus's files.
    """
    return OSError(
        f"{corpus} cannot be downloaded from {looked_for} ({error}). Ways out: connect "
        "this machine to the network (HTTPS_PROXY names a proxy); or copy "
        f"{', '.join(files)} into a folder and name it as data_dir; or train on text "
        "that needs no download: task='pydoc', or task='text' with a data_dir of your own"
    )
