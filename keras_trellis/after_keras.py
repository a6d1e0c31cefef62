"""Something to do once Keras is imported, without importing it.

Keras finds a class of a file by its registered name, so that whoever has imported this package and
loads a file must have imported the class. Python runs this package's `__init__` for each of its
modules: had it imported Keras, a server, which needs none, would start seconds later and keep the
memory, as Keras is installed with the package. So the classes are imported after Keras, whoever
imports that; Python has no hook for it but the loader.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_KERAS = "keras"
# What imports Keras and cannot be used before its own import has ended; so do our own modules.
_WATCHED = (_KERAS, "tensorflow")
_BACKENDS = ("tensorflow", "jax", "torch")


def run(action: Callable[[], None]) -> None:
    """Does something now, if Keras is imported already, or else once it is.

    That is at the end of the outermost import of Keras, of TensorFlow or of this package. An
    ImportError of it ends no such import: who needs what could not be imported gets the error when
    asking for it. Where Keras's backend is not installed, the error of importing Keras says what to
    install.
    """
    if _KERAS in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(action))


class _Finder(MetaPathFinder):
    """Finds modules as they are found without it, and knows when they have been imported."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._under_way: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        watched = fullname.partition(".")[0] == __package__ or fullname in _WATCHED
        if not watched or fullname in self._under_way:
            return None
        self._under_way.append(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._under_way.remove(fullname)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader, fullname)
        return spec

    def _watch(self, loader: object, name: str) -> None:
        execute = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            self._under_way.append(name)
            try:
                execute(module)
            except ModuleNotFoundError as error:
                if name != _KERAS or error.name not in _BACKENDS:
                    raise
                raise ModuleNotFoundError(
                    f"Keras's backend is {error.name!r}, which is not installed: pip install "
                    f"'keras_trellis[{error.name}]', or set KERAS_BACKEND to an installed one of "
                    f"{', '.join(_BACKENDS)}.",
                    name=error.name,
                ) from None
            finally:
                self._under_way.remove(name)
            self._act()

        # The loader stays what it is: others ask it for files and for source code.
        setattr(loader, "exec_module", exec_module)  # noqa: B010

    def _act(self) -> None:
        if self._under_way or _KERAS not in sys.modules:
            return
        sys.meta_path.remove(self)
        try:
            self._action()
        except ImportError:
            pass
