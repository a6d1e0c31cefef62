"""The weights in a file that torch saved.

torch reads the file as weights alone and runs no code from it.
"""

import importlib
import io
import re
import warnings
from typing import Any

import numpy as np
from etils import epath

_CODE = re.compile(r"GLOBAL (\w+\.[\w.]+)")
_REASON = re.compile(r"WeightsUnpickler error:\s*(.+)")


def torch() -> Any:
    """Returns the module torch; raises ValueError if it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(
            f"it needs torch: pip install '.[verify]' ({error})"
        ) from error


def read_state_dict(path: epath.PathLike) -> dict[str, np.ndarray]:
    """Reads the tensors of a file that `torch.save` wrote of a state dict.

    Args:
        path: the file, in either of torch's formats.

    Returns:
        name -> array, in the file's order; bfloat16 as float32, which holds it exactly.

    Raises:
        ValueError: torch is not installed; or the file is damaged, is not torch's, or holds
            anything but tensors by name. The message names code in it, which does not run.
        OSError: the file cannot be read.
    """
    module, path = torch(), epath.Path(path)
    content = path.read_bytes()
    try:
        with warnings.catch_warnings():
            # Torch warns of pickles that it then refuses.
            warnings.simplefilter("ignore")
            value = module.load(
                io.BytesIO(content), map_location="cpu", weights_only=True
            )
        return _arrays(value, module)
    except Exception as error:  # damage can cause any error
        raise ValueError(
            f"{path} must be a state dict that torch saved, whole: `torch.save(model.state_dict(), "
            f"file)`, or what the authors' `save_weights` wrote. It cannot be read: "
            f"{_reason(content, error)}"
        ) from error


def _arrays(value: Any, module: Any) -> dict[str, np.ndarray]:
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}; expected a mapping")
    arrays = {}
    for name, tensor in value.items():
        if not isinstance(name, str):
            raise ValueError("it has a mapping whose keys are not all strings")
        if not isinstance(tensor, module.Tensor) or not tensor.is_floating_point():
            raise ValueError(f"{name[:80]!r} is not a tensor of floating-point numbers")
        is_known = tensor.dtype != module.bfloat16  # to NumPy
        arrays[name] = (tensor if is_known else tensor.float()).detach().numpy()
    return arrays


def _reason(content: bytes, error: Exception) -> str:
    """Returns why a file cannot be read; torch's own messages advise to run its code."""
    message = str(error)
    if not content:
        return "it is empty"
    if match := _CODE.search(message):
        return f"it refers to {match[1]!r}, which is not run (docs/notes/authors.md has advice)"
    match = _REASON.search(message)
    return match[1] if match else (message.splitlines() or [type(error).__name__])[0]
