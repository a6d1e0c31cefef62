"""A model server on loopback that speaks TensorFlow Serving's protocols, for tests.

It serves what an export wrote, by `tf.saved_model.load`, through the gRPC `PredictionService` and
the REST API. What it answers, errors included, is what TensorFlow Serving's sources answer, in
their folder `tensorflow_serving`: `servables/tensorflow/predict_util.cc` (checks of a request),
`batching/batching_session.cc` and `batching_util.cc` (merged requests),
`model_servers/http_rest_api_handler.cc` and `util/json_tensor.cc` (REST).
"""

import contextlib
import copy
import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from werkzeug import serving

from tests.serving import batching, rest

_DEFAULT = "serving_default"
# `Tensor::AsProtoField`, which the server fills its answers by: values, not the tensor's bytes.
_FIELDS = {
    "bool": "bool_val",
    "float32": "float_val",
    "int32": "int_val",
    "int64": "int64_val",
    "object": "string_val",
}


class Model:
    """The newest version of a served model.

    Args:
        folder: the model's folder, of which the name is the model's.
    """

    def __init__(self, folder):
        self.name = Path(folder).name
        names = (each.name for each in Path(folder).iterdir())
        self.version = max(
            int(name) for name in names if name.isascii() and name.isdecimal()
        )
        self._loaded = tf.saved_model.load(str(Path(folder) / str(self.version)))
        self.metadata = get_model_metadata_pb2.SignatureDefMap()
        for name, function in self._loaded.signatures.items():
            _describe(self.metadata.signature_def[name], function)
        self._run = self._call

    def merging(self, merge):
        """Returns this model as a server has it that merges requests; see `batching.Merge`."""
        model = copy.copy(self)
        model._run = batching.Batcher(self._call, merge)
        return model

    def check(self, name, version=None):
        """Raises NotFoundError where another model or another version is asked for."""
        if name != self.name or version not in (None, self.version):
            asked = (
                f"Latest({name})" if version is None else f"Specific({name}, {version})"
            )
            raise tf.errors.NotFoundError(
                None, None, f"Servable not found for request: {asked}"
            )

    def predict(self, signature, inputs):
        """Returns what a signature answers, arrays by name."""
        signature = signature or _DEFAULT
        if signature not in self.metadata.signature_def:
            raise tf.errors.FailedPreconditionError(
                None, None, f'Serving signature key "{signature}" not found.'
            )
        _check_inputs(self.metadata.signature_def[signature].inputs, inputs)
        return self._run(signature, inputs)

    def _call(self, signature, inputs):
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self._loaded.signatures[signature](**tensors)
        return {name: value.numpy() for name, value in outputs.items()}


def _describe(signature, function):
    signature.method_name = "tensorflow/serving/predict"
    _, inputs = function.structured_input_signature
    outputs = function.structured_outputs
    for infos, specs in ((signature.inputs, inputs), (signature.outputs, outputs)):
        for name, spec in specs.items():
            infos[name].name = f"{name}:0"
            infos[name].dtype = spec.dtype.as_datatype_enum
            infos[name].tensor_shape.CopyFrom(spec.shape.as_proto())


def _check_inputs(infos, inputs):
    if {*infos} != {*inputs}:
        sent, missing = ({*inputs} - {*infos}), ({*infos} - {*inputs})
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"input size does not match signature: {len(inputs)}!={len(infos)} "
            f"len({{{','.join(sorted(inputs))}}}) != len({{{','.join(sorted(infos))}}}). "
            f"Sent extra: {{{','.join(sorted(sent))}}}. "
            f"Missing but required: {{{','.join(sorted(missing))}}}.",
        )
    for name, value in inputs.items():
        dtype, expected = tf.as_dtype(value.dtype), tf.as_dtype(infos[name].dtype)
        if dtype != expected:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"Expects arg[0] to be {expected.name} but {dtype.name} is provided",
            )


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, model):
        self._model = model

    def Predict(self, request, context):  # noqa: N802
        with _told(context):
            spec = request.model_spec
            self._model.check(spec.name, _version(spec))
            inputs = {
                name: tf.make_ndarray(proto) for name, proto in request.inputs.items()
            }
            outputs = self._model.predict(spec.signature_name, inputs)
            response = predict_pb2.PredictResponse()
            for name, value in outputs.items():
                response.outputs[name].CopyFrom(_as_proto_field(value))
            return response

    def GetModelMetadata(self, request, context):  # noqa: N802
        with _told(context):
            self._model.check(request.model_spec.name, _version(request.model_spec))
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = self._model.name
            response.model_spec.version.value = self._model.version
            response.metadata["signature_def"].Pack(self._model.metadata)
            return response


def _version(spec):
    return spec.version.value if spec.HasField("version") else None


def _as_proto_field(value):
    proto = tf.make_tensor_proto(np.zeros(0, value.dtype), shape=[0])
    proto.ClearField("tensor_shape")
    proto.tensor_shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
    getattr(proto, _FIELDS[value.dtype.name]).extend(value.ravel().tolist())
    return proto


@contextlib.contextmanager
def _told(context):
    """Ends a call with the status that an error of TensorFlow's has."""
    try:
        yield
    except tf.errors.OpError as error:
        code = next(
            each for each in grpc.StatusCode if each.value[0] == error.error_code
        )
        context.abort(code, error.message)


class _Silent(serving.WSGIRequestHandler):
    def log(self, type, message, *args):
        """Leaves the terminal to the tests."""


@contextlib.contextmanager
def serve(model):
    """Serves a model for as long as the context lasts.

    Args:
        model: a `Model`, or what has its methods.

    Yields:
        the addresses, HOST:PORT, of gRPC and of REST.
    """
    with grpc_server(_PredictionService(model)) as address:
        web = serving.make_server(
            "127.0.0.1",
            0,
            rest.Application(model),
            threaded=True,
            request_handler=_Silent,
        )
        thread = threading.Thread(target=web.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield address, f"127.0.0.1:{web.port}"
        finally:
            web.shutdown()
            thread.join()
            web.server_close()


@contextlib.contextmanager
def grpc_server(service):
    """Runs a `PredictionService`; yields its address."""
    # As TensorFlow Serving sets it.
    options = [("grpc.max_receive_message_length", 2**31 - 1)]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def _main(folder):
    """Serves a model until the process ends; prints the addresses of gRPC and of REST."""
    with serve(Model(folder)) as addresses:
        print(*addresses, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    _main(sys.argv[1])
