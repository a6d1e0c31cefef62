"""The weights in a file that torch saved, read without torch, and without running what it says.

Such a file holds a pickle, and a pickle is a program: Python's own reader calls whatever function
it names. Here there is nothing to call. The few instructions that a saved state dict consists of
are interpreted as data, the few names that it refers to are compared with a list, and all others
are refused. A tensor is a view of its storage's numbers, which are the file's bytes or made of them
once, so that no size that a file only claims is ever allocated.

Torch writes two formats. Both are read: that of its first years (a row of pickles, then the bare
storages), which the released weights have, and the zip archive of today.
"""

import io
import math
import pickletools
import sys
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from etils import epath

_DTYPES: dict[str, np.dtype] = {
    "torch DoubleStorage": np.dtype("<f8"),
    "torch FloatStorage": np.dtype("<f4"),
    "torch HalfStorage": np.dtype("<f2"),
    "torch BFloat16Storage": np.dtype("<u2"),  # NumPy has none; see `_numbers`
}
_ORDERED_DICT = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"
_NAMES = {_ORDERED_DICT, _TENSOR, _PARAMETER, *_DTYPES}
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # what an old file begins with
_MAX_RANK = 32  # of an array of NumPy 1
# What reading raises; zipfile has RuntimeErrors for what torch does not write, such as encryption.
_UNREADABLE = (ValueError, OverflowError, EOFError, RuntimeError, zipfile.BadZipFile)


class _Name(NamedTuple):
    """What stands for a class or a function of `_NAMES`, which is never looked up."""

    name: str


class _Storage(NamedTuple):
    """The claim that `size` numbers stand under a key."""

    dtype: np.dtype
    key: str
    size: int


class _Tensor(NamedTuple):
    """A view of a storage; offset and strides count numbers."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_Buffers = dict[str, memoryview]  # the bytes of each storage
_Numbers = dict[str, np.ndarray]  # the numbers of each storage


def read_state_dict(path: epath.PathLike) -> dict[str, np.ndarray]:
    """Reads the tensors of a file that `torch.save` wrote of a state dict.

    Args:
        path: The file. Float64, float32, float16 and bfloat16 are read, from any device.

    Returns:
        name -> array, read-only, in the file's order. Arrays that were views of one storage, as
        tied weights are, share memory here too; bfloat16 comes as float32, which holds it exactly.

    Raises:
        ValueError: The file is cut short or damaged, none of torch's, or holds something else than
            a mapping from names to tensors: code above all, which is named and not run.
        OSError: The file cannot be read.
    """
    path = epath.Path(path)
    data = path.read_bytes()
    try:
        if not data:
            raise ValueError("it is empty")
        value, numbers = (_read_zip if data.startswith(b"PK") else _read_legacy)(data)
        return {name: _array(tensor, numbers) for name, tensor in _tensors(value).items()}
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} must be a state dict that torch saved, whole: `torch.save(model.state_dict(), "
            f"file)`, or what the authors' `save_weights` wrote. It cannot be read: {error}"
        ) from error


def _read_legacy(data: bytes) -> tuple[Any, _Numbers]:
    """Pickles of magic number, version, machine, value, storages' keys; then the storages."""
    stream = io.BytesIO(data)
    if _Pickle(stream).value != _MAGIC:
        raise ValueError("it does not begin with torch's magic number")
    if _Pickle(stream).value != _VERSION:
        raise ValueError(f"its version is not {_VERSION}, the only one that torch wrote")
    _Pickle(stream)
    pickle, keys = _Pickle(stream), _Pickle(stream).value
    buffers: _Buffers = {}
    for key in keys if isinstance(keys, list) else ():
        storage = pickle.storages.get(key) if isinstance(key, str) else None
        if storage is None:
            raise ValueError("it lists a storage that no tensor has")
        size = int.from_bytes(stream.read(8), "little")
        if size != storage.size:
            raise ValueError(f"storage {key} has {size} numbers; its tensors say {storage.size}")
        buffers[key] = _bytes(storage, memoryview(data)[stream.tell() :])
        stream.seek(len(buffers[key]), io.SEEK_CUR)
    return pickle.value, _complete(buffers, pickle.storages)


