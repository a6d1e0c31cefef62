"""What a run needs, beside what there is."""

import functools
import re
import resource
import subprocess
import sys

import numpy as np
import pytest

from keras_trellis.core import gates
from tests import ROOT
from trainers import parameters
from trainers.language import models as language_models
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS, TRELLIS
from trainers.models.recurrent import Gated
from trainers.sequences import models as sequence_models
from trainers.tasks import config as configs
from trainers.training import memory, resources, variables
from trainers.training.resources import Room

GIB = 2**30
PAGE = ROOT / "docs" / "notes" / "parameters.md"


def test_the_parameters_are_those_of_the_page():
    rows = re.findall(
        r"^\| (`.*?) \| (`.*?) \| ([\d,]+) \| ([\d,]+) \|",
        PAGE.read_text(),
        re.MULTILINE,
    )
    counts = {(each.task, each.preset): each for each in parameters.counts()}
    found = 0
    for tasks, presets, of_model, of_layer in rows:
        for task in re.findall(r"`(\w+)`", tasks):
            for preset in re.findall(r"`(\w+)`", presets):
                count = counts[task, preset]
                expected = (f"{count.model:,}", f"{count.layer:,}")
                assert (of_model, of_layer) == expected, (task, preset)
                found += 1
    assert found >= 49


def drawn(generator, preset, **fields):
    """A preset's config with sizes that are drawn."""
    config = configs.load(*preset)
    count = lambda most: int(generator.integers(1, most + 1))  # noqa: E731
    units, depth = 2 * count(6), count(4)
    config.model.update(
        units=units,
        depth=depth,
        layers=count(3),
        kernel_size=count(3),
        dilation_rate=(1, 2)[:depth],
        inject_every=count(3),
        output_units=None,
        weight_normalization=bool(count(2) - 1),
        auxiliary_weight=0.0,
        transformer=dict(heads=count(2), context=count(5)),
        **fields,
    )
    return config


def _is_square(layer):
    return getattr(LAYERS[layer], "square", False)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("layer", "gate"),
    [
        *[("trellis", gate) for gate in gates.NAMES],
        ("equilibrium", "gru"),
        ("lstm", "lstm"),
        *[(layer, "lstm") for layer in ("gru", "tcn", "transformer")],
        *[(layer, "lstm") for layer, kind in LAYERS.items() if isinstance(kind, Gated)],
    ],
)
def test_the_parameters_of_a_language_model_are_those_of_what_is_built(
    layer, gate, head
):
    generator = np.random.default_rng([ord(each) for each in layer + gate + head])
    for _ in range(2):
        config = drawn(generator, ("ptb", "small"), layer=layer, gate=gate, head=head)
        config.model.unit_forget_bias = gates.NAMES[gate].forget_block is not None
        config.model.embedding_units = int(
            generator.integers(1, config.model.units + 1)
        )
        if _is_square(layer):
            config.model.embedding_units = config.model.units
        config.model.mixture.experts = int(generator.integers(1, 4))
        config.model.adaptive.cutoffs = (4, 9)
        if layer in TRELLIS and generator.integers(2):
            config.model.groups, config.model.kernel_size = 2, 2
            config.model.inject_groups = bool(generator.integers(2))
        model = language_models.build(config, 20)
        assert variables.parameters(model) == language_models.parameters(config, 20), (
            config.model
        )


@pytest.mark.parametrize("layer", LAYERS)
def test_the_parameters_of_a_classifier_are_those_of_what_is_built(layer):
    """A dense layer is before a layer that needs one."""
    config = drawn(np.random.default_rng(4), ("seq_mnist", "small"), layer=layer)
    if _is_square(layer):
        config.model.embedding_units = config.model.units
    model = sequence_models.classifier(config, (30, 3), classes=7)
    assert variables.parameters(model) == sequence_models.parameters(config, 3, 7)


COUNTED = """
import random
import keras
from trainers.language import models
from trainers.tasks import config as configs
from trainers.training import resources

config = configs.load("wikitext103", "paper")
state, before = random.getstate(), resources.resident("VmHWM")
count = models.parameters(config, 267_735)
with keras.StatelessScope():
    pass  # its end gives values to all variables that Keras lists
print(count, resources.resident("VmHWM") - before, state == random.getstate())
"""


def test_counting_gives_no_weight_a_value_then_or_later(forks):
    done = forks.run("-c", COUNTED)
    assert done.returncode == 0, done.stderr
    count, grown, same_state = done.stdout.split()
    assert int(count) == 177_565_594
    # The layer alone has 153 MiB.
    assert int(grown) < 50 * 2**20
    assert same_state == "True"  # a run's initial values do not change


@pytest.mark.parametrize("layer", LAYERS)
def test_more_to_keep_takes_more_memory(layer):
    config = configs.load("ptb", "small")
    config.model.layer = layer
    once = language_models.need(config, 10_000)
    config.data.batch_size *= 2
    twice = language_models.need(config, 10_000)
    assert once.least < twice.least and once.about < twice.about


