"""The workers that the environment names, as schedulers set it, and what is wrong in it."""

import json
import os

import pytest

from trainers.training import cluster


def tf_config(cluster=None, task=None, **others):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, **others})}


WORKERS = {"worker": ["a:1", "b:2"]}
FIRST, CHIEF = {"type": "worker", "index": 0}, {"type": "chief", "index": 0}


@pytest.mark.parametrize(
    ("groups", "task", "addresses", "index"),
    [
        (WORKERS, {"type": "worker", "index": 1}, ("a:1", "b:2"), 1),
        # Vertex AI and TFJob: a chief, and workers counted without it
        (
            {"chief": ["c:2222"], **WORKERS},
            {"type": "worker", "index": 0, "trial": ""},
            ("c:2222", "a:1", "b:2"),
            1,
        ),
        (
            {"chief": ["c:2222"], **WORKERS},
            {"type": "chief", "index": 0},
            ("c:2222", "a:1", "b:2"),
            0,
        ),
        (
            {"master": ["m:1"], "ps": [], "evaluator": ["e:1"]},
            {"type": "master", "index": "0"},
            ("m:1",),
            0,
        ),
        (
            {"worker": ["[::1]:5", "x.y.svc:5"]},
            FIRST,
            ("[::1]:5", "x.y.svc:5"),
            0,
        ),
    ],
)
def test_forms_of_schedulers(groups, task, addresses, index):
    found = cluster.from_environment(tf_config(groups, task, environment="cloud"))
    assert found == cluster.Cluster(addresses, index)
    assert found.is_chief == (index == 0)
    resolver = found.resolver(gpus=2)
    assert resolver.cluster_spec().as_dict() == {"worker": list(addresses)}
    assert (resolver.task_type, resolver.task_id) == ("worker", index)
    assert resolver.num_accelerators() == {"GPU": 2}


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "needs TF_CONFIG .* or a step of Slurm .*; there is neither"),
        ({"TF_CONFIG": "{"}, "is not JSON of a cluster"),
        ({"TF_CONFIG": "[1]"}, "is not JSON of a cluster"),
        (tf_config({"worker": "a:1"}, FIRST), "is not JSON of a cluster .*'worker' must be a list"),
        (tf_config({}, FIRST), "names no workers; expected"),
        (tf_config({"worker": []}, FIRST), "names no workers"),
        (tf_config(WORKERS), "does not say which task this process is .None."),
        (tf_config(WORKERS, {"type": "worker"}), "does not say which task"),
        (tf_config(WORKERS, {"type": "worker", "index": "x"}), "does not say which task"),
        (tf_config(WORKERS, {"type": "worker", "index": 2}), "has task.index 2; .* worker 0 to 1"),
        (tf_config(WORKERS, {"type": "worker", "index": -1}), "has task.index -1"),
        (tf_config(WORKERS, CHIEF), "has task.type 'chief'; its cluster has worker"),
        (tf_config({"worker": ["a:1", "a:1"]}, FIRST), "names a:1 twice"),
        (tf_config({"worker": ["a"]}, FIRST), "has the address 'a'; expected HOST:PORT"),
        (tf_config({"worker": ["a:0"]}, FIRST), "has the address 'a:0'"),
        (tf_config({"worker": [":1"]}, FIRST), "has the address ':1'"),
        (tf_config({"worker": {"1": "a:1"}}, FIRST), "has the address None; expected HOST:PORT"),
        (tf_config({"worker": [3]}, FIRST), "is not JSON of a cluster .Task address 3 must"),
        (tf_config({"chief": ["a:1", "b:1"]}, CHIEF), "more than one chief"),
        (tf_config({"chief": ["a:1"], "master": ["b:1"]}, CHIEF), "more than one chief"),
        (tf_config({**WORKERS, "ps": ["c:1"]}, FIRST), "parameter servers"),
        (tf_config({**WORKERS, "tpu": ["c:1"]}, FIRST), "tasks of the type tpu"),
        ({"SLURM_PROCID": "0"}, "Slurm's variables .* name no workers: SLURM_PROCID"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(environment, told):
    with pytest.raises(ValueError, match=told):
        cluster.from_environment(environment)


@pytest.fixture
def slurm(monkeypatch):
    """Sets the variables of a step of three tasks on two nodes, as `srun` does."""

    def step(**own):
        values = {
            "SLURM_JOB_ID": "20007",
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_STEP_NODELIST": "node[9-10]",
            "SLURM_STEP_TASKS_PER_NODE": "2,1",
            **{f"SLURM{name}": value for name, value in own.items()},
        }
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        return cluster.from_environment()

    monkeypatch.delenv("TF_CONFIG", raising=False)
    return step


def test_slurm(slurm, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")  # as Slurm itself has set it
    addresses = ("node10:10007", "node9:10007", "node9:10008")
    first = slurm(_PROCID="0", D_NODENAME="node9", _LOCALID="0")
    # sorted as texts, as TensorFlow does, and not as Slurm
    assert first == cluster.Cluster(addresses, 1)
    assert slurm(_PROCID="1", D_NODENAME="node9", _LOCALID="1").index == 2
    last = slurm(_PROCID="2", D_NODENAME="node10", _LOCALID="0")
    assert last.index == 0 and last.is_chief
    assert last.name(0) == "worker 0, the chief (node10:10007)"
    assert last.name(2) == "worker 2 (node9:10008)"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2"
