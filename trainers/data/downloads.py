"""Downloads: their folder, a quick test whether they can succeed, and errors with ways out."""

import contextlib
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator

import tensorflow_datasets as tfds
from absl import logging
from etils import epath

DEFAULT_CACHE_DIR = "~/.cache/keras_trellis"
_PROBE_SECONDS = 10


def cache_folder(cache_dir: epath.PathLike | None) -> epath.Path:
    """Returns the folder of downloads and of files made from them; None: the default."""
    return epath.Path(DEFAULT_CACHE_DIR if cache_dir is None else cache_dir).expanduser()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences tensorflow-datasets, which logs every file that it touches."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def prepare(
    builder: tfds.core.DatasetBuilder,
    url: str,
    no_download: Callable[[Exception], OSError],
    manual_dir: epath.PathLike | None = None,
) -> None:
    """Downloads and prepares a data set by tensorflow-datasets, unless that has been done.

    Args:
        builder: The data set's builder, which knows the checksums of its files.
        url: One of the files that it downloads.
        no_download: Turns the exception of a failed download into an error for the user.
        manual_dir: A folder of the files; None to download them.

    Raises:
        OSError: The download failed.
    """
    if builder.data_path.exists():
        return
    tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(
        manual_dir=manual_dir, try_download_gcs=False, force_checksums_validation=True
    )
    try:
        if manual_dir is None:
            probe(url)
        builder.download_and_prepare(download_config=config)
    except Exception as error:  # tensorflow-datasets wraps what its threads raise in many types.
        if manual_dir is not None:
            raise
        raise no_download(error) from error


def probe(url: str) -> None:
    """Reads a file's first byte, because a download retries for minutes before it fails.

    The thread limits what a time-out does not: the look-up of the name, and trying address after
    address.

    Raises:
        OSError: The server does not answer, or not with the file.
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


def failure(
    what: str, looked_for: str, error: Exception, files: Iterable[str], instead: str
) -> OSError:
    """Returns an error that says how to go on without a download.

    Args:
        what: The data set.
        looked_for: The address.
        error: The reason.
        files: The names of its files.
        instead: What needs no download.
    """
    return OSError(
        f"{what} cannot be downloaded from {looked_for} ({error}). Ways out: connect "
        "this machine to the network (HTTPS_PROXY names a proxy); or copy "
        f"{', '.join(files)} into a folder and name it as --data_dir; or train on "
        f"{instead}"
    )