@pytest.mark.parametrize("field", ["average", "average_after"])
def test_averages_take_the_memory_of_the_parameters(field):
    config = configs.load("ptb", "released")
    once = need(config).least
    config.schedule[field] = 3 if field == "average_after" else True
    parameters = language_models.parameters(config, 10_000)
    assert need(config).least - once == 4 * parameters


def config_of(preset, **data):
    config = configs.load("ptb", preset)
    config.data.update(data)
    return config


def need(config):
    return language_models.need(config, 10_000)


def presets():
    return configs.presets("ptb")


@pytest.fixture
def there(monkeypatch):
    """Has so many GiB available."""

    def there(size):
        room = Room(int(size * GIB), "cgroup limit")
        monkeypatch.setattr(resources, "room", lambda: room)

    return there


def test_what_fits_is_not_talked_about(there):
    there(100)
    assert memory.check_training(config_of("paper"), need, presets) is None


def test_what_cannot_fit_is_refused_with_what_would(there):
    there(1)
    with pytest.raises(ValueError) as error:
        memory.check_training(config_of("paper"), need, presets)
    message = str(error.value)
    told = re.search(
        r"about ([\d.]+) GiB of memory, ([\d.]+) GiB at the least", message
    )
    least, about = need(config_of("paper"))
    assert told.groups() == (f"{about / GIB:.1f}", f"{least / GIB:.1f}")
    assert "and 1.0 GiB are available (cgroup limit); what would fit: " in message
    batch = int(re.search(r"--config.data.batch_size=(\d+)", message)[1])
    assert need(config_of("paper", batch_size=batch)).about <= GIB
    assert need(config_of("paper", batch_size=2 * batch)).about > GIB
    preset = re.search(r"--preset=(\w+)", message)[1]
    assert need(config_of(preset)).about <= GIB


def test_a_preset_that_does_not_suit_the_text_is_not_advised(there):
    there(1)
    larger = [each for each in presets() if each.model.head == "adaptive"]
    of_3_000_words = functools.partial(language_models.need, vocabulary_size=3_000)
    with pytest.raises(ValueError, match="what would fit: ") as error:
        memory.check_training(config_of("paper"), of_3_000_words, lambda: larger)
    assert "--preset" not in str(error.value)


def test_where_nothing_fits_nothing_is_advised(there):
    there(0.01)
    with pytest.raises(ValueError, match="what would fit: no preset of the task"):
        memory.check_training(config_of("paper"), need, presets)


def test_what_may_not_fit_is_a_warning(there):
    config = config_of("paper")
    least, about = need(config)
    assert least < about
    there((least + about) / 2 / GIB)
    assert memory.check_training(config, need, presets).startswith(
        "warning: training takes about "
    )


@pytest.mark.parametrize(
    "preset", ["paper", "small", "small_stacked_lstm", "small_lstm"]
)
def test_an_estimate_is_never_below_the_least(preset):
    least, about = need(configs.load("ptb", preset))
    config = configs.load("ptb", preset)
    assert 4 * 2 * language_models.parameters(config, 10_000) < least <= about
    sequences = sequence_models.need(
        configs.load("seq_mnist", "small"), 784, 1, 10, False
    )
    assert sequences.least < sequences.about


def test_weights_that_cannot_be_read_are_told(there):
    there(1)
    memory.check_weights(2**27)
    with pytest.raises(
        ValueError, match=r"134,217,729 parameters is read in 1.0 GiB .*cgroup"
    ):
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
    assert resources.room(tmp_path) == (size, limit)


def test_a_limit_of_the_shell_counts(tmp_path, monkeypatch):
    write(tmp_path, MACHINE)
    limits = {resource.RLIMIT_AS: 1000 * 1024, resource.RLIMIT_DATA: 900 * 1024}
    monkeypatch.setattr(
        resource, "getrlimit", lambda kind: (limits[kind], limits[kind])
    )
    assert resources.room(tmp_path) == (300 * 1024, "ulimit -v")
    limits[resource.RLIMIT_AS] = resource.RLIM_INFINITY
    assert resources.room(tmp_path) == (600 * 1024, "ulimit -d")


def test_too_little_to_import_anything_is_a_line():
    line = f"ulimit -v 1000000; exec {sys.executable} -m trainers.lm"
    root = str(ROOT)
    done = subprocess.run(
        ["bash", "-c", line], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: `ulimit -v` must leave at least 2097152 KiB, which TensorFlow takes. "
        "Received: 1000000 KiB\n"
    )


def test_where_nothing_is_known_nothing_is_said(tmp_path, monkeypatch):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    assert resources.room(tmp_path) is None
    monkeypatch.setattr(resources, "room", lambda: None)
    assert memory.check_training(config_of("paper"), need, presets) is None


def test_this_machine_has_some():
    assert resources.room().size > 0
