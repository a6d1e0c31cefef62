"""Downloads: a quick test whether they can succeed, and errors with ways out."""

import contextlib
import threading
import urllib.request
from collections.abc import Iterable, Iterator

_PROBE_SECONDS = 10


def _probe(url: str) -> None:
    """Reads a file's first byte, because a download retries for minutes before it fails.

    The thread limits what a time-out does not: the look-up of the name, and trying address after
    address.

    Raises:
        OSError: the server does not answer, or not with the file.
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
    error = (
        outcome[0] if outcome else TimeoutError(f"no answer within {_PROBE_SECONDS} s")
    )
    if error is not None:
        raise OSError(str(error)) from error


@contextlib.contextmanager
def attempt(what: str, url: str, files: Iterable[str], instead: str) -> Iterator[None]:
    """Turns any failure of a download into an error that says how to go on without it.

    Args:
        what: the data set.
        url: the address.
        files: the names of the data set's files.
        instead: what needs no download.

    Raises:
        OSError: the server does not answer, or the download within the context failed.
    """
    try:
        _probe(url)
        yield
    except Exception as error:  # Keras and tensorflow-datasets raise many types
        raise OSError(
            f"{what} cannot be downloaded from {url} ({error}). Ways out: connect "
            "this machine to the network (HTTPS_PROXY names a proxy); or copy "
            f"{', '.join(files)} into a folder and name it as --data_dir; or train on "
            f"{instead}"
        ) from error
