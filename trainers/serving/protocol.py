"""The messages of TensorFlow Serving's `PredictionService`, and tensors in them as arrays.

tensorflow-serving-api has the same messages, and imports TensorFlow, which takes seconds. Here are
the fields that a client needs, with the numbers of TensorFlow's and TensorFlow Serving's sources
(tensor.proto, meta_graph.proto, predict.proto, get_model_metadata.proto); a message skips others.
"""

from typing import Any

import numpy as np
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_PACKAGE = "trellis.client"  # TensorFlow, in the same process, has its own
_Field = descriptor_pb2.FieldDescriptorProto
_ANY = "google.protobuf.Any"
_KINDS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}
# The number of each dtype, its name in NumPy, and the field of its values.
_DTYPES = {
    "DT_FLOAT": (1, "float32", "float_val"),
    "DT_DOUBLE": (2, "float64", "double_val"),
    "DT_INT32": (3, "int32", "int_val"),
    "DT_UINT8": (4, "uint8", "int_val"),
    "DT_INT16": (5, "int16", "int_val"),
    "DT_INT8": (6, "int8", "int_val"),
    "DT_STRING": (7, "string", "string_val"),
    "DT_INT64": (9, "int64", "int64_val"),
    "DT_BOOL": (10, "bool", "bool_val"),
    "DT_UINT16": (17, "uint16", "int_val"),
    "DT_UINT32": (22, "uint32", "uint32_val"),
    "DT_UINT64": (23, "uint64", "uint64_val"),
}
# The fields of each message: their numbers and kinds; * is before repeated ones, and a map has
# strings for keys.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Dim": {"size": (1, "int64"), "name": (2, "string")},
    "TensorShapeProto": {"dim": (2, "*Dim"), "unknown_rank": (3, "bool")},
    "TensorProto": {
        "dtype": (1, "DataType"),
        "tensor_shape": (2, "TensorShapeProto"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "*float"),
        "double_val": (6, "*double"),
        "int_val": (7, "*int32"),
        "string_val": (8, "*bytes"),
        "int64_val": (10, "*int64"),
        "bool_val": (11, "*bool"),
        "uint32_val": (16, "*uint32"),
        "uint64_val": (17, "*uint64"),
    },
    "TensorInfo": {
        "name": (1, "string"),
        "dtype": (2, "DataType"),
        "tensor_shape": (3, "TensorShapeProto"),
    },
    "SignatureDef": {
        "inputs": (1, "map TensorInfo"),
        "outputs": (2, "map TensorInfo"),
        "method_name": (3, "string"),
    },
    "SignatureDefMap": {"signature_def": (1, "map SignatureDef")},
    "ModelSpec": {"name": (1, "string"), "signature_name": (3, "string")},
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "map TensorProto"),
    },
    "PredictResponse": {"outputs": (1, "map TensorProto")},
    "GetModelMetadataRequest": {
        "model_spec": (1, "ModelSpec"),
        "metadata_field": (2, "*string"),
    },
    "GetModelMetadataResponse": {"metadata": (2, f"map {_ANY}")},
}


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    """Adds a field to the description of a message."""
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind.startswith("map "):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, kind.removeprefix("map "))
        kind = f"*{message.name}.{entry.name}"
    if kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
        kind = kind.removeprefix("*")
    if kind in _KINDS:
        field.type = _KINDS[kind]
        return
    field.type = _Field.TYPE_ENUM if kind == "DataType" else _Field.TYPE_MESSAGE
    field.type_name = f".{kind}" if kind == _ANY else f".{_PACKAGE}.{kind}"


def _classes() -> dict[str, Any]:
    """Returns the classes of the messages by name."""
    file = descriptor_pb2.FileDescriptorProto(name="client.proto", package=_PACKAGE)
    file.syntax = "proto3"
    file.dependency.append(any_pb2.DESCRIPTOR.name)
    types = file.enum_type.add(name="DataType")
    types.value.add(name="DT_INVALID", number=0)
    for name, (number, *_) in _DTYPES.items():
        types.value.add(name=name, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        )
        for name in _MESSAGES
    }


_BY_NAME = _classes()
TensorProto = _BY_NAME["TensorProto"]
SignatureDefMap = _BY_NAME["SignatureDefMap"]
PredictRequest = _BY_NAME["PredictRequest"]
PredictResponse = _BY_NAME["PredictResponse"]
GetModelMetadataRequest = _BY_NAME["GetModelMetadataRequest"]
GetModelMetadataResponse = _BY_NAME["GetModelMetadataResponse"]

_BY_NUMBER = {number: (name, field) for number, name, field in _DTYPES.values()}
_NUMBERS = {name: number for number, name, _ in _DTYPES.values()}


def dtype_name(number: int) -> str:
    """Returns the name of a dtype, such as float32 and string.

    Raises:
        TypeError: there is none of this number that a client reads.
    """
    if number not in _BY_NUMBER:
        raise TypeError(f"a tensor of the dtype {number}")
    return _BY_NUMBER[number][0]


def numpy_dtype(name: str) -> Any:
    """Returns the dtype of arrays for tensors of a dtype; strings are objects."""
    return object if name == "string" else np.dtype(name)


def name_of_dtype(array: np.ndarray) -> str:
    """Returns the name of the dtype of an array."""
    return "string" if array.dtype == object else array.dtype.name


def to_proto(array: np.ndarray) -> Any:
    """Returns an array as a tensor; strings are objects, `str` or `bytes`."""
    proto = TensorProto(dtype=_NUMBERS[name_of_dtype(array)])
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if array.dtype != object:
        proto.tensor_content = array.tobytes()
        return proto
    for value in array.flat:
        proto.string_val.append(value.encode() if isinstance(value, str) else value)
    return proto


def sizes(shape: Any) -> tuple[int | None, ...] | None:
    """Returns the sizes of a shape, None where any will do; None: the rank is unknown.

    Raises:
        ValueError: a size is below -1.
    """
    if shape.unknown_rank:
        return None
    numbers = [dim.size for dim in shape.dim]
    if min(numbers, default=0) < -1:
        raise ValueError(f"a tensor of shape {numbers}")
    return tuple(None if number == -1 else number for number in numbers)


def from_proto(proto: Any) -> np.ndarray:
    """Returns a tensor as an array; texts are bytes.

    Raises:
        TypeError, ValueError: the values are none of the dtype, or do not fill the shape.
    """
    name, field = _BY_NUMBER[_known(proto.dtype)]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, numpy_dtype(name)).reshape(shape)
    values = np.array(list(getattr(proto, field)), numpy_dtype(name))
    count = int(np.prod(shape, dtype=np.int64))
    if len(values) > count or (count and not len(values)):
        raise ValueError(f"{len(values)} values in a tensor of shape {shape}")
    # The last value fills the rest.
    filled = np.empty(count, values.dtype)
    filled[: len(values)] = values
    filled[len(values) :] = values[-1:]
    return filled.reshape(shape)


def _known(number: int) -> int:
    dtype_name(number)
    return number
