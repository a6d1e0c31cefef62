"""`python -m trainers.client`, and that a server's batching changes no answer.

The server is one on loopback, unless TRELLIS_SERVER says where another one has the model that
`tests.serving.models` writes, as "HOST:GRPC_PORT,HOST:REST_PORT", and TRELLIS_MODELS the folder.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from concurrent import futures

import numpy as np
import pytest
import requests
import tensorflow as tf
from absl import flags
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.serving import runtime
from tests import ROOT
from tests.serving import batching, model_server, models
from tests.serving.served import SIGNATURES
from tests.serving.serving import Server
from trainers import client
from trainers.serving import remote, signatures

NAME = "words"
VOCABULARY = models.MODELS[NAME].vocabulary
SAMPLING = remote.Sampling(max_length=10, temperature=1.0, top_k=0, top_p=1.0, seed=3)


PAGE = ROOT / "docs" / "reference" / "signatures.md"
SERVER = os.environ.get("TRELLIS_SERVER")
TENSORFLOW_SERVING = ("grpc", "rest")


@pytest.fixture(scope="module")
def served(exports):
    if SERVER:
        return model_server.Model(pathlib.Path(os.environ["TRELLIS_MODELS"]) / NAME)
    return model_server.Model(exports[NAME].parent)


@contextlib.contextmanager
def serving(model):
    """Yields the addresses of a model by protocol."""
    with model_server.serve(model) as found:
        yield dict(zip(TENSORFLOW_SERVING, found, strict=True))


@pytest.fixture(scope="module")
def addresses(served):
    if SERVER:
        yield dict(zip(TENSORFLOW_SERVING, SERVER.split(","), strict=True))
    else:
        with serving(served) as found:
            yield found


@pytest.fixture(params=TENSORFLOW_SERVING)
def flag(request, addresses):
    return [f"--protocol={request.param}", f"--server={addresses[request.param]}"]


@pytest.fixture
def model(flag, addresses):
    protocol = flag[0].partition("=")[2]
    return client.PROTOCOLS[protocol](addresses[protocol], NAME, 60)


def run(*arguments, status=0):
    """Runs a command line in this process."""
    values = flags.FlagValues()
    client.define_flags(values)
    rest = values(["client", f"--model={NAME}", *arguments])
    assert client.run(rest, values) == status


def text_of(served, prompt_ids, sampling):
    """What the model writes in one call, without a server."""
    ids = np.array([prompt_ids], np.int32)
    rows = {"lengths": np.int32([len(prompt_ids)])}
    none = served.predict("prefill_v2", {"ids": ids, "lengths": np.int32([0])})
    cache = {name: value for name, value in none.items() if name.startswith("cache_")}
    settings = {
        "max_length": np.int32([sampling.max_length]),
        "temperature": np.float32([sampling.temperature]),
        "top_k": np.int32([sampling.top_k]),
        "top_p": np.float32([sampling.top_p]),
        "seed": np.int64([sampling.seed]),
        "stop_ids": np.int32([[-1]]),
        "stop": np.array([[""]], object),
        "alternatives": np.int32([0]),
        "forbidden_ids": np.int32([[-1]]),
    }
    answer = served.predict("generate_v2", {"ids": ids, **rows, **settings, **cache})
    return answer["text"][0].decode()


def scored(served, text):
    """The scores of a text, without a server."""
    texts = np.array([text.encode()], object)
    return served.predict("score_v2", {"text": texts, "alternatives": np.int32([0])})


def test_scores_are_the_models(served, model):
    found = model.score("a é zebra\nb")
    alone = scored(served, "a é zebra\nb")
    assert found.words == ["a", "é", "zebra", "<eos>", "b"]
    assert found.known == [True, True, False, True, True]
    assert_allclose(found.nll, alone["nll"][0], rtol=1e-5)
    assert found.perplexity == pytest.approx(math.exp(alone["nll"][0].mean()), rel=1e-5)


def test_nothing_has_no_surprise(model):
    scores = model.score("")
    assert scores == ([], [], []) and scores.perplexity == 1.0


@pytest.mark.parametrize("chunk", [1, 3, 8, 20])
def test_text_is_the_same_in_pieces(served, model, chunk, monkeypatch):
    monkeypatch.setattr(signatures, "CHUNK", chunk)
    pieces = list(model.generate("a b", SAMPLING))
    assert len(pieces) == -(-SAMPLING.max_length // chunk)
    assert "".join(pieces) == text_of(served, [0, 2, 3], SAMPLING)


def test_sampling_is_asked_for(served, model):
    for change in ({"seed": 4}, {"temperature": 0.0}, {"top_k": 2}, {"top_p": 0.3}):
        sampling = SAMPLING._replace(**change)
        expected = text_of(served, [0], sampling)
        assert "".join(model.generate("", sampling)) == expected
        assert expected != text_of(served, [0], SAMPLING)


def test_pieces_come_one_by_one(served, monkeypatch):
    asked = []
    monkeypatch.setattr(
        served,
        "predict",
        lambda *call: asked.append(call[0]) or type(served).predict(served, *call),
    )
    with model_server.serve(served) as (address, _):
        pieces = signatures.Grpc(address, NAME, 60).generate("a", SAMPLING)
        assert next(pieces)
        assert asked == [
            *("tokenize", "detokenize", "prefill_v2"),
            *("generate_v2", "detokenize"),
        ]
    with pytest.raises(remote.RemoteError, match=f"no answer from {address}"):
        next(pieces)  # the server has gone


def test_caches_are_the_same_over_both(served, model):
    cache, expected = {}, {}
    for signature, ids in (
        ("prefill_v2", np.int32([[2, 3], [4, 5]])),
        ("step_v2", np.int32([6, 7])),
    ):
        lengths = {"lengths": np.int32([2, 1])} if signature == "prefill_v2" else {}
        answer = model.predict(signature, ids=ids, **lengths, **cache)
        arrays = {
            name: np.asarray(value, expected[name].dtype)
            for name, value in cache.items()
        }
        expected = served.predict(signature, {"ids": ids, **lengths, **arrays})
        for name, value in expected.items():
            _equal(answer[name], value, name)
        cache = {
            name: value for name, value in answer.items() if name.startswith("cache_")
        }


def requests_of(served):
    """A list of requests for each signature, of one and of two rows, of different lengths."""
    text = [
        {"text": np.array(rows, object)}
        for rows in ([b"a b c d"], [b"e", "é f".encode()])
    ]
    ids = [
        {"ids": np.int32([[2, 3, 4, 5]]), "lengths": np.int32([4])},
        {"ids": np.int32([[6, 2], [7, 8]]), "lengths": np.int32([1, 2])},
    ]
    caches = [
        {
            name: value
            for name, value in served.predict("prefill_v2", each).items()
            if "cache" in name
        }
        for each in ids
    ]
    settings = [
        {
            "temperature": np.float32([0.5]),
            "top_k": np.int32([0]),
            "top_p": np.float32([1]),
            "seed": np.int64([1]),
            "max_length": np.int32([6]),
            "stop_ids": np.int32([[-1]]),
            "stop": [[""]],
            "forbidden_ids": np.int32([[-1]]),
        },
        {
            "temperature": np.float32([2, 0]),
            "top_k": np.int32([3, 1]),
            "top_p": np.float32([1, 0.5]),
            "seed": np.int64([2, 3]),
            "max_length": np.int32([2, 4]),
            "stop_ids": np.int32([[0, 3], [-1, 5]]),
            "stop": [["b c", "e"], ["", ""]],
            "forbidden_ids": np.int32([[0, 3], [-2, 1]]),
        },
    ]
    asked = [{"alternatives": np.int32(each)} for each in ([1], [3, 0])]
    return {
        **dict.fromkeys(("serving_default", "serve", "tokenize"), text),
        **dict.fromkeys(("detokenize", "prefill_v2"), ids),
        "score_v2": [{**t, **a} for t, a in zip(text, asked, strict=True)],
        "score_ids_v2": [{**i, **a} for i, a in zip(ids, asked, strict=True)],
        "step_v2": [
            {"ids": i["ids"][:, 0], **c} for i, c in zip(ids, caches, strict=True)
        ],
        "generate_v2": [
            {**i, **s, **a, **c}
            for i, s, a, c in zip(ids, settings, asked, caches, strict=True)
        ],
    }


@pytest.fixture(scope="module")
def merging(served, addresses):
    if SERVER:  # which is to have its batching on
        yield signatures.Grpc(addresses["grpc"], NAME, 60)
        return
    model = served.merging(batching.Merge(requests=2, allowed_batch_sizes=(2, 5)))
    with model_server.serve(model) as (address, _):
        yield signatures.Grpc(address, NAME, 60)


@pytest.mark.parametrize("signature", [*SIGNATURES, "serve"])
def test_merged_requests_do_not_mix(served, merging, addresses, signature):
    assert {*served.metadata.signature_def} == {*requests_of(served)}
    alone = signatures.Grpc(addresses["grpc"], NAME, 60)
    both = requests_of(served)[signature]
    with futures.ThreadPoolExecutor(2) as pool:
        answers = list(
            pool.map(lambda request: merging.predict(signature, **request), both)
        )
    for request, answer in zip(both, answers, strict=True):
        for name, expected in alone.predict(signature, **request).items():
            own = tuple(slice(size) for size in expected.shape)
            beyond = np.ones(answer[name].shape, bool)
            beyond[own] = False
            _equal(answer[name][own], expected, name)
            # Of a longer neighbour.
            assert {*answer[name][beyond].tolist()} <= {0, -1, b""}


def _equal(value, expected, name):
    if expected.dtype == np.float32:
        assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    else:
        assert_array_equal(value, expected, err_msg=name)


def test_a_text_beside_a_longer_one_keeps_its_tokens(served):
    merging = served.merging(batching.Merge(requests=2, allowed_batch_sizes=(4,)))
    with (
        model_server.serve(merging) as (address, _),
        futures.ThreadPoolExecutor(2) as pool,
    ):
        model = signatures.Grpc(address, NAME, 60)
        found = list(pool.map(model.score, ["a b c d e", "é"]))
    assert [len(each.words) for each in found] == [5, 1]
    alone = scored(served, "é")
    assert found[1].perplexity == pytest.approx(math.exp(alone["total"][0]), rel=1e-5)


def test_the_command_writes(served, flag, capsys):
    run(*flag, "--prompt=a b", "--max_length=10", "--seed=3")
    assert capsys.readouterr().out == f"a b{text_of(served, [0, 2, 3], SAMPLING)}\n"


def test_the_command_writes_something_else_each_time(flag, capsys):
    texts = set()
    for _ in range(2):
        run(*flag, "--max_length=40")
        texts.add(capsys.readouterr().out)
    assert len(texts) == 2


def test_the_command_scores(served, flag, capsys):
    run(*flag, "--mode=score", "--prompt=a b")
    nll = scored(served, "a b")["nll"][0]
    perplexity = math.exp(nll.mean())
    *lines, last = capsys.readouterr().out.splitlines()
    numbers, tokens = zip(*(line.split() for line in lines), strict=True)
    assert tokens == ("a", "b")
    assert_allclose([float(number) for number in numbers], nll, atol=1e-4)
    assert last.split() == ["perplexity", last.split()[1], "of", "2", "tokens"]
    assert float(last.split()[1]) == pytest.approx(perplexity, abs=1e-3)


def test_the_command_tells_what_may_come_next(served, flag, capsys):
    run(*flag, "--mode=next", "--prompt=a b")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    ids = np.int32([[0, 2, 3]])
    log_probs = served.predict("prefill_v2", {"ids": ids, "lengths": np.int32([3])})[
        "log_probs"
    ][0]
    order = np.argsort(-log_probs)
    assert [token for _, token in lines] == [VOCABULARY[index] for index in order]
    probabilities = [float(probability) for probability, _ in lines]
    assert_allclose(probabilities, np.exp(log_probs[order]), atol=1e-4)


@pytest.mark.parametrize(
    "mode, prompt, told",
    [
        (
            "score",
            "a zebra <unk> yak b",
            "2 of 5 words are unknown to the model; it reads",
        ),
        ("generate", "a zebra b", "1 of 3 words is unknown to the model; it reads"),
        ("next", "a zebra yak b", "2 of the words are unknown to the model; it reads"),
    ],
)
def test_unknown_words_are_told(flag, capsys, mode, prompt, told):
    run(*flag, f"--mode={mode}", f"--prompt={prompt}")
    output = capsys.readouterr()
    assert output.err == f"warning: {told} each as <unk>\n"
    if mode == "score":
        lines = [line.split()[1:] for line in output.out.splitlines()[:-1]]
        assert lines == [
            ["a"],
            ["zebra", "(unknown)"],
            ["<unk>"],
            ["yak", "(unknown)"],
            ["b"],
        ]
    run(*flag, f"--mode={mode}", "--prompt=a <unk>")
    assert not capsys.readouterr().err


def test_the_unknown_word_is_written_where_it_is_allowed(flag, capsys):
    def text(*more):
        run(*flag, "--prompt=a", "--max_length=60", "--seed=1", *more)
        return capsys.readouterr().out

    assert "<unk>" not in text() and "<unk>" in text("--allow_unknown")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["--mode=next", "--allow_unknown"],
            "--allow_unknown has no use in --mode=next, only",
        ),
        (["--model=other"], "for other: Servable not found for request: Latest(other)"),
    ],
)
def test_errors_are_one_line(flag, capsys, arguments, message):
    run(*flag, *arguments, status=2)
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize("protocol", TENSORFLOW_SERVING)
def test_what_was_written_stays_when_the_server_fails(
    served, protocol, monkeypatch, capsys
):
    text, calls = text_of(served, [0, 2], SAMPLING._replace(max_length=8)), []

    def predict(signature, inputs):
        calls.append(signature)
        if calls.count("generate_v2") == 2:
            raise tf.errors.UnavailableError(None, None, "the server stops")
        return type(served).predict(served, signature, inputs)

    monkeypatch.setattr(served, "predict", predict)
    with serving(served) as found:
        server = [f"--protocol={protocol}", f"--server={found[protocol]}"]
        run(*server, "--prompt=a", "--seed=3", status=2)
    output = capsys.readouterr()
    assert output.out == f"a{text}\n"
    assert output.err.count("\n") == 1 and "the server stops" in output.err


@pytest.fixture(scope="module")
def own_server(exports):
    """Flags for `keras-trellis serve`, and the model that it serves."""
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    server = Server(exports["tied"].parent, KERAS_TRELLIS_KEY="k3y")
    flags_of_it = ["--protocol=http", f"--server=127.0.0.1:{server.port}"]
    yield [*flags_of_it, "--model=tied"], runtime.load(exports["tied"])
    assert server.stop() == 0


def test_our_own_server_is_asked_the_same(own_server, capsys, monkeypatch):
    arguments, model = own_server
    prompt = "a zz b"
    run(*arguments, f"--prompt={prompt}", status=2)
    assert "answered 401 Unauthorized for tied: the key" in capsys.readouterr().err
    monkeypatch.setenv("KERAS_TRELLIS_KEY", "k3y")
    sampling = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "seed": -5}
    asked = [f"--{name}={value}" for name, value in sampling.items()]
    run(*arguments, f"--prompt={prompt}", "--max_length=40", *asked)
    text = model.complete([prompt], max_length=40, forbidden_ids=[-1], **sampling).text
    printed = model.tokenizer.in_print(prompt + text[0])
    assert printed != prompt + text[0]
    output = capsys.readouterr()
    assert output.out == f"{printed}\n"
    assert "1 of 3 words is unknown to the model" in output.err
    run(*arguments, f"--prompt={prompt}", "--mode=score")
    *lines, last = capsys.readouterr().out.splitlines()
    nll = model.score([prompt]).nll[0]
    assert_allclose([float(s.split()[0]) for s in lines], nll, atol=1e-4)
    assert lines[1].split()[1:] == ["zz", "(unknown)"]
    assert float(last.split()[1]) == pytest.approx(np.exp(nll.mean()), abs=1e-3)
    run(*arguments, f"--prompt={prompt}", "--mode=next")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    tokens, probabilities = model.next([prompt], 10)
    assert [token for _, token in rows] == tokens[0]
    found = [float(probability) for probability, _ in rows]
    assert_allclose(found, probabilities[0], atol=1e-4)


def test_pieces_of_a_character_are_known(exports, capsys):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    server = Server(exports["pieces"].parent)
    flags_of_it = ["--protocol=http", f"--server=127.0.0.1:{server.port}"]
    run(*flags_of_it, "--model=pieces", "--prompt=the 日本", "--mode=score")
    output = capsys.readouterr()
    assert server.stop() == 0
    assert "of 6 tokens" in output.out
    assert "unknown" not in output.out + output.err


def test_what_our_own_server_refuses_is_one_line(own_server, capsys, monkeypatch):
    arguments, _ = own_server
    monkeypatch.setenv("KERAS_TRELLIS_KEY", "k3y")
    for wrong, message in (
        (["--model=other"], "answered 404 Not Found for other: `model` must be 'tied'"),
        (["--max_length=5000"], "`max_tokens` must be at most 4096"),
    ):
        run(*arguments, *wrong, status=2)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and message in line


def fenced(language):
    """Returns the page's blocks in a language, made to ask for this model."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return [block.replace("pydoc", NAME) for block in blocks]


