"""The files in docs/reference/tf_serving.md are those that servers read, and fit together."""

import re

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.config import model_server_config_pb2

from tests import ROOT

PAGE = (ROOT / "docs" / "reference" / "tf_serving.md").read_text()
# Those of the server's `main.cc`.
FLAGS = {
    "allow_version_labels_for_unavailable_models",
    "batching_parameters_file",
    "enable_batching",
    "enable_grpc_healthcheck_service",
    "enable_model_warmup",
    "file_system_poll_wait_seconds",
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "monitoring_config_file",
    "rest_api_timeout_in_ms",
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_INT64 = _FIELD.TYPE_INT64
_BOOL = _FIELD.TYPE_BOOL
_STRING = _FIELD.TYPE_STRING
_MESSAGE = _FIELD.TYPE_MESSAGE
# tensorflow-serving-api lacks these two: the fields of monitoring_config.proto, and those of
# session_bundle_config.proto's BatchingParameters that say how to merge.
_PROTOS = {
    "PrometheusConfig": {"enable": _BOOL, "path": _STRING},
    "MonitoringConfig": {"prometheus_config": ".serving.PrometheusConfig"},
    "BatchingParameters": {
        **dict.fromkeys(
            (
                "max_batch_size",
                "batch_timeout_micros",
                "max_enqueued_batches",
                "num_batch_threads",
            ),
            ".google.protobuf.Int64Value",
        ),
        "pad_variable_length_inputs": _BOOL,
    },
}


def messages():
    """Returns the classes of `_PROTOS`."""
    file = descriptor_pb2.FileDescriptorProto(name="serving.proto", package="serving")
    file.syntax = "proto3"
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for name, fields in _PROTOS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            named = (
                {"type_name": kind, "type": _MESSAGE}
                if isinstance(kind, str)
                else {"type": kind}
            )
            message.field.add(
                name=field, number=number, label=_FIELD.LABEL_OPTIONAL, **named
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"serving.{name}")
        )
        for name in _PROTOS
    }


def parsed(text):
    """Returns what a file of the server says."""
    known = messages()
    if text.lstrip().startswith("model_config_list"):
        kind = model_server_config_pb2.ModelServerConfig
    elif text.lstrip().startswith("prometheus_config"):
        kind = known["MonitoringConfig"]
    else:
        kind = known["BatchingParameters"]
    return text_format.Parse(text, kind())


def fenced(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def check_models(config):
    """Asserts that each label is of a version that is served."""
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("pydoc", "/models/pydoc")
    assert model.model_platform == "tensorflow"
    served = {*model.model_version_policy.specific.versions}
    assert served and {*model.version_labels.values()} <= served
    return model


def check_monitoring(config):
    assert config.prometheus_config.enable
    assert config.prometheus_config.path == "/monitoring/prometheus/metrics"


def check_batching(config):
    assert config.max_batch_size.value == 32 and config.pad_variable_length_inputs


def test_the_server_s_files():
    batching, models, monitoring = (
        parsed(text) for text in map(str, fenced("textproto"))
    )
    model = check_models(models)
    assert {**model.version_labels} == {"stable": 7, "canary": 8}
    check_monitoring(monitoring)
    check_batching(batching)


@pytest.mark.parametrize(
    "text", ["model_config_list { confg {} }", "prometheus_config { on: true }"]
)
def test_a_field_that_is_none_is_found(text):
    with pytest.raises(text_format.ParseError):
        parsed(text)


def test_the_answer_about_the_state():
    (text,) = re.findall(r'^\{"model_version_status".*$', PAGE, re.MULTILINE)
    status = json_format.Parse(text, get_model_status_pb2.GetModelStatusResponse())
    (version,) = status.model_version_status
    assert version.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE


@pytest.fixture(scope="module")
def manifest():
    (text,) = fenced("yaml")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_manifest_s_files(manifest):
    files = {name: parsed(text) for name, text in manifest["ConfigMap"]["data"].items()}
    assert {*check_models(files["models.config"]).version_labels} == {"stable"}
    check_monitoring(files["monitoring.config"])
    check_batching(files["batching.config"])


def test_the_manifest_s_parts_name_each_other(manifest):
    deployment = manifest["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert (
        deployment["selector"]["matchLabels"]
        == labels
        == manifest["Service"]["spec"]["selector"]
    )
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    assert {port["targetPort"] for port in manifest["Service"]["spec"]["ports"]} == {
        *ports
    }
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {*mounts.values()} == {*volumes}
    assert mounts["/config"] == "config" and "/models" in mounts
    assert (
        volumes["config"]["configMap"]["name"]
        == manifest["ConfigMap"]["metadata"]["name"]
    )
    for probe in ("startupProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked == {
            "path": "/v1/models/pydoc/labels/stable/metadata",
            "port": "rest",
        }
    annotations = deployment["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["rest"])


def test_the_manifest_s_flags(manifest):
    (container,) = manifest["Deployment"]["spec"]["template"]["spec"]["containers"]
    flags = dict(
        re.fullmatch(r"--(\w+)(?:=(.*))?", flag).groups() for flag in container["args"]
    )
    assert {*flags} <= FLAGS
    files = manifest["ConfigMap"]["data"]
    for name in (
        "model_config_file",
        "monitoring_config_file",
        "batching_parameters_file",
    ):
        folder, _, file = flags[name].rpartition("/")
        assert folder == "/config" and file in files
    # Its labels are there before its versions.
    assert "allow_version_labels_for_unavailable_models" in flags


def test_flags_in_the_text():
    section = PAGE.partition("## Operating it")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`--(\w+)", section)}
    assert named and named <= FLAGS
