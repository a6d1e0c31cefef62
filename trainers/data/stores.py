"""Paths in object stores, `s3://BUCKET/NAME` and `gs://BUCKET/NAME`, by fsspec.

An object is written by one request, so that it appears whole or not at all. A store has no folders:
a folder is there when an object's name begins with its name.
"""

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import fsspec
from etils import epath

SCHEMES = {"s3": "s3fs", "gs": "gcsfs"}  # with the packages that read them
_EXTRAS = {"s3": "s3", "gs": "gcs"}


class StoreError(OSError):
    """A store did not do what was asked; the message has the path and the store's answer."""


def is_store(path: epath.PathLike) -> bool:
    """Returns whether a path is in an object store."""
    return os.fspath(path).startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def as_path(path: epath.PathLike) -> epath.Path:
    """Returns a path, without the checks of `to_path`."""
    if isinstance(path, str) and is_store(path):
        return StorePath(path)
    return epath.Path(path)


def to_path(path: epath.PathLike) -> epath.Path:
    """Returns a path of this machine, with `~` expanded, or of an object store.

    Raises:
        ValueError: the path has another scheme, or names no bucket.
        ImportError: the package for a store is not installed.
    """
    text = os.fspath(path)
    scheme, _, name = text.partition("://")
    # One slash would make a folder of this machine of the store's name.
    if "://" not in text and text.partition(":/")[0] not in SCHEMES:
        return epath.Path(path).expanduser()
    if scheme not in SCHEMES or not name.strip("/"):
        known = " or ".join(f"{prefix}://BUCKET/NAME" for prefix in SCHEMES)
        raise ValueError(
            f"a path must be one of this machine, or {known}. Received: {text}"
        )
    store_path = StorePath(text)
    store_path.check_package()
    return store_path


# Without a scheme here, other packages' paths stay what they are.
@epath.register_path_cls
class StorePath(epath.Path):
    """A path in an object store.

    Every method that asks the store raises `FileNotFoundError`, `PermissionError` or `StoreError`.
    fsspec repeats a request that a busy store or a broken connection has failed.

    The paths of universal_pathlib would not do: an error in a `with` statement leaves what was
    half written in place of the object, and they do not see what other processes write.
    """

    def __str__(self) -> str:
        # The standard library's path takes `//` for `/`.
        return super().__str__().replace(":/", "://", 1)

    def check_package(self) -> None:
        """Raises ImportError if the package for this store is not installed."""
        scheme = self.parts[0].rstrip(":")
        try:
            _ = self._store
            # They tell where they found the credentials, and print what they raise.
            for name in ("aiobotocore", "botocore", "gcsfs", "s3fs"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
        except ImportError as error:
            raise ImportError(
                f"{scheme}:// needs {SCHEMES[scheme]}: pip install "
                f"'keras_trellis[{_EXTRAS[scheme]}]'. Received: {self}"
            ) from error

    @property
    def _store(self) -> Any:
        # Without a cache of listings, since other processes write too.
        scheme = self.parts[0].rstrip(":")
        return fsspec.filesystem(scheme, use_listings_cache=False)

    def exists(self) -> bool:
        """Returns whether there is an object, or a folder, of this name."""
        return self._kind() is not None

    def is_dir(self) -> bool:
        """Returns whether names of objects begin with this one as a folder."""
        return self._kind() == "directory"

    def is_file(self) -> bool:
        """Returns whether there is an object of this name."""
        return self._kind() == "file"

    def _kind(self) -> str | None:
        """Returns "file", "directory", or None if nothing is there."""
        try:
            with self._asked():
                return self._store.info(str(self))["type"]
        except FileNotFoundError:
            return None

    def iterdir(self) -> Iterator["StorePath"]:
        """Yields what is in the folder; nothing if no object is in it."""
        objects: Sequence[str] = ()
        with contextlib.suppress(FileNotFoundError), self._asked():
            objects = self._store.ls(str(self), detail=False)
        # Some programs mark a folder by an object of its name.
        itself = "/".join(self.parts[1:])
        names = {name.rstrip("/") for name in objects} - {itself}
        yield from (self._from_name(name) for name in sorted(names))

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """Yields what matches a pattern."""
        with self._asked():
            names = self._store.glob(str(self / pattern))
        yield from (self._from_name(name) for name in sorted(names))

    def read_bytes(self) -> bytes:
        """Returns the content of the object."""
        with self._asked():
            return self._store.cat_file(str(self))

    def write_bytes(self, data: bytes) -> int:
        """Writes the object whole or not at all."""
        with self._asked():
            self._store.pipe_file(str(self), data)
        return len(data)

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        """Opens the object.

        Reading first fetches the whole object to this machine's temporary folder. Writing needs a
        `with` statement: at its end what was written reaches the store, unless an error ends it.

        Raises:
            ValueError: the mode appends, which no store does.
        """
        if mode.strip("bt") not in ("r", "w"):
            raise ValueError(f"`mode` must be of r or w. Received: mode={mode!r}")
        if "r" in mode:
            return self._fetched(mode)
        return self._sent(mode)

    def _fetched(self, mode: str) -> IO[Any]:
        with tempfile.NamedTemporaryFile() as local:
            with self._asked():
                self._store.get_file(str(self), local.name)
            return open(local.name, mode, encoding=None if "b" in mode else "utf-8")

    @contextlib.contextmanager
    def _sent(self, mode: str) -> Iterator[IO[Any]]:
        content = io.BytesIO()
        file = content if "b" in mode else io.TextIOWrapper(content, "utf-8")
        yield file
        file.flush()
        self.write_bytes(content.getvalue())

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Does nothing: a store has no folders, and a bucket is made by its owner."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the object."""
        self._remove(missing_ok, lambda: self._store.rm_file(str(self)))

    def rmtree(self, missing_ok: bool = False) -> None:
        """Removes all objects whose names begin with this one as a folder."""
        self._remove(missing_ok, lambda: self._store.rm(str(self), recursive=True))

    def _remove(self, missing_ok: bool, remove: Callable[[], Any]) -> None:
        passing = (FileNotFoundError,) if missing_ok else ()
        with contextlib.suppress(*passing), self._asked():
            remove()

    def rename(self, target: epath.PathLike) -> "StorePath":
        """Copies the object to another name in the store, and then removes it."""
        with self._asked():
            self._store.cp_file(str(self), os.fspath(target))
            self._store.rm_file(str(self))
        return type(self)(target)

    replace = rename

    @property
    def parents(self) -> Sequence["StorePath"]:
        """The folders that this path is in, the bucket last."""
        return [parent for parent in super().parents if len(parent.parts) > 1]

    def expanduser(self) -> "StorePath":
        """Returns the path, which knows no users."""
        return self

    def resolve(self, strict: bool = False) -> "StorePath":
        """Returns the path, which is absolute."""
        return self

    def _from_name(self, name: str) -> "StorePath":
        return type(self)(f"{self.parts[0]}//{name}")

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Turns the errors of the clients of stores into OSError with the path."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self} does not exist ({one_line(error)})"
            ) from error
        except Exception as error:  # of fsspec, botocore, aiohttp, google.auth
            if isinstance(error, PermissionError) or "Forbidden" in str(error):
                raise PermissionError(
                    f"the store refuses {self} ({one_line(error)}); check the credentials"
                ) from error
            raise StoreError(f"the store fails at {self}: {one_line(error)}") from error


