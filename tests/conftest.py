"""The environment of every test: one share of the cores, quiet, no GPU, no network."""

import gc
import inspect
import os
import pathlib
import signal
import socket
import warnings

import hypothesis
import pytest
from matplotlib import figure

from tests import ROOT, forking
from tests import pictures as plots

pytest_plugins = ["tests.workers"]

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Tests of XLA spend their time compiling. Without optimisation they take a third less.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# JAX compiles each operation of an eager call by itself, in each process: they share what they have
# compiled, which is named by the program, the flags and the version.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".build" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# gcsfs reads it once. It would ask a server that the emulator in tests does not have.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# TensorFlow takes every core for itself, and so would each worker of pytest-xdist. The variables
# are read when TensorFlow starts, here and in the processes that tests start.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
    _THREADS = str(max(1, (os.cpu_count() or 1) // _WORKERS))
    for _name in (
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "OMP_NUM_THREADS",
    ):
        os.environ.setdefault(_name, _THREADS)

# Tests that are started in the background, as by a script, begin with these ignored. So would the
# commands that tests start, which keep to that.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _default = (
            signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        )
        signal.signal(_number, _default)

# Examples take as long as TensorFlow takes to trace them, and a run tells the same every time.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


# What runs a program, a benchmark or an example from end to end, kills it, or compares backends. It
# takes a third of the time of all tests: `make test-slow`. Folders, files and tests.
SLOW = (
    *("backends", "benchmarks/test_batch.py", "benchmarks/test_corpus.py"),
    *("benchmarks/test_faults.py", "benchmarks/test_heads.py"),
    "benchmarks/test_serving.py",
    *("benchmarks/test_train_step.py", "contract/test_examples.py"),
    "contract/test_saved.py::test_a_fresh_process_loads_it",
    *("docs/test_learn.py", "docs/test_recipes.py", "docs/test_serving_chain.py"),
    "docs/test_papers_page.py::test_ten_steps_of_a_small_form",
    *("examples", "keras_trellis/models/test_backends.py"),
    "keras_trellis/layers/test_equilibrium.py::test_it_is_a_very_deep_network",
    *("keras_trellis/recurrent/test_on_jax.py", "keras_trellis/test_xla.py"),
    *("serving/test_fuzz.py", "serving/test_invariances.py", "serving/test_loaders.py"),
    *("trainers/drawing/test_model.py", "trainers/language/test_models.py"),
    *("trainers/stores", "trainers/studies", "trainers/test_client.py"),
    "trainers/test_reproduce.py",
    *("trainers/test_demo.py", "trainers/training/test_workers.py"),
    "trainers/test_lm.py::test_each_layer_is_trained_scored_adapted_sampled_from_and_exported",
)


# What tells in three minutes whether the core works: `make test-quick`. Folders, files, tests, and
# how the names of tests with arguments begin.
QUICK = (
    *("test_layers.py", "test_words.py", "test_build_files.py", "test_quick.py"),
    *("keras_trellis/core", "keras_trellis/layers/test_stateful.py"),
    *("keras_trellis/formats", "keras_trellis/engine/test_schedule.py"),
    "keras_trellis/recurrent/test_gated.py::test_the_equations",
    "keras_trellis/recurrent/test_tensorized.py::test_the_equations",
    *(
        f"contract/test_contract.py::test_a_promise_is_kept[{name}-"
        for name in ("TrellisLayer", "StackedLSTM", "TLSTM", "TrellisLM")
    ),
    "contract/test_contract.py::test_eager_and_compiled_agree[TrellisLayer]",
    "contract/test_streamed.py::test_a_layer_streams",
    "formats/test_streamed.py::test_layers_in_the_runtime_of_a_format[litert-Cache",
    *("serving/test_slots.py", "serving/test_bad_requests.py"),
    *("trainers/test_bad_inputs.py", "trainers/tasks/test_config.py"),
    "trainers/training/test_checkpoints.py",
    "trainers/training/test_loop.py::test_the_best_epoch_is_kept",
)


def _path(path: pathlib.Path) -> str:
    return path.relative_to(ROOT / "tests").as_posix()


def _is_chosen(item: pytest.Item, chosen: tuple[str, ...]) -> bool:
    path = _path(item.path)
    name = f"{path}::{item.name}"
    begins = tuple(each if "[" in each else f"{each}/" for each in chosen)
    whole = path in chosen or name.partition("[")[0] in chosen
    return whole or name.startswith(begins)


def pytest_ignore_collect(
    collection_path: pathlib.Path, config: pytest.Config
) -> bool | None:
    """Leaves files without a quick test unread where the others are asked for alone."""
    if config.option.markexpr != "quick" or collection_path.is_dir():
        return None
    path = _path(collection_path)
    files = {each.partition("::")[0] for each in QUICK}
    within = path in files or path.startswith(tuple(f"{each}/" for each in files))
    return None if within else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of `SLOW` and of `QUICK`."""
    for item in items:
        for mark, chosen in (("slow", SLOW), ("quick", QUICK)):
            if _is_chosen(item, chosen):
                item.add_marker(mark)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from walking through TensorFlow's modules again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def plain_pictures():
    """Makes plots files of a few bytes, as `forks` does in its programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure.Figure, "savefig", plots.save_plain)
        yield


@pytest.fixture(scope="module")
def pictures():
    """Draws plots as users get them, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure.Figure, "savefig", plots.savefig)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder that all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def forks():
    """Starts Python programs in processes that need not import TensorFlow first."""
    made = forking.Forks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def exports(shared_folder):
    """The folders of the models of `tests.serving.models`, by name."""
    from tests.serving import models  # here, as it imports TensorFlow

    return models.Exports(shared_folder)


@pytest.fixture(scope="module")
def own_settings():
    """Leaves generators, kernels and threads of the tests' process as they are, which runs set."""
    import keras  # here, as tests of the server have no Keras
    import tensorflow as tf

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.utils, "set_random_seed", lambda seed: None)
        patch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
        for kind in ("inter", "intra"):
            setting = f"set_{kind}_op_parallelism_threads"
            patch.setattr(tf.config.threading, setting, lambda threads: None)
        yield


@pytest.fixture
def eagerly():
    """Makes no graph of a function: of a few steps it takes most of the time."""
    import tensorflow as tf  # here, as tests of the server have no TensorFlow

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def quiet_library(monkeypatch):
    """Makes each `UserWarning` of the library an error, as in an example that teaches its use."""
    warn = warnings.warn

    def guarded(message, category=UserWarning, stacklevel=1, **options):
        caller = inspect.currentframe().f_back.f_globals["__name__"]
        ours = caller.startswith("keras_trellis.")
        if ours and issubclass(category or UserWarning, UserWarning):
            raise AssertionError(f"{caller} warns: {message}")
        warn(message, category, stacklevel + 1, **options)

    monkeypatch.setattr(warnings, "warn", guarded)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Refuses connections beyond this machine, so that no test comes to depend on one."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            if address[0] not in ("127.0.0.1", "::1", "localhost"):
                raise ConnectionRefusedError(
                    f"a test reached for the network: {address}"
                )
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
