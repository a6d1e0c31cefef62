"""What a run needs, beside what there is."""

import importlib
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trainers import parameters
from trainers.language import modeling
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.training import available_memory, memory, runs
from trainers.training.available_memory import Room

GIB = 2**30
PAGE = Path(__file__).parents[3] / "docs" / "trainers.md"
WORDS = parameters.VOCABULARY_SIZES


def counted(task, preset):
    config = configs.load(task, preset)
    if task in WORDS:
        return memory.language_parameters(config, WORDS[task])
    return memory.sequence_parameters(config, parameters.IMAGE_SHAPES[task][1], 10)


def test_the_parameters_are_those_of_the_table():
    """Which `trainers.parameters` has printed, of models that were built."""
    rows = re.findall(r"^\| (`.*?) \| (`.*?) \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE)
    found = 0
    for tasks, presets, count in rows:
        for task in re.findall(r"`(\w+)`", tasks):
            for preset in re.findall(r"`(\w+)`", presets):
                assert f"{counted(task, preset):,}" == count, (task, preset)
                found += 1
    assert found >= 28


@pytest.mark.parametrize(
    "task", ["ptb", "ptb_mos", "ptb_char", "wikitext103", "seq_mnist", "adding", "copy_memory"]
)
def test_the_parameters_are_those_of_what_is_built(task):
    for preset in importlib.import_module(f"configs.{task}").PRESETS:
        config = configs.load(task, preset)
        model = config.model
        with config.unlocked():
            model.units = 12
            for name in ("output_units", "embedding_units"):
                if name in model:
                    model[name] = 6
            if "head" in model and "cutoffs" in model.head:
                model.head.cutoffs = (10, 20)
            if "auxiliary_every" in model:
                model.auxiliary_every = min(model.auxiliary_every, model.depth)
        if "embedding_units" in model:
            built = modeling.build(config, 40)
            expected = memory.language_parameters(config, 40)
        else:
            built = sequence_models.classifier(config, (30, 3), classes=7)
            expected = memory.sequence_parameters(config, 3, 7)
        assert runs.parameters(built) == expected, preset


def config_of(preset, **data):
    config = configs.load("ptb", preset)
    config.data.update(data)
    return config


def need(config):
    return memory.language_training(config, 10_000)


@pytest.fixture
def there(monkeypatch):
    """Has so many GiB available."""

    def there(size):
        room = Room(int(size * GIB), "cgroup limit")
        monkeypatch.setattr(available_memory, "room", lambda: room)

    return there


def test_what_fits_is_not_talked_about(there):
    there(100)
    assert memory.check_training(config_of("paper"), need) is None


def test_what_cannot_fit_is_refused_with_what_would(there):
    there(1)
    with pytest.raises(ValueError) as error:
        memory.check_training(config_of("paper"), need)
    message = str(error.value)
    told = re.search(r"about ([\d.]+) GiB of memory, ([\d.]+) GiB at the least", message)
    least, about = need(config_of("paper"))
    assert told.groups() == (f"{about / GIB:.1f}", f"{least / GIB:.1f}")
    assert "and 1.0 GiB are available (cgroup limit); what would fit: " in message
    batch = int(re.search(r"--config.data.batch_size=(\d+)", message)[1])
    assert need(config_of("paper", batch_size=batch)).about <= GIB
    assert need(config_of("paper", batch_size=2 * batch)).about > GIB
    preset = re.search(r"--preset=(\w+)", message)[1]
    assert need(config_of(preset)).about <= GIB


def test_where_nothing_fits_nothing_is_advised(there):
    there(0.01)
    with pytest.raises(ValueError, match="what would fit: no preset of the task"):
        memory.check_training(config_of("paper"), need)


def test_what_may_not_fit_is_a_warning(there):
    config = config_of("paper")
    least, about = need(config)
    assert least < about
    there((least + about) / 2 / GIB)
    assert memory.check_training(config, need).startswith("warning: training takes about ")


@pytest.mark.parametrize("preset", ["paper", "small", "small_lstm"])
def test_an_estimate_is_never_below_the_least(preset):
    least, about = need(configs.load("ptb", preset))
    assert 4 * 2 * counted("ptb", preset) < least <= about
    sequences = memory.sequence_training(configs.load("seq_mnist", "small"), 784, 1, 10, False)
    assert sequences.least < sequences.about


def test_weights_that_cannot_be_read_are_told(there):
    there(1)
    memory.check_weights(2**27)
    with pytest.raises(ValueError, match=r"134,217,729 parameters is read in 1.0 GiB .*cgroup"):
        memory.check_weights(2**27 + 1)


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MACHINE = {
    "proc/meminfo": "MemTotal: 8000 kB\nMemAvailable:    5000 kB\nSwapFree: 100 kB\n",
    "proc/self/status": "Name:\tpython\nVmSize:\t 700 kB\nVmData:\t 300 kB\n",
}
V1 = {
    "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/a/b\n",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2000000\n",
    "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1500000\n",
    "sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 200\ntotal_active_file 50\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
}
V2 = {
    "proc/self/cgroup": "0::/job\n",
    "sys/fs/cgroup/job/memory.max": "max\n",
    "sys/fs/cgroup/job/memory.current": "10\n",
    "sys/fs/cgroup/memory.max": "3000000\n",
    "sys/fs/cgroup/memory.current": "1000000\n",
    "sys/fs/cgroup/memory.stat": "inactive_file 5000\nactive_file 500\nanon 7\n",
}


@pytest.mark.parametrize(
    ("files", "size", "limit"),
    [
        (MACHINE, 5100 * 1024, "this machine"),
        ({**MACHINE, **V1}, 500_250 + 100 * 1024, "cgroup limit"),
        ({**MACHINE, **V2}, 2_005_500 + 100 * 1024, "cgroup limit"),
        ({**MACHINE, "proc/self/cgroup": "nonsense::\n"}, 5100 * 1024, "this machine"),
    ],
)
def test_the_memory_that_is_there(tmp_path, files, size, limit):
    write(tmp_path, files)
    assert available_memory.room(tmp_path) == (size, limit)


def test_a_limit_of_the_shell_counts(tmp_path, monkeypatch):
    write(tmp_path, MACHINE)
    limits = {resource.RLIMIT_AS: 1000 * 1024, resource.RLIMIT_DATA: 900 * 1024}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    assert available_memory.room(tmp_path) == (300 * 1024, "ulimit -v")
    limits[resource.RLIMIT_AS] = resource.RLIM_INFINITY
    assert available_memory.room(tmp_path) == (600 * 1024, "ulimit -d")


def test_too_little_to_import_anything_is_a_line():
    line = f"ulimit -v 1000000; exec {sys.executable} -m trainers.lm"
    root = str(PAGE.parents[1])
    done = subprocess.run(["bash", "-c", line], cwd=root, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "error: `ulimit -v` must leave at least 2097152 KiB, which TensorFlow takes. "
        "Received: 1000000 KiB\n"
    )


def test_where_nothing_is_known_nothing_is_said(tmp_path, monkeypatch):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    assert available_memory.room(tmp_path) is None
    monkeypatch.setattr(available_memory, "room", lambda: None)
    assert memory.check_training(config_of("paper"), need) is None


def test_this_machine_has_some():
    assert available_memory.room().size > 0
