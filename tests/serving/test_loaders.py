"""Each loader gives the numbers of the Keras model, of a row alone and of rows together."""

import collections
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import filelock
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tests.serving import models
from tests.serving.keras_answers import answer
from tests.serving.served import assert_row, ragged, rows_of, sampling

ROOT = Path(__file__).parents[2]
OF_WORDS = ["a b zz c\nd", "", " j i"]
TEXTS = {
    "tied": ["a b zz c\nd qwfp zxcv <unk>", "", " j i"],
    "mixture": OF_WORDS,
    "recurrent": OF_WORDS,
    "adaptive": ["ab é日\nc", "", "da"],
}
ROWS = [[3, 1, 7, 5, 4], [2], [0, 6]]
UNTOLD = {
    *("cache_fingerprint", "ranks"),
    *("likeliest_tokens", "likeliest_ids", "likeliest_log_probs"),
}
"""What the methods of a Keras model do not tell."""
# Kinds of inputs: text, ids, caches.
ONE_OF_EACH = ("tokenize", "score_ids_v2", "step_v2", "generate_v2")


def language_model_requests(name, model, no_text):
    """A batch of three rows to each signature of a language model; `no_text` is a row's cache."""
    texts = {"text": np.array([text.encode() for text in TEXTS[name]], object)}
    names = ("serving_default", "serve", "tokenize")
    none = {"alternatives": np.zeros([3], int)}
    settings = sampling(
        3,
        temperature=[1, 0, 0.7],
        top_k=[0, 3, 5],
        top_p=[1, 1, 0.8],
        seed=[5, 6, -7],
        max_length=[4, 6, 2],
        forbidden_ids=[[-1, 4], [-2, -2], [0, 0]],
    )
    prompts = ragged([row[:-1] for row in ROWS])
    caches = [
        {
            "ids": row[-1],
            **answer(name, model, "prefill_v2", {"ids": np.array(row), "lengths": n}),
        }
        for row, n in zip(ROWS, prompts["lengths"], strict=True)
    ]
    empty = {key: np.repeat(value, 3, axis=0) for key, value in no_text.items()}
    step = {
        key: np.stack([each[key] for each in caches])
        for key in caches[0].keys() & {"ids", *empty}
    }
    step["cache_fingerprint"] = empty["cache_fingerprint"]
    requests = {
        **{signature: texts for signature in names},
        "score_v2": texts | none,
        "score_ids_v2": prompts | none,
        "prefill_v2": prompts,
        "step_v2": step,
        "generate_v2": {**ragged(ROWS), **settings, **empty},
    }
    if name in (
        "tied",
        "adaptive",
    ):  # words and characters; else what depends on head and layer
        return requests
    return {
        signature: requests[signature]
        for signature in ("serving_default", "step_v2", "generate_v2")
    }


def classifier_requests(name):
    random = np.random.default_rng(0)
    if name == "images":
        requests = {"images": random.integers(0, 256, [3, 2, 3, 2], np.uint8)}
    else:
        sequences = random.normal(size=[3, 5, 2]).astype("float32")
        lengths = np.array([5, 1, 3])
        sequences[np.arange(5) >= lengths[:, None]] = np.nan  # padding
        requests = {"sequences": sequences, "lengths": lengths}
    return {"serving_default": requests, "serve": requests}


@pytest.fixture(scope="module")
def no_text(load):
    """The cache of no text in a request, of one row, by model."""
    return {name: load(name).no_text(1) for name in models.VOCABULARIES}


@pytest.fixture(scope="module")
def requests(keras_models, no_text):
    """Batches of three rows, by model and signature."""
    return {
        name: language_model_requests(name, model, no_text[name])
        if name in models.VOCABULARIES
        else classifier_requests(name)
        for name, model in keras_models.items()
    }


@pytest.fixture(scope="module")
def expected(keras_models, requests, no_text):
    """What the Keras models answer to them: three rows, by model and signature."""

    def shown(name, answers):
        """An answer without the tensors of the model's cache that nothing reads."""
        cache = no_text.get(name, ())
        return {
            key: value
            for key, value in answers.items()
            if key in cache or not key.startswith("cache_")
        }

    return {
        name: {
            signature: [
                shown(name, answer(name, model, signature, rows_of(request, row)))
                for row in range(3)
            ]
            for signature, request in requests[name].items()
        }
        for name, model in keras_models.items()
    }


def together_and_alone(request):
    """Yields which rows of a request to send, and the request: all, and each without padding."""
    yield [0, 1, 2], request
    for row in range(3):
        alone = rows_of(request, slice(row, row + 1))
        for name in ("ids", "sequences"):
            if name in alone and "lengths" in alone:
                alone[name] = alone[name][:, : alone["lengths"][0]]
        yield [row], alone


