"""TensorFlow Serving's REST API over a model (`http_rest_api_handler.cc`, `json_tensor.cc`)."""

import base64
import json
import re

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from werkzeug.wrappers import Request, Response

_PREDICT = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")
_DESCRIBE = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata)?")
_STATUS = {
    "NOT_FOUND": 404,
    "INTERNAL": 500,
    "DEADLINE_EXCEEDED": 504,
    "UNAVAILABLE": 503,
}


class Application:
    """A WSGI application that answers for one model."""

    def __init__(self, model):
        self._model = model

    def __call__(self, environ, start_response):
        request = Request(environ)
        try:
            body, status = self._answer(request), 200
        except tf.errors.OpError as error:
            code = _name(error.error_code)
            body = f'{{ "error": "{c_escape(error.message)}" }}'
            status = _STATUS.get(code, 400)
        return Response(body, status, content_type="application/json")(
            environ, start_response
        )

    def _answer(self, request):
        if request.method == "POST" and (found := _PREDICT.fullmatch(request.path)):
            return self._predict(*found.groups(), request.get_data())
        if request.method == "GET" and (found := _DESCRIBE.fullmatch(request.path)):
            return self._describe(*found.groups())
        raise invalid(f"Malformed request: {request.method} {request.path}")

    def _predict(self, name, version, body):
        try:
            request = json.loads(body)
        except ValueError as error:
            raise invalid(f"JSON Parse error: {error}") from error
        self._model.check(name, version and int(version))
        signature = request.get("signature_name", "serving_default")
        if signature not in self._model.metadata.signature_def:
            raise invalid(
                f'Serving signature name: "{signature}" not found in signature def'
            )
        infos = self._model.metadata.signature_def[signature].inputs
        if "instances" in request:
            outputs = self._model.predict(
                signature, from_rows(request["instances"], infos)
            )
            return json.dumps({"predictions": to_rows(outputs)})
        if "inputs" not in request:
            raise invalid("Missing 'inputs' or 'instances' key")
        outputs = self._model.predict(signature, from_columns(request["inputs"], infos))
        columns = {name: to_json(name, value) for name, value in outputs.items()}
        return json.dumps(
            {"outputs": columns if len(columns) > 1 else columns.popitem()[1]}
        )

    def _describe(self, name, version, metadata):
        self._model.check(name, version and int(version))
        version = str(self._model.version)
        if not metadata:
            status = {"error_code": "OK", "error_message": ""}
            state = {"version": version, "state": "AVAILABLE", "status": status}
            return json.dumps({"model_version_status": [state]})
        signatures = json_format.MessageToDict(
            self._model.metadata,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        spec = {"name": self._model.name, "signature_name": "", "version": version}
        return json.dumps(
            {"model_spec": spec, "metadata": {"signature_def": signatures}}
        )


def invalid(message):
    return tf.errors.InvalidArgumentError(None, None, message)


def _name(code):
    names = {
        value: name for name, value in vars(tf.errors).items() if isinstance(value, int)
    }
    return names[code]


def from_rows(rows, infos):
    """Returns arrays by name from a list with an object, or a value, for each row."""
    if not isinstance(rows, list) or not rows:
        raise invalid("No values in 'instances' array")
    if not isinstance(rows[0], dict) or {*rows[0]} == {"b64"}:
        if len(infos) > 1:
            raise invalid("instances is a plain list, but expecting list of objects")
        rows = [{name: row} for row in rows for name in infos]
    for index, row in enumerate(rows):
        if {*row} != {*infos}:
            keys = ",".join(sorted(infos))
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: "
                f"{json.dumps(row)} keys must be equal to: {keys}"
            )
    return {name: from_json([row[name] for row in rows], infos[name]) for name in infos}


def from_columns(columns, infos):
    """Returns arrays by name from an object with a list for each input, or from the only list."""
    if not isinstance(columns, dict):
        if len(infos) > 1:
            raise invalid("inputs is a plain value/list, but expecting an object")
        columns = {name: columns for name in infos}
    for name in infos:
        if name not in columns:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: from_json(columns[name], info) for name, info in infos.items()}


def from_json(value, info):
    """Returns a list as an array of the dtype that a signature asks for."""
    dtype = tf.as_dtype(info.dtype)
    values, shape = [], _shape(value)
    _flatten(value, dtype, shape, values)
    return np.array(values, dtype.as_numpy_dtype).reshape(shape)


def _shape(value):
    if not isinstance(value, list):
        return []
    return [len(value), *(_shape(value[0]) if value else [])]


def _flatten(value, dtype, shape, values):
    if isinstance(value, list):
        if not shape or len(value) != shape[0]:
            raise invalid(f"Encountered list at unexpected size: {len(value)}")
        for each in value:
            _flatten(each, dtype, shape[1:], values)
    elif shape:
        raise invalid(f"JSON Value: {json.dumps(value)} found at incorrect level")
    else:
        values.append(_scalar(value, dtype))


def _scalar(value, dtype):
    if dtype == tf.string and isinstance(value, dict) and {*value} == {"b64"}:
        return base64.b64decode(value["b64"])
    if dtype == tf.string and isinstance(value, str):
        return value.encode()
    number = (int, float) if dtype.is_floating else int
    if dtype != tf.string and isinstance(value, number) and not isinstance(value, bool):
        return value
    raise invalid(
        f"JSON Value: {json.dumps(value)} is not of expected type: {dtype.name}"
    )


def to_rows(outputs):
    """Returns a list with an object for each row; with a value, if there is one output."""
    lists = {name: to_json(name, value) for name, value in outputs.items()}
    if len(lists) == 1:
        return lists.popitem()[1]
    return [
        dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)
    ]


def to_json(name, value):
    """Returns an array as lists. Strings are text, unless the output's name ends in `_bytes`."""
    if isinstance(value, np.ndarray):
        return [to_json(name, each) for each in value]
    if isinstance(value, bytes):
        encoded = {"b64": base64.b64encode(value).decode()}
        return encoded if name.endswith("_bytes") else value.decode()
    return _decimal(value) if isinstance(value, np.floating) else value.item()


def _decimal(value):
    """Returns a number of as few digits as read back as the same float32, six or nine."""
    short = float(f"{value:.6g}")
    return short if np.float32(short) == value else float(f"{value:.9g}")


def c_escape(text):
    """Returns a text as `absl::CEscape` does: a quotation mark in it makes no valid JSON."""
    marks = {10: r"\n", 13: r"\r", 9: r"\t", 34: r"\"", 39: r"\'", 92: r"\\"}
    return "".join(
        marks.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
        for byte in text.encode()
    )