def test_the_pages_request_over_grpc(served, addresses, capsys):
    (program,) = fenced("py")
    exec(program.replace("localhost:8500", addresses["grpc"]), {})
    # What the page asks about: three words that this model does not know.
    unknown = [0, 1, 1, 1]
    likeliest = remote.Sampling(
        max_length=8, temperature=0.0, top_k=0, top_p=1.0, seed=0
    )
    assert capsys.readouterr().out == f"{text_of(served, unknown, likeliest)}\n"


def test_the_pages_requests_over_rest(addresses):
    (commands,) = (block for block in fenced("sh") if "localhost:8501" in block)
    (answers,) = (block for block in fenced("json") if "predictions" in block)
    for command, answer in zip(
        commands.splitlines(), answers.splitlines(), strict=True
    ):
        url, body = re.fullmatch(r"curl (\S+) -d '(.*)'", command).groups()
        url = url.replace("localhost:8501", addresses["rest"])
        assert _form(requests.post(url, body, timeout=60).json()) == _form(
            json.loads(answer)
        )


def _form(answer):
    """What an answer is made of, its values and their number left out."""
    if isinstance(answer, dict):
        return {name: _form(value) for name, value in answer.items()}
    return [_form(answer[0])] if isinstance(answer, list) else type(answer)


