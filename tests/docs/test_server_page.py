"""What docs/reference/http.md, docs/howto/serve.md and deploy/ say of the server is so."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests import ROOT
from tests.serving.serving import Server

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from keras_trellis.serving.server.settings import Limits  # noqa: E402

REFERENCE = (ROOT / "docs" / "reference" / "http.md").read_text()
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
KUBERNETES = [*yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())]


def test_the_table_of_limits():
    rows = ["| flag | default | |", "|---|---:|---|"]
    for field in dataclasses.fields(Limits):
        flag = f"--{field.name.replace('_', '-')}"
        rows.append(f"| `{flag}` | {field.default:,} | {field.metadata['meaning']} |")
    table = "\n".join(["<!-- limits -->", *rows, "<!-- /limits -->"])
    assert table in REFERENCE, table


def test_the_dockerfile_passes_hadolint():
    # Of the environment, which need not be on the path.
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("the extra `test` is not installed: no hadolint")
    command = [hadolint, ROOT / "deploy" / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert names == {line[1:] for line in allowed if line.startswith("!")}


def test_the_manifest_passes_kubernetes_validate():
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="the extra `test` is not installed"
    )
    for document in KUBERNETES:
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_the_commands_of_the_containers_serve(exports, tmp_path):
    """Each says the same; one of them is run, and its probes."""
    entry, command = (
        json.loads(re.search(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[1])
        for name in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["keras-trellis", "serve"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    deployment, service = KUBERNETES
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert command == compose["services"]["pydoc"]["command"] == container["args"]
    assert command == ["/models/pydoc", "--host=0.0.0.0", "--port=8000"]
    grace = Limits().grace + 5
    assert pod["terminationGracePeriodSeconds"] > grace + 5  # those of preStop
    assert int(compose["services"]["pydoc"]["stop_grace_period"][:-1]) > grace
    shutil.copytree(exports["tied"], tmp_path / "pydoc" / "1")
    server = Server(tmp_path / "pydoc", KERAS_TRELLIS_KEY="secret")
    address = f"http://127.0.0.1:{server.port}"
    probes = [
        container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")
    ]
    for path in {probe["httpGet"]["path"] for probe in probes}:
        with urllib.request.urlopen(address + path) as answer:
            assert answer.status == 200
    check = re.search(r'CMD \["python", "-c", "(.*)"\]$', DOCKERFILE, re.MULTILINE)[1]
    exec(check.replace("http://127.0.0.1:8000", address), {})
    status, _, _ = server.ask("/v1/models")
    assert status == 401
    status, _, answer = server.ask("/v1/models", Authorization="Bearer secret")
    assert status == 200 and answer["data"][0]["id"] == "pydoc"
    assert server.stop() == 0
