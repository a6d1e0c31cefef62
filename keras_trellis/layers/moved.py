"""Old import paths of layers, which work for one release.

Keras writes the path of a layer's module into files too, and some versions of it import that path
to find the layer.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PATHS = {
    "keras_trellis.base": "keras_trellis.layers.sequence",
    "keras_trellis.equilibrium": "keras_trellis.layers.equilibrium",
    "keras_trellis.layer": "keras_trellis.layers.trellis",
    "keras_trellis.recurrent.layer": "keras_trellis.layers.recurrent",
}
"""The old path of each module, and its new one."""


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of `PATHS`; each has the names of the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in PATHS else None

    def exec_module(self, module: ModuleType) -> None:
        path = PATHS[module.__name__]
        warnings.warn(
            f"{module.__name__} works for one release more. Import {path}",
            DeprecationWarning,
            stacklevel=2,
        )
        own = dict(vars(module))
        vars(module).update(vars(importlib.import_module(path)) | own)


def install() -> None:
    """Lets imports find the old paths, after all others."""
    sys.meta_path.append(_Finder())
