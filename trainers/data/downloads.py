"""Downloads: where they are kept; those that cannot succeed, found out soon, told with ways out."""

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
    """Returns the folder of downloads and of what is made from them: the default for None."""
    return epath.Path(DEFAULT_CACHE_DIR if cache_dir is None else cache_dir).expanduser()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps tensorflow-datasets' account of every file it touches out of the run's lines."""
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
    """Has tensorflow-datasets download a data set and prepare it, unless that has been done.

    Args:
        builder: The data set's builder, which knows the checksums of its files.
        url: One of the files that it downloads.
        no_download: Makes the error of a download that failed, from what it failed with.
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


def failure(
    what: str, looked_for: str, error: Exception, files: Iterable[str], instead: str
) -> OSError:
    """Returns the error that says what to do without a download.

    Args:
        what: What could not be downloaded.
        looked_for: Where it was looked for.
        error: Why it could not.
        files: The names of its files.
        instead: What there is to train on without a download.
    """
    return OSError(
        f"{what} cannot be downloaded from {looked_for} ({error}). Ways out: connect "
        "this machine to the network (HTTPS_PROXY names a proxy); or copy "
        f"{', '.join(files)} into a folder and name it as --data_dir; or train on "
        f"{instead}"
    )
