"""Files as torch writes them, put together byte by byte: honest ones, and others."""

import io
import pickle
import struct
import zipfile

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
KINDS = {
    "<f8": "DoubleStorage",
    "<f4": "FloatStorage",
    "<f2": "HalfStorage",
    "<u2": "BFloat16Storage",  # the upper halves of float32
}
ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    """An instruction for an integer of any size."""
    return pickle.dumps(value, 2)[2:-1]


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key, size, kind="FloatStorage"):
    kind = b"ctorch\n" + kind.encode() + b"\n"
    return b"(" + text("storage") + kind + text(key) + text("cpu") + number(size) + b"tQ"


def tensor(storage, offset, shape, strides):
    """The instructions that rebuild a tensor."""
    view = number(offset) + numbers(shape) + numbers(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + view + b"\x89" + ORDERED_DICT + b"tR"


def mapping(items):
    """A pickle of an ordered dict: name -> instructions for the value."""
    body = b"".join(text(name) + value for name, value in items.items())
    return b"\x80\x02" + ORDERED_DICT + b"(" + body + b"u."


def views(arrays):
    """Returns the pickle of views of arrays, name -> (array, view), and each storage's array."""
    items, bases = {}, {}
    for name, (base, view) in arrays.items():
        key = str(id(base))
        bases[key] = base
        offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        strides = [stride // base.itemsize for stride in view.strides]
        place = storage(key, base.size, KINDS[base.dtype.str])
        items[name] = tensor(place, offset // base.itemsize, view.shape, strides)
    return mapping(items), bases


def legacy(value, bases):
    """A file of torch's first format: the pickle of its value, and its storages, key -> array."""
    head = [pickle.dumps(part, 2) for part in (MAGIC, 1001, {"little_endian": True})]
    keys = pickle.dumps(sorted(bases), 2)
    bodies = [struct.pack("<q", bases[key].size) + bases[key].tobytes() for key in sorted(bases)]
    return b"".join([*head, value, keys, *bodies])


def zipped(value, bases, *, byteorder="little", **arguments):
    """A file of torch's present format."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **arguments) as archive:
        archive.writestr("weights/data.pkl", value)
        archive.writestr("weights/byteorder", byteorder)
        for key, base in bases.items():
            archive.writestr(f"weights/data/{key}", base.tobytes())
    return file.getvalue()


def state_dict(arrays):
    """A file of contiguous arrays, name -> array."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return legacy(*views({name: (array, array) for name, array in arrays.items()}))