def _read_zip(data: bytes) -> tuple[Any, _Numbers]:
    """An archive of NAME/data.pkl, the value; NAME/byteorder; and each storage, NAME/data/KEY."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_members(archive.infolist(), len(data))
        names = set(archive.namelist())
        root = next((name[: -len("data.pkl")] for name in names if name.endswith("/data.pkl")), "")
        if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
            raise ValueError("it is of a big-endian machine; expected little-endian numbers")
        pickle = _Pickle(io.BytesIO(archive.read(f"{root}data.pkl") if root else b""))
        buffers = {
            key: _bytes(storage, memoryview(archive.read(name)))
            for key, storage in pickle.storages.items()
            if (name := f"{root}data/{key}") in names
        }
    return pickle.value, _complete(buffers, pickle.storages)


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuses an archive that unpacks to more bytes than it has."""
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it has compressed members, which torch does not write")
    if (claimed := sum(member.file_size for member in members)) > size:
        raise ValueError(f"its members claim {claimed} bytes, and it has {size}")


def _bytes(storage: _Storage, available: memoryview) -> memoryview:
    """Returns a storage's bytes, the first of those available."""
    count = storage.size * storage.dtype.itemsize
    if count > len(available):
        raise ValueError(
            f"it is cut short: storage {storage.key} takes {count} bytes, and there are "
            f"{len(available)}"
        )
    return available[:count]


def _complete(buffers: _Buffers, storages: Mapping[str, _Storage]) -> _Numbers:
    """Returns the numbers of all storages."""
    for key in storages:
        if key not in buffers:
            raise ValueError(f"it has no storage {key}, which a tensor is a view of")
    return {key: _numbers(storage, buffers[key]) for key, storage in storages.items()}


def _numbers(storage: _Storage, buffer: memoryview) -> np.ndarray:
    """Returns a storage's numbers, read-only: once, however many tensors are views of them."""
    numbers: np.ndarray = np.ndarray((storage.size,), storage.dtype, buffer)
    if storage.dtype.kind != "u":
        return numbers
    wide = numbers.astype("<u4")
    wide <<= 16  # bfloat16 is the upper half of a float32
    wide.flags.writeable = False
    return wide.view("<f4")


def _tensors(value: Any) -> dict[str, _Tensor]:
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}; expected a mapping")
    for name, tensor in value.items():
        if not isinstance(tensor, _Tensor):
            raise ValueError(f"{name[:80]!r} is a {type(tensor).__name__}; expected a tensor")
    return value


def _array(tensor: _Tensor, numbers: _Numbers) -> np.ndarray:
    storage = numbers[tensor.storage.key]
    size = storage.itemsize
    strides = [stride * size for stride in tensor.strides]
    return np.ndarray(tensor.shape, storage.dtype, storage, tensor.offset * size, strides)


