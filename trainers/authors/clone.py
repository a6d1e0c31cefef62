"""The authors' code, imported from a clone and made to run without a GPU."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

# Changes of their source. The network puts its zeros on a GPU by name. The split softmax adds
# masks, which today's torch makes booleans, and it always sums in float32.
_CHANGES = {
    "trellisnet": {".cuda()": ""},
    "word_WT103/splitcross": {
        "partial_mask = targets >= self.splits[idx]": (
            "partial_mask = (targets >= self.splits[idx]).long()"
        ),
        "entropy.float().sum()": "entropy.sum()",
    },
    # As it is, under a name of its own: the model of texts is called `model` too.
    "seq_MNIST_CIFAR/model": {},
}


def check(clone: str | None, name: str) -> Path:
    """Returns the authors' folder `TrellisNet`; raises ValueError as `load`."""
    if clone is None:
        raise ValueError(
            "it needs --reference_dir=DIR, a clone of https://github.com/locuslab/trellisnet"
        )
    folder = Path(clone).expanduser() / "TrellisNet"
    if not (folder / f"{name}.py").is_file():
        raise ValueError(
            "--reference_dir must be a clone of https://github.com/locuslab/trellisnet. "
            f"Received: --reference_dir={clone}, which has no TrellisNet/{name}.py"
        )
    return folder


def load(clone: str | None, name: str) -> Any:
    """Returns a module of the authors' folder `TrellisNet`, such as "model".

    Raises:
        ValueError: there is no clone, or it is not one of their repository.
    """
    folder = check(clone, name)
    sys.path.insert(0, str(folder))  # they import each other
    _load_changed(folder, "trellisnet")
    if name in _CHANGES:
        return _load_changed(folder, name)
    return importlib.import_module(name)


def _load_changed(folder: Path, name: str) -> types.ModuleType:
    path = folder / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    for old, new in _CHANGES[name].items():
        if old not in source:
            raise ValueError(
                f"{path} is not the authors' version of it: it has no {old!r}"
            )
        source = source.replace(old, new)
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, path, "exec"), vars(module))
    return module