def test_the_pages_table_has_every_signature(served):
    section = PAGE.read_text().partition("\n## Signatures\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", section, re.MULTILINE)
    table = {
        name: tensors
        for name, *tensors in rows
        if name in served.metadata.signature_def
    }
    for name, signature in served.metadata.signature_def.items():
        for infos, told in zip(
            (signature.inputs, signature.outputs), table[name], strict=True
        ):
            expected = [
                f"`{key}` {tf.as_dtype(info.dtype).name} {len(info.tensor_shape.dim)}"
                for key, info in sorted(infos.items())
                if not key.startswith("cache_")
            ]
            expected += ["`cache`"] if "cache_steps" in infos else []
            ranks = re.sub(r"\[(.*?)\]", lambda each: str(1 + each[1].count(",")), told)
            assert ranks == ", ".join(expected)


@pytest.mark.parametrize("protocol", ["rest", "http"])
def test_the_command_imports_neither_keras_nor_tensorflow(protocol):
    command = [sys.executable, "-X", "importtime", "-m", "trainers.client"]
    command += [
        "--server=127.0.0.1:1",
        f"--model={NAME}",
        f"--protocol={protocol}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "error: no answer from 127.0.0.1:1" in done.stderr
    times, error = re.subn(r"^import time:.*\| +", "", done.stderr, flags=re.MULTILINE)
    assert error and "trainers.serving.remote\n" in times
    assert not re.search(r"^(keras|tensorflow)", times, re.MULTILINE)