class Mirror:
    """A folder of this machine that stands for one of a store, for programs that know no store.

    Attributes:
        folder: the folder; it has the files of the other one.
    """

    def __init__(self, path: epath.Path):
        self._path = path
        self._temporary = tempfile.TemporaryDirectory()
        self.folder = epath.Path(self._temporary.name)
        for file in path.iterdir():
            if not file.is_dir():
                (self.folder / file.name).write_bytes(file.read_bytes())
        self._sent = self._states()

    def send(self) -> None:
        """Writes to the store what has changed here, and removes what is gone."""
        states = self._states()
        for name in sorted(states):
            if states[name] != self._sent.get(name):
                (self._path / name).write_bytes((self.folder / name).read_bytes())
                self._sent[name] = states[name]
        for name in sorted(self._sent.keys() - states.keys()):
            (self._path / name).unlink(missing_ok=True)
            del self._sent[name]

    def _states(self) -> dict[str, tuple[int, int]]:
        """Returns the size and the time of the last change of each file."""
        states = {file.name: os.stat(file) for file in self.folder.iterdir()}
        return {
            name: (state.st_size, state.st_mtime_ns) for name, state in states.items()
        }


@contextlib.contextmanager
def on_this_machine(path: epath.Path) -> Iterator[epath.Path]:
    """Yields a folder for a program that knows no store: the path itself, or an empty one.

    At the end of the context the files of the empty one are in the store.
    """
    if not is_store(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield epath.Path(folder)
        send(epath.Path(folder), path)


def send(folder: epath.Path, path: epath.Path, last: str = "") -> None:
    """Writes all files of a folder of this machine to a store.

    Args:
        folder: the folder; its own folders count.
        path: where to write.
        last: the name of a file to write after all others.
    """
    inside = [
        (os.path.join(root, name), name)
        for root, _, names in os.walk(folder)
        for name in names
    ]
    for local, _ in sorted(inside, key=lambda item: (item[1] == last, item[0])):
        content = epath.Path(local).read_bytes()
        (path / os.path.relpath(local, folder)).write_bytes(content)


def one_line(error: Exception) -> str:
    """Returns an error's message in one line, or its type's name."""
    return " ".join(str(error).split()) or type(error).__name__
