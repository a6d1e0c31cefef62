"""The authors' weights as a run's folder: what evaluates, what is asked for, what is refused."""

import json
import re
import signal

import numpy as np
import pytest
from absl.testing import flagsaver
from etils import epath
from numpy.testing import assert_allclose

from keras_trellis import convert
from tests.refusals import refuses
from tests.trainers import mnist_files
from trainers import import_weights, lm, pixels
from trainers.authors import released
from trainers.data import images
from trainers.language import corpora, models
from trainers.sequences import experiment as sequence_runs
from trainers.tasks import config as configs
from trainers.tasks import run_folders
from trainers.training import checkpoints, runs, stopping
from trainers.training.workdir import WorkdirError

WORDS, UNITS, OUTPUTS, TAPS = 12, 6, 4, 2
DEPTH = ("--config.model.depth=5", "--config.model.dilation_rate=(1,2)")
# and no auxiliary loss that fits
OTHERS = (
    "--config.data.window=9",
    "--config.data.horizon=3",
    "--config.data.history=zero",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    words = np.random.default_rng(0).integers(0, WORDS - 2, 600)
    lines = [
        "<unk>",
        *(" ".join(f"w{word}" for word in row) for row in words.reshape(-1, 10)),
    ]
    for name in ("train", "valid", "test"):
        for file in (f"{name}.txt", f"wiki.{name}.tokens"):
            (folder / file).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))


def state_dict(words=WORDS, *, normalized=False):
    """Arrays by the names, each twice, that the authors' language model has for them."""
    random = np.random.default_rng(1)

    def normal(*shape):
        return random.normal(size=shape).astype(np.float32)

    table = normal(words, OUTPUTS)
    layer = {"bias2": normal(4 * UNITS)}
    for name, inputs in (("weight1", OUTPUTS), ("weight2", UNITS)):
        weight = normal(4 * UNITS, inputs, TAPS)
        if normalized:
            layer |= {f"{name}_g": normal(4 * UNITS, 1, 1), f"{name}_v_raw": weight}
        else:
            layer[f"{name}_raw"] = weight
    arrays = {
        "encoder.weight": table,
        "decoder.weight": table,
        "decoder.bias": normal(words),
    }
    for prefix in ("tnet.module.", "network.0.module."):
        arrays |= {f"{prefix}full_conv.{name}": array for name, array in layer.items()}
    return arrays


def save(path, arrays):
    """Writes arrays as `read` reads them, which takes the place of torch."""
    with path.open("wb") as file:
        np.savez(file, **arrays)


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    monkeypatch.setattr(released, "read_state_dict", lambda path: dict(np.load(path)))


def in_data_parallel(arrays):
    return {f"module.{name}": array for name, array in arrays.items()}


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "pretrained.pkl"
    save(path, state_dict())
    return path


@pytest.fixture
def call(corpus, tmp_path, monkeypatch, capsys):
    """Runs a command line in this process."""

    def call(module, *arguments, status=0):
        saved = flagsaver.save_flag_values()
        try:
            module.parse_flags(["command", f"--workdir={tmp_path / 'run'}", *arguments])
            assert module.main(["command"]) == status
        finally:
            flagsaver.restore_flag_values(saved)
        output = capsys.readouterr()
        return output.out if status == 0 else output.err

    return call


@pytest.fixture
def run_import(call, checkpoint, corpus):
    def run_import(*arguments, status=0, task="text"):
        return call(
            import_weights,
            f"--task={task}",
            f"--checkpoint={checkpoint}",
            f"--data_dir={corpus}",
            *arguments,
            status=status,
        )

    return run_import


SPLIT = {
    "tail_vectors": np.linspace(-2, 2, 2 * OUTPUTS, dtype=np.float32).reshape(
        2, OUTPUTS
    ),
    "tail_bias": np.array([0.5, -1], np.float32),
}