class _Pickle:
    """The next pickle of a stream.

    Attributes:
        value: What it describes.
        storages: The storages of its tensors, by key.

    Raises:
        ValueError: It is cut short, or has an instruction or a name that no state dict has.
    """

    def __init__(self, stream: io.BytesIO):
        self.storages: dict[str, _Storage] = {}
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        try:
            for name, argument in _instructions(stream):
                self._run(name, argument)
            (self.value,) = self._stack
        except (IndexError, KeyError, AttributeError) as error:
            raise ValueError("it has a malformed pickle") from error

    def _run(self, opcode: str, argument: Any) -> None:
        """Interprets one of the instructions that torch writes state dicts with."""
        stack = self._stack
        match opcode:
            case "PROTO" | "STOP":
                pass
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(argument)
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode == "NEWTRUE")
            case "EMPTY_TUPLE":
                stack.append(())
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "MARK":
                self._marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(opcode[-1]))))
            case "APPEND" | "APPENDS":
                items = self._pop(1) if opcode == "APPEND" else self._since_mark()
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if opcode == "SETITEM" else self._since_mark()
                stack[-1].update(_pairs(items))
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "GLOBAL":
                stack.append(_named(argument))
            case "BINPERSID":
                stack.append(self._stored(*self._pop(1)))
            case "REDUCE":
                stack.append(_rebuilt(*self._pop(2)))
            case "BUILD":
                self._pop(1)  # attributes of what is below it, such as a state dict's `_metadata`
            case _:
                raise ValueError(f"its pickle has the instruction {opcode}; no state dict has")

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _stored(self, identity: Any) -> _Storage:
        match identity:
            case ("storage", _Name(name), str(key), str(), int(size), *view) if (
                name in _DTYPES and key.isdecimal() and size >= 0 and view in ([], [None])
            ):
                storage = _Storage(_DTYPES[name], key, size)
                if self.storages.setdefault(key, storage) != storage:
                    raise ValueError(f"it says two things of storage {key}")
                return storage
        raise ValueError("it has a malformed storage")


def _instructions(stream: io.BytesIO) -> Iterator[tuple[str, Any]]:
    """Yields the names and arguments of a pickle's instructions."""
    read = pickletools.genops(stream)
    while True:
        try:
            opcode, argument, _ = next(read)
        except StopIteration:
            return
        except ValueError as error:  # in words of Python's, such as "opcode" and "stringnl"
            raise ValueError(
                f"it is no pickle, or is cut short, at byte {stream.tell()}"
            ) from error
        yield opcode.name, argument


def _pairs(items: list[Any]) -> list[tuple[str, Any]]:
    names = items[::2]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("it has a mapping whose keys are not all strings")
    return list(zip(names, items[1::2], strict=True))


def _named(name: str) -> _Name:
    if name not in _NAMES:
        raise ValueError(
            f"it refers to {name[:80].replace(' ', '.')!r}, which is not run; read are "
            f"{', '.join(sorted(name.replace(' ', '.') for name in _NAMES))}{_advice(name)}"
        )
    return _Name(name)


def _advice(name: str) -> str:
    """Returns what to do where a name may be the class of a whole model, as `torch.save` takes."""
    if name.partition(" ")[0].partition(".")[0] in sys.stdlib_module_names:
        return ""
    return (
        ". If the file is a whole model, make a state dict of it in its code's folder: `model = "
        'torch.load(FILE, map_location="cpu", weights_only=False)`, `torch.save('
        "model.state_dict(), NEW_FILE)`; the first line runs whatever the file says, so only if "
        "you trust it"
    )


def _rebuilt(function: Any, arguments: Any) -> Any:
    """What torch's functions would make of these arguments."""
    match function, arguments:
        case _Name(name), () if name == _ORDERED_DICT:
            return {}
        case _Name(name), (_Tensor() as tensor, bool(), dict()) if name == _PARAMETER:
            return tensor
        case (
            _Name(name),
            (_Storage() as storage, int(offset), tuple(shape), tuple(strides), bool(), dict()),
        ) if name == _TENSOR:
            return _tensor(storage, offset, shape, strides)
    raise ValueError("it has a malformed tensor")


def _tensor(storage: _Storage, offset: int, shape: tuple, strides: tuple) -> _Tensor:
    """Returns a view that lies within its storage and has no more numbers than it."""
    if (
        len(shape) != len(strides)
        or len(shape) > _MAX_RANK
        # A bool is an int too, but no size.
        or not all(type(number) is int and number >= 0 for number in (offset, *shape, *strides))
    ):
        raise ValueError("it has a malformed tensor")
    count = math.prod(shape)
    if not count:
        offset = 0  # where nothing is, is of no meaning, and may lie anywhere
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if count > storage.size or (count and last >= storage.size):
        raise ValueError(
            f"it has a tensor of shape {shape}, offset {offset} and strides {strides} beyond "
            f"storage {storage.key}, which has {storage.size} numbers"
        )
    return _Tensor(storage, offset, shape, strides)
