"""The workers of a run, and which of them this process is, from the environment.

`TF_CONFIG` is what TensorFlow, Kubeflow's TFJob and Vertex AI set. Without it, Slurm's variables
tell the same.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_CHIEFS = ("chief", "master")  # earlier versions of Vertex AI say master
_FORM = '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}'
# Slurm names no ports. These are below those that Linux gives to clients.
_SLURM_PORTS, _SLURM_JOBS = 10_000, 20_000


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a run.

    Attributes:
        addresses: HOST:PORT of each, as TensorFlow uses it; the chief's is the first.
        index: which of them this process is.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this process prints and writes."""
        return self.index == 0

    def name(self, index: int) -> str:
        """Returns what messages call a worker."""
        chief = ", the chief" * (index == 0)
        return f"worker {index}{chief} ({self.addresses[index]})"

    def resolver(self, gpus: int) -> tf.distribute.cluster_resolver.ClusterResolver:
        """Returns what TensorFlow needs to know.

        Args:
            gpus: how many GPUs each worker has.
        """
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(self.addresses)}),
            task_type="worker",
            task_id=self.index,
            num_accelerators={"GPU": gpus} if gpus else {},
            rpc_layer="grpc",
        )


def from_environment(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the workers that the environment names.

    Raises:
        ValueError: it names none, or TF_CONFIG is wrong; the message says how.
    """
    if text := environment.get("TF_CONFIG"):
        return _from_tf_config(text)
    if "SLURM_PROCID" in environment:
        return _from_slurm(environment)
    raise ValueError(
        f"--distribute=workers needs TF_CONFIG in the environment, {_FORM}, or a step of Slurm "
        "(srun); there is neither"
    )


def machines(text: str | None) -> int:
    """Returns how many machines a TF_CONFIG names.

    Raises:
        ValueError: it is not JSON of a cluster.
    """
    _, groups = _parsed(text or "{}")
    addresses = [each for group in groups.values() for each in group]
    return len(addresses) - addresses.count(None)


def _from_tf_config(text: str) -> Cluster:
    config, groups = _parsed(text)
    if groups.pop("ps", None):
        raise _wrong("names parameter servers (ps); expected chief and worker alone")
    groups.pop("evaluator", None)  # no part of the training
    addresses = _in_order(groups)
    kind, index = _task(config)
    if kind not in groups:
        raise _wrong(f"has task.type {kind!r}; its cluster has {' and '.join(groups)}")
    if index not in range(len(groups[kind])):
        raise _wrong(
            f"has task.index {index}; its cluster has {kind} 0 to {len(groups[kind]) - 1}"
        )
    before = len(addresses) - len(groups[kind]) if kind == "worker" else 0
    return Cluster(tuple(addresses), before + index)


def _in_order(groups: Mapping[str, list[Any]]) -> list[Any]:
    """Returns the addresses of all workers, the chief's first."""
    chiefs = [name for name in _CHIEFS if groups.get(name)]
    known = [*chiefs, "worker"]
    if unknown := [name for name in groups if groups[name] and name not in known]:
        raise _wrong(f"names tasks of the type {unknown[0]}; expected chief and worker")
    addresses = [address for name in known for address in groups.get(name, ())]
    if not addresses:
        raise _wrong(f"names no workers; expected {_FORM}")
    if len(chiefs) > 1 or any(len(groups[name]) > 1 for name in chiefs):
        raise _wrong("names more than one chief")
    _check_addresses(addresses)
    return addresses


def _parsed(text: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Returns TF_CONFIG's value, and the addresses of its cluster by type.

    An address is None if its index is missing where addresses stand by their indices.
    """
    try:
        config = json.loads(text)
        given = config.get("cluster") or {}
        named = {name: addresses for name, addresses in given.items() if addresses}
        cluster = tf.train.ClusterSpec(named)  # which refuses a type without addresses
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"TF_CONFIG in the environment is not JSON of a cluster ({error}); to train on this "
            "machine, unset TF_CONFIG"
        ) from error
    return config, {name: cluster.job_tasks(name) for name in cluster.jobs}


def _task(config: Mapping[str, Any]) -> tuple[str, int]:
    task = config.get("task")
    try:
        # Some schedulers write the index as text.
        return config["task"]["type"], int(config["task"]["index"])
    except (TypeError, KeyError, ValueError) as error:
        raise _wrong(
            f"does not say which task this process is ({task}); expected {_FORM}"
        ) from error


def _check_addresses(addresses: list[Any]) -> None:
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 2**16):
            raise _wrong(f"has the address {address!r}; expected HOST:PORT")
        if addresses.count(address) > 1:
            raise _wrong(f"names {address} twice; each worker needs its own address")


def _wrong(what: str) -> ValueError:
    return ValueError(f"TF_CONFIG in the environment {what}")


def _from_slurm(environment: Mapping[str, str]) -> Cluster:
    job = environment.get("SLURM_JOB_ID", "0")
    port = _SLURM_PORTS + int(job) % _SLURM_JOBS
    try:
        # A GPU for each task: the resolver counts tasks by GPUs, and Slurm itself assigns these.
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            port_base=port, gpus_per_node=2**10, gpus_per_task=1, auto_set_gpu=False
        )
        spec = resolver.cluster_spec()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"Slurm's variables in the environment name no workers: {error}; start them by srun, "
            "or set TF_CONFIG"
        ) from error
    addresses = tuple(spec.job_tasks("worker"))
    _, index = resolver.get_task_info()
    # The resolver sorts the hosts as texts, node10 before node9, and Slurm does not.
    host, local = (
        environment.get(f"SLURM{name}") for name in ("D_NODENAME", "_LOCALID")
    )
    mine = f"{host}:{port + int(local or 0)}"
    return Cluster(addresses, addresses.index(mine) if mine in addresses else index)