@pytest.mark.parametrize(
    "task, arrays, cutoffs, others",
    [
        ("text", state_dict(), None, OTHERS),
        ("text", state_dict(normalized=True), None, OTHERS),
        ("text", in_data_parallel(state_dict()), None, OTHERS),
        (
            "wikitext103",
            state_dict(normalized=True) | SPLIT,
            (3, 7),
            ("--config.data.window=9", "--config.model.adaptive.cutoffs=(3,7)"),
        ),
    ],
)
def test_imported_weights_evaluate_to_the_converted_model_s_numbers(
    run_import, call, corpus, checkpoint, tmp_path, task, arrays, cutoffs, others
):
    save(checkpoint, arrays)
    output = run_import(*DEPTH, *others, task=task)
    model = convert.language_model_from_torch(
        arrays, depth=5, dilation_rate=(1, 2), cutoffs=cutoffs
    )
    parameters = sum(np.size(weights) for weights in model.trainable_variables)
    assert output == (
        f"{tmp_path / 'run'}: {parameters} parameters, 12 words, depth 5, dilation (1, 2)\n"
    )
    ids = corpora.load("text", str(corpus)).test
    nll, _ = model.score(ids[None, :-1], ids[None, 1:])
    expected = f"exact {np.exp(np.mean(nll)):.2f} ({len(ids) - 1} tokens)"
    evaluated = call(lm, "--mode=evaluate", f"--data_dir={corpus}")
    assert f"test perplexity: {expected}, " in evaluated


def test_an_import_ends_with_the_score_by_the_authors_protocol(
    run_import, call, corpus
):
    output = run_import(*DEPTH, *OTHERS, "--score")
    evaluated = call(
        lm, "--mode=evaluate", "--protocol=trellisnet", f"--data_dir={corpus}"
    )
    scores = [line for line in evaluated.splitlines() if "perplexity" in line]
    assert len(scores) == 2 and all("trellisnet" in line for line in scores)
    assert all(line in output for line in scores)
    # An import that has been done scores again.
    assert run_import(*DEPTH, *OTHERS, "--score") == output


def test_imported_weights_write_text_and_tell_where_they_are_from(
    run_import, call, checkpoint, tmp_path
):
    run_import(*DEPTH, *OTHERS)
    text = call(
        lm, "--mode=generate", "--prompt=w1 w2", "--max_length=9", "--temperature=0"
    )
    assert text.startswith("w1 w2 ")
    imported = json.loads((tmp_path / "run" / runs.IMPORTED).read_text())
    assert imported["checkpoint"] == "pretrained.pkl"
    config = run_folders.load_config(epath.Path(tmp_path / "run"))
    assert (config.preset, config.model.units, config.model.depth) == (
        "released",
        UNITS,
        5,
    )
    # The preset's, every 12 levels, is beyond these 5.
    assert config.model.auxiliary_weight == 0
    assert (
        config.model.recurrent_dropout
        == configs.load("text", "released").model.recurrent_dropout
    )


def test_training_does_not_replace_imported_weights(run_import, tmp_path):
    run_import(*DEPTH, *OTHERS)
    path = epath.Path(tmp_path / "run")
    before = (path / "checkpoints/best.npz").read_bytes()
    with refuses("holds imported weights, which training would replace", WorkdirError):
        runs.train(
            lambda: pytest.fail("the text is read"),
            run_folders.load_config(path),
            path,
            "none",
            rules=configs,
        )
    assert (path / "checkpoints/best.npz").read_bytes() == before