def assert_answers(actual, rows, expected):
    for index, row in enumerate(rows):
        assert actual.keys() - expected[row].keys() <= UNTOLD
        told = {name: actual[name] for name in expected[row]}
        assert_row(rows_of(told, index), expected[row])


def run(*command, **kwargs):
    """Runs a command from the repository's root; returns what it prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, **kwargs)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_process_without_the_package(exports, requests, expected, tmp_path):
    cases = [
        (name, signature, rows, request)
        for name, signatures in requests.items()
        for signature, batch in signatures.items()
        for rows, request in together_and_alone(batch)
    ]
    calls = [
        (str(exports[name]), signature, request)
        for name, signature, _, request in cases
    ]
    (tmp_path / "calls").write_bytes(pickle.dumps(calls))
    program = [sys.executable, "-m", "tests.serving.without_package"]
    run(*program, tmp_path / "calls", tmp_path / "answers")
    answers = pickle.loads((tmp_path / "answers").read_bytes())
    for (name, signature, rows, _), actual in zip(cases, answers, strict=True):
        assert_answers(actual, rows, expected[name][signature])


# The console script several times, without importing TensorFlow for each.
_COMMANDS = """
import importlib.metadata, json, sys
(script,) = importlib.metadata.entry_points(group="console_scripts", name="saved_model_cli")
main = script.load()
for arguments in json.load(sys.stdin):
    sys.argv = ["saved_model_cli", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
CLI = Path(sys.executable).with_name("saved_model_cli")


@pytest.fixture(scope="module")
def specs(load):
    """The shapes and dtypes of inputs, by model, signature and name."""
    served = {name: load(name) for name in models.KINDS}
    return {
        name: {signature: model.inputs(signature) for signature in model.signatures()}
        for name, model in served.items()
    }


def run_arguments(folder, signature, specs, request, scratch):
    """The arguments of `saved_model_cli run` for a request and its answer in files."""
    scratch.mkdir(parents=True)
    for name, spec in specs.items():
        dtype = "S" if spec.dtype == tf.string else spec.dtype.as_numpy_dtype
        np.save(scratch / f"in_{name}.npy", np.asarray(request[name]).astype(dtype))
    inputs = ";".join(f"{name}={scratch}/in_{name}.npy" for name in specs)
    options = {
        "dir": folder,
        "tag_set": "serve",
        "signature_def": signature,
        "outdir": scratch,
    }
    return [
        "run",
        *(f"--{name}={value}" for name, value in options.items()),
        f"--inputs={inputs}",
    ]


def test_saved_model_cli(exports, specs, requests, expected, tmp_path):
    cases = [("tied", signature) for signature in ONE_OF_EACH]
    cases += [(name, "serving_default") for name in models.KINDS if name != "tied"]
    places = [tmp_path / name / signature for name, signature in cases]
    commands = [
        run_arguments(
            exports[name],
            signature,
            specs[name][signature],
            requests[name][signature],
            place,
        )
        for (name, signature), place in zip(cases, places, strict=True)
    ]
    run(sys.executable, "-c", _COMMANDS, input=json.dumps(commands).encode())
    for (name, signature), place in zip(cases, places, strict=True):
        files = [
            path for path in place.glob("*.npy") if not path.name.startswith("in_")
        ]
        answers = {path.stem: np.load(path, allow_pickle=True) for path in files}
        assert_answers(answers, range(3), expected[name][signature])


def test_the_console_script(exports, requests):
    shown = run(CLI, "show", "--all", "--dir", exports["tied"]).decode()
    for signature, request in requests["tied"].items():
        assert f"signature_def['{signature}']" in shown
        assert all(f"inputs['{name}'] tensor_info" in shown for name in request)


def test_tfsm_layer(exports, specs, requests, expected):
    cases = [("tied", signature) for signature in ONE_OF_EACH]
    for name, signature in [
        *cases,
        ("recurrent", "generate_v2"),
        ("sequences", "serve"),
    ]:
        layer = keras.layers.TFSMLayer(str(exports[name]), call_endpoint=signature)
        request = {
            key: tf.constant(requests[name][signature][key], spec.dtype)
            for key, spec in specs[name][signature].items()
        }
        # One input is given as it is, several as a dictionary.
        answers = layer(request if len(request) > 1 else next(iter(request.values())))
        answers = {key: value.numpy() for key, value in answers.items()}
        assert_answers(answers, range(3), expected[name][signature])


def test_tfsm_layer_in_a_model(exports, expected):
    layer = keras.layers.TFSMLayer(str(exports["tied"]), call_endpoint="serve")
    text = keras.Input([], dtype="string")
    model = keras.Model(text, layer(text))
    answers = model.predict(tf.constant(TEXTS["tied"]), batch_size=2, verbose=0)
    assert_answers(answers, range(3), expected["tied"]["serve"])


@pytest.fixture(scope="module")
def c_programs(shared_folder):
    """The folder of the compiled programs of examples/c."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler: cc")
    folder = shared_folder / "c"
    build = ROOT / "examples" / "c" / "build.sh"
    with filelock.FileLock(f"{folder}.lock"):
        if not (folder / "built").exists():
            run(build, folder, env={**os.environ, "PYTHON": sys.executable})
            (folder / "built").touch()
    return folder


def told(printed):
    """What the C program says of each row, by the name of the answer."""
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in printed.decode().splitlines():
        row, name, *values = line.split("\t")
        rows[int(row)][name].append(values)
    return rows


def expected_of_text(name, model, text, row, length):
    """What the C program shall print of a text."""
    asked = functools.partial(answer, name, model)
    described = asked("serving_default", {"text": text})
    scored = asked("score_v2", {"text": text})
    tokens = zip(described["next_tokens"], described["next_probabilities"], strict=True)
    prompt = asked("tokenize", {"text": b"\n" + text})
    steps, ids = [], [*prompt["ids"]]
    for _ in range(length):
        read = {"ids": np.array(ids), "lengths": len(ids)}
        log_probs = asked("prefill_v2", read)["log_probs"]
        ids.append(log_probs.argmax())
        steps.append([ids[-1], log_probs.max()])
    settings = rows_of(
        sampling(1, seed=row, max_length=2 * length, forbidden_ids=-1), 0
    )
    text = (
        asked("generate_v2", {**prompt, **settings})["text"]
        .decode()
        .replace("\n", "\\n")
    )
    return {
        "perplexity": [[described["perplexity"]]],
        "next": [[token.decode(), probability] for token, probability in tokens],
        "total": [[scored["total"]]],
        "total of ids": [[scored["total"]]],
        "nll": [[each] for each in scored["nll"]],
        "step": steps,
        "generated": text,
    }


def assert_told(actual, expected):
    generated = "".join(piece for (piece,) in actual.pop("generated"))
    assert generated == expected.pop("generated")
    expected = {name: values for name, values in expected.items() if values}
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert [each[:-1] for each in actual[name]] == [
            list(map(str, v[:-1])) for v in values
        ]
        numbers = [float(each[-1]) for each in actual[name]]
        wanted = [each[-1] for each in values]
        assert_allclose(numbers, wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def test_c_program_with_a_language_model(exports, keras_models, c_programs):
    name, length = "tied", 3
    texts, model = TEXTS[name], keras_models[name]
    expected = [
        expected_of_text(name, model, text.encode(), row, length)
        for row, text in enumerate(texts)
    ]
    for batch in (texts, texts[:1]):
        printed = run(c_programs / "language_model", exports[name], str(length), *batch)
        rows = told(printed)
        assert len(rows) == len(batch)
        for row in range(len(batch)):
            assert_told(rows[row], dict(expected[row]))


def test_c_program_with_a_classifier(exports, requests, expected, c_programs):
    numbers = requests["sequences"]["serve"]["sequences"][0].astype(str)
    command = [c_programs / "classifier", exports["sequences"], "2"]
    printed = run(*command, input=" ".join(numbers.flat).encode()).decode().split()
    assert printed[::2] == ["0", "1", "2"]
    wanted = expected["sequences"]["serve"][0]["probabilities"]
    assert_allclose(np.array(printed[1::2], float), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["/nowhere", "1", "a"], "/nowhere"),
        (["{}", "0", "a"], "LENGTH must be a number of at least 1. Received: 0"),
        (["{}", "1"], "usage"),
        (["{}", "1", "xyz"], "`text` must be made of symbols of the vocabulary"),
    ],
)
def test_c_program_says_what_is_wrong(exports, c_programs, arguments, message):
    arguments = [each.format(exports["adaptive"]) for each in arguments]
    done = subprocess.run(
        [c_programs / "language_model", *arguments], capture_output=True
    )
    assert done.returncode == 1 and message in done.stderr.decode()


def test_a_graph_has_plain_operations_alone(exports):
    """A server has XLA switched off by default, and a SavedModel holds no custom gradients."""
    for name in models.KINDS:
        folder = exports[name]
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            graph = tf.compat.v1.saved_model.load(
                session, ["serve"], str(folder)
            ).graph_def
        nodes = [
            *graph.node,
            *(node for each in graph.library.function for node in each.node_def),
        ]
        assert nodes
        for each in [*nodes, *graph.library.function]:
            assert not each.attr["_XlaMustCompile"].b, each
            assert "_gradient_op_type" not in each.attr, each