def contents(folder):
    """The files of a run but for its lock, and those that hold its id as values."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "lock":
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    best = np.load(folder / "checkpoints/best.npz")
    found["checkpoints/best.npz"] = {
        name: best[name].tobytes() for name in best.files if name != "run_id"
    }
    config = json.loads(found.pop("config.json"))
    return found, {k: v for k, v in config.items() if k not in ("checksum", "run")}


def test_an_import_that_was_killed_goes_on_and_a_finished_one_is_done(
    run_import, checkpoint, tmp_path
):
    run = tmp_path / "run"
    told = run_import(*DEPTH, *OTHERS)
    whole = contents(run)
    assert run_import(*DEPTH, *OTHERS) == told and contents(run) == whole
    # What is written last goes first.
    left = ("checkpoints/best.npz", "corpus.json", "vocabulary.txt", "imported.json")
    for number in range(1, 1 + len(left)):
        for name in left[:number]:
            (run / name).unlink()
        assert run_import(*DEPTH, *OTHERS) == told
        assert contents(run) == whole, left[:number]
    save(checkpoint, state_dict(normalized=True))
    assert "is there already" in run_import(*DEPTH, *OTHERS, status=2)


def test_an_import_goes_on_only_with_what_it_has_written(run_import, tmp_path):
    run = tmp_path / "run"
    run_import(*DEPTH, *OTHERS)
    (run / "checkpoints/best.npz").unlink()
    error = run_import(*DEPTH, *OTHERS, "--config.seed=9", status=2)
    assert "belongs to another run" in error
    (run / "corpus.json").write_bytes(b"\xff")
    assert "corpus.json is damaged" in run_import(*DEPTH, *OTHERS, status=2)
    assert (run / "corpus.json").read_bytes() == b"\xff"
    (run / "notes.txt").write_text("mine")
    assert "is there already" in run_import(*DEPTH, *OTHERS, status=2)
    assert (run / "notes.txt").exists()


def test_depth_is_the_preset_s_where_the_sizes_are(run_import, tmp_path):
    sizes = {"units": UNITS, "output_units": OUTPUTS, "embedding_units": OUTPUTS}
    run_import(*(f"--config.model.{name}={size}" for name, size in sizes.items()))
    config = run_folders.load_config(epath.Path(tmp_path / "run"))
    assert config.model.depth == configs.load("text", "released").model.depth


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            DEPTH[:1],
            r"not the preset released's: units 6 \(preset: 1400\), .*; give "
            "--config.model.dilation_rate, which no shape tells",
        ),
        ((), "give --config.model.depth and --config.model.dilation_rate, which"),
        (
            (*DEPTH, "--config.model.units=7"),
            "`config.model.units` must be 6, by the shapes .* Received: config.model.units=7",
        ),
        (
            (*DEPTH, "--config.model.weight_normalization=True"),
            "weight_normalization` must be False, .* Received: .*weight_normalization=True",
        ),
        ((*DEPTH, "--config.model.auxiliary_every=9"), "auxiliary_every"),
        ((*DEPTH, "--config.model.auxiliary_weight=0.1"), "auxiliary_every.*12"),
        (("--preset=nothing",), "unknown --preset 'nothing'"),
    ],
)
def test_sizes_that_are_not_told_or_contradict_are_named(
    run_import, tmp_path, capsys, arguments, message
):
    try:
        error = run_import(*arguments, status=2)
    except SystemExit:
        error = capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert re.search(message, error), error


@pytest.mark.parametrize(
    "task, field", [("wikitext103", "order"), ("ptb_char", "form")]
)
def test_a_preset_that_numbers_the_vocabulary_otherwise_is_refused(
    run_import, tmp_path, task, field
):
    error = run_import("--preset=paper", task=task, status=2)
    assert re.search(
        f"`config.corpus.{field}` must be .* Received: config.corpus.{field}=", error
    )
    assert not (tmp_path / "run").exists()


def test_a_mixture_has_as_many_experts_as_its_config():
    random, features = np.random.default_rng(2), 3
    shapes = {"prior.weight": (2, features), "prior.bias": (2,)}
    shapes |= {"latent.weight": (2 * OUTPUTS, features), "latent.bias": (2 * OUTPUTS,)}
    mixture = {
        f"mixsoft.{name}": random.normal(size=shape) for name, shape in shapes.items()
    }
    config = configs.load("ptb_mos", "released")
    config.model.update(depth=5, dilation_rate=(1, 2), auxiliary_every=3)
    source = released.language_model(state_dict() | mixture, config)
    config = released.with_sizes_from_shapes(
        config, source, {"model.depth", "model.dilation_rate"}
    )
    with refuses("weights of the shapes .* `--config.model` fields"):
        released.give_weights(models.build(config, WORDS), source)
    config.model.mixture.experts = 2
    built = models.build(config, WORDS)
    released.give_weights(built, source)
    ids = random.integers(0, WORDS, (2, 9))
    (expected, _), (found, _) = (
        model.score(ids[:, :-1], ids[:, 1:], initial_state=model.get_initial_state(2))
        for model in (source, built)
    )
    assert_allclose(found, expected, rtol=1e-6)


PIXELS = (
    *("--config.model.depth=3", "--config.model.dilation_rate=(1,2,4)"),
    *("--config.data.validation=6", "--config.data.batch_size=7"),
)


def pixel_state_dict(channels=1):
    """As the released `TrellisNetModel` for pixels names its parameters."""
    random = np.random.default_rng(3)
    arrays = {"linear.weight": (10, 10), "linear.bias": (10,)}
    units = 12
    for name, inputs in (("weight1", channels), ("weight2", units)):
        arrays[f"network.0.module.full_conv.{name}_g"] = (4 * units, 1, 1)
        arrays[f"network.0.module.full_conv.{name}_v_raw"] = (4 * units, inputs, 2)
    arrays["network.0.module.full_conv.bias2"] = (4 * units,)
    return {
        name: random.normal(size=shape).astype("f") for name, shape in arrays.items()
    }


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    for split in ("train", "test"):
        random = np.random.default_rng(len(split))
        images, labels = random.integers(0, 256, (20, 28, 28)), np.arange(20) % 10
        mnist_files.write(folder, split, images, labels)
    return folder


@pytest.fixture
def import_pixels(call, checkpoint, digits):
    def import_pixels(*arguments, status=0, task="seq_mnist"):
        given = [f"--task={task}", f"--checkpoint={checkpoint}", f"--data_dir={digits}"]
        return call(import_weights, *given, *PIXELS, *arguments, status=status)

    return import_pixels


@pytest.mark.parametrize("task", ["seq_mnist", "permuted_mnist"])
def test_pixel_models_classify_as_converted_ones_do(
    import_pixels, call, digits, checkpoint, tmp_path, task
):
    arrays = pixel_state_dict()
    save(checkpoint, arrays)
    order, flags = None, []
    if task == "permuted_mnist":
        order = np.random.default_rng(7).permutation(784)
        np.save(tmp_path / "order.npy", order)
        flags = [f"--permutation={tmp_path / 'order.npy'}"]
    assert "10 classes, depth 3, dilation (1, 2, 4)\n" in import_pixels(
        *flags, task=task
    )
    model = convert.classifier_from_torch(
        arrays, depth=3, dilation_rate=(1, 2, 4), permutation=order
    )
    found = images.load(images.MNIST, digits)
    logits = model(images.normalise(images.MNIST, found.test.pixels))
    path = epath.Path(tmp_path / "run")
    run = sequence_runs.SequenceExperiment(
        run_folders.load_config(path), str(digits), path
    ).build()
    checkpoints.load_best(path, run)
    assert_allclose(
        run(images.normalise(images.MNIST, found.test.pixels)), logits, rtol=1e-5
    )
    right = 100 * np.mean(np.argmax(logits, -1) == found.test.labels)
    evaluated = call(pixels, "--mode=evaluate", f"--data_dir={digits}")
    assert f"test accuracy: {right:.2f} %" in evaluated
    error = call(
        pixels, f"--task={task}", f"--data_dir={digits}", "--preset=released", status=2
    )
    assert "holds imported weights, which training would replace" in error


def test_pixels_of_other_images_are_refused(import_pixels, checkpoint, tmp_path):
    save(checkpoint, pixel_state_dict(channels=3))
    assert "the config's model has weights of the shapes" in import_pixels(status=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("end", ["full", "stopped"])
def test_an_import_that_does_not_end_leaves_no_folder(
    run_import, tmp_path, monkeypatch, end
):
    def fails(*_):
        if end == "stopped":
            raise stopping.StoppedError(signal.SIGTERM)
        return False

    monkeypatch.setattr(import_weights.checkpoints.Checkpoints, "save_best", fails)
    if end == "stopped":
        with pytest.raises(stopping.StoppedError):
            run_import(*DEPTH, *OTHERS)
    else:
        error = run_import(*DEPTH, *OTHERS, status=4)
        assert error.startswith("error: the weights could not be written to ")
    assert not (tmp_path / "run").exists()
