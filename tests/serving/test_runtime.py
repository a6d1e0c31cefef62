"""The runtime gives the answers of the SavedModel, and takes no request that cannot be right."""

import hashlib
import json
import pickle
import re
import shutil
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.formats import manifest
from keras_trellis.serving import runtime, sessions
from tests import ROOT
from tests.refusals import refuses
from tests.serving import models
from tests.serving.served import cache_of, ragged, sampling

# Levels, with words and with characters; and a stack like the default model's, in int8.
NAMES = ("tied", "adaptive", "stack")
TEXTS = {
    "tied": ["a b zz c\nd", "", "j i h g f e d c b a j " * 7, "b"],
    "adaptive": ["ab é日\nc", "", "a" * 100, "d"],
    "stack": ["A b 12 zz\nG", "", "f e d c b a " * 9, "b"],
}
ROWS = [[3, 1, 2], [5], [0, 7, 5, 4] * 12, [6, 6] * 8]


@pytest.fixture(scope="module", params=NAMES)
def both(request, load, exports):
    """A version in TensorFlow and in the runtime, and its name."""
    return load(request.param), runtime.load(exports[request.param]), request.param


@pytest.fixture(scope="module")
def stack(load, exports):
    return load("stack"), runtime.load(exports["stack"])


@pytest.fixture(scope="module")
def model(exports):
    """What the tests of requests ask: a vocabulary of 12 words."""
    return runtime.load(exports["tied"])


def assert_same(expected, found):
    """Asserts that the runtime returned what a signature did, under the same names."""
    cache = found.pop("cache", {})
    assert cache.keys() == cache_of(expected).keys()
    for name, value in expected.items():
        own = cache[name] if name in cache else found[name]
        own = np.asarray(own)
        if value.dtype == object:
            value = np.vectorize(bytes.decode, otypes=[object])(value)
        if value.dtype.kind == "f":
            assert_allclose(own, value, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            assert_array_equal(own, value, err_msg=name)


def test_texts_are_scored_alike(both):
    served, model, name = both
    texts, asked = TEXTS[name], [2, 1, 0, 3]
    expected = served("score_v2", {"text": texts, "alternatives": asked})
    found = dict(vars(model.score(texts, asked)))
    tokens = np.array([*model.tokenizer.tokens, ""], object)
    found["likeliest_tokens"] = tokens[found["likeliest_ids"]]
    assert_same(expected, found)
    assert_same(served("tokenize", {"text": texts}), model.tokenize(texts)._asdict())
    prompts = ragged([*ROWS, []])
    rows = zip(prompts["ids"], prompts["lengths"], strict=True)
    written = [model.detokenize(row[:length]) for row, length in rows]
    settled = written
    if name == "adaptive":  # whose last word may go on
        settled = [re.sub(r" *[^ \n]*\Z", "", text) for text in written]
    found = {"text": written, "settled": settled}
    assert_same(served("detokenize", prompts), found)
    if name == "tied":  # by the rule that the export carries
        assert model.detokenize([0, 1, 2, 0, 11, 1, 1]) == "a b-c a\nb b"
    described = served("serving_default", {"text": texts})
    tokens, probabilities = model.next(texts, described["next_tokens"].shape[1])
    found = {"next_tokens": tokens, "next_probabilities": probabilities}
    assert_same({name: described[name] for name in found}, found)


def test_ids_are_read_and_scored_alike(both):
    served, model, _ = both
    prompts = ragged([*ROWS, []])
    assert_same(served("prefill_v2", prompts), model.prefill(**prompts)._asdict())
    request = {**prompts, "alternatives": [1, 0, 4, 2, 1]}
    found = dict(vars(model.score_ids(**request)))
    assert_same(served("score_ids_v2", request), found)
    # A cache goes from one to the other.
    state = served("prefill_v2", prompts)
    ids = np.array([1, 2, 3, 4, 0])
    expected = served("step_v2", {"ids": ids, **cache_of(state)})
    assert_same(expected, model.step(ids, cache_of(state))._asdict())


SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "top_k": st.integers(0, 14),
        "top_p": st.sampled_from([0.31, 0.83, 1.0]),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "max_length": st.integers(1, 12),
        "alternatives": st.integers(0, 3),
        "stop_ids": st.lists(st.integers(-1, 7), min_size=2, max_size=2),
        "stop": st.lists(
            st.sampled_from(["", "a", "b c", "d\n", "é", "a a a", "ab"]),
            min_size=2,
            max_size=2,
        ),
        "forbidden_ids": st.lists(st.integers(-2, 5), min_size=2, max_size=2),
    }
)


@hypothesis.given(rows=st.lists(SETTINGS, min_size=3, max_size=3))
@hypothesis.settings(max_examples=12)
def test_rows_are_continued_alike(both, rows):
    served, model, _ = both
    settings = {name: [row[name] for row in rows] for name in rows[0]}
    prompts = ragged([ROWS[0], ROWS[1], ROWS[3]])
    request = {**prompts, **sampling(3, **settings)}
    request |= served.no_text(3)
    expected = served("generate_v2", request)
    found = model.generate(**prompts, cache=cache_of(request), **settings)
    assert_same(expected, found._asdict())
    # Alone a row is what it is beside others.
    alone = model.generate(
        prompts["ids"][1:2, :1],
        [1],
        model.empty_cache(1),
        **{name: values[1:2] for name, values in settings.items()},
    )
    length = found.lengths[1]
    assert alone.ids[0].tolist() == found.ids[1, :length].tolist()
    assert alone.text[0] == found.text[1] and alone.stopped[0] == found.stopped[1]


def test_pieces_are_scored_and_continued_alike(load, exports):
    served, model = load("pieces"), runtime.load(exports["pieces"])
    texts = ["the cat  at\nz 日本", "", "\0é"]
    expected = served("score_v2", {"text": texts, "alternatives": [2, 0, 1]})
    found = dict(vars(model.score(texts, [2, 0, 1])))
    tokens = np.array([*model.tokenizer.tokens, ""], object)
    found["likeliest_tokens"] = tokens[found["likeliest_ids"]]
    assert_same(expected, found)
    assert expected["tokens"][0, :5].tolist() == [
        b"the",
        b" cat",
        b"  ",
        b"at",
        b"<eos>",
    ]
    assert not expected["unknown"].any()
    settings = {
        "seed": range(6),
        "max_length": 25,
        "stop": [[], ["e"], ["\n"], *3 * [[]]],
    }
    prompts = ragged([[0]] * 6)
    answer = model.generate(**prompts, cache=model.empty_cache(6), **settings)
    stops = [["", ""], ["e", ""], ["\n", ""], *3 * [["", ""]]]
    request = {**prompts, **sampling(6, **{**settings, "stop": stops})}
    expected = served("generate_v2", request | served.no_text(6))
    assert_same(expected, answer._asdict())
    # Random bytes are no UTF-8. A text has them as U+FFFD, and whole characters as they are.
    assert any("\ufffd" in text for text in answer.text)
    for ids, text in zip(answer.ids[3:], answer.text[3:], strict=True):
        assert model.detokenize(ids) == text


def test_two_calls_continue_as_one(stack):
    _, model = stack
    prompts = ragged([[3, 1], [2]])
    settings = {"seed": [7, 8], "temperature": [1.0, 0.0]}
    whole = model.generate(
        **prompts, cache=model.empty_cache(2), max_length=9, **settings
    )
    begun = model.generate(
        **prompts, cache=model.empty_cache(2), max_length=4, **settings
    )
    ended = model.generate(
        begun.ids[:, -1:], [1, 1], begun.cache, max_length=5, **settings
    )
    assert_array_equal(np.hstack([begun.ids, ended.ids]), whole.ids)
    assert [a + b for a, b in zip(begun.text, ended.text, strict=True)] == whole.text
    assert_allclose(
        ended.cache["cache_levels_0"], whole.cache["cache_levels_0"], atol=1e-6
    )


def test_what_is_returned_of_a_token_is_the_models(stack):
    """Log-probabilities and alternatives are those before temperature, filters and bans."""
    _, model = stack
    settings = {"temperature": 0.3, "top_k": 2, "forbidden_ids": [3], "seed": 5}
    answer = model.complete(["a b"], max_length=6, alternatives=3, **settings)
    ids = np.array([[0, *model.tokenizer.encode(["a b"]).ids[0], *answer.ids[0]]])
    scores = model.score_ids(ids, [ids.shape[1]], 3)
    assert_allclose(answer.log_probs, -scores.nll[:, 3:], atol=1e-5)
    assert_array_equal(answer.likeliest_ids, scores.likeliest_ids[:, 3:])
    ranked = scores.ranks[0, 3:, None] == np.arange(1, 4)
    found = scores.likeliest_ids[0, 3:] == ids[0, 3:, None]
    assert_array_equal(ranked, found)
    assert model.detokenize(answer.ids[0], before=ids[0, 2]) == answer.text[0]
    assert model.detokenize([-1]) == ""
    with refuses("`ids`.*-2"):
        model.detokenize([-2])


def test_a_cache_has_no_part_that_nothing_reads(both):
    served, model, _ = both
    prompts = ragged([[3, 1, 2, 4]])
    answer = served("prefill_v2", prompts)
    parts = {name for name in cache_of(answer) if answer[name].dtype.kind == "f"}

    def continued(cache):
        answer = served("step_v2", {"ids": [1], **cache})
        return answer["log_probs"], answer

    random = np.random.default_rng(0)
    expected, before = continued(cache_of(answer))
    for name in parts:
        noise = random.normal(size=answer[name].shape)
        log_probs, after = continued({**cache_of(answer), name: noise})
        changed = [
            other
            for other, value in after.items()
            if other != name and not np.array_equal(value, before[other])
        ]
        assert changed or not np.array_equal(log_probs, expected), name


def test_both_refuse_a_cache_of_another_model(stack, model, load):
    served, runtime_model = stack
    other = model.empty_cache(1)
    own = runtime_model.empty_cache(1)
    with refuses("`cache` must be what a call of this model"):
        runtime_model.step([1], other)
    stranger = {**own, "cache_fingerprint": other["cache_fingerprint"]}
    expected = "`cache_fingerprint` must be .*: the cache must be of this model"
    with refuses(expected):
        runtime_model.step([1], stranger)
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        served("step_v2", {"ids": [1], **stranger})
    for steps in (-1, 2**30 + 1, 2**31 - 1):
        late = {**own, "cache_steps": np.array([steps], np.int32)}
        expected = f"`cache_steps` must be from 0 to {2**30}.*{steps}"
        with refuses(expected):
            runtime_model.step([1], late)
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            served("step_v2", {"ids": [1], **late})


GOOD = {"ids": [[3, 1], [2, 0]], "lengths": [2, 1], "max_length": 3, "seed": 0}


@pytest.mark.parametrize(
    "name, bad, expected",
    [
        ("ids", [[3, 12], [2, 0]], r"`ids` must be in \[0, 12\), the vocabulary.*12"),
        ("ids", [[3, -1], [2, 0]], "`ids` must be .*-1"),
        ("ids", [[0.5, 1], [2, 0]], "`ids` must be integers of 64 bits"),
        ("ids", [3, 1], r"`ids` must be of shape \[B, T\]. Received: \[2\]"),
        ("ids", np.zeros([2, 65_537], int), "prompts of at most 65536 tokens. .*65537"),
        ("lengths", [2, 0], "`lengths` must be from 1 to the number of columns.*0"),
        ("lengths", [3, 1], "`lengths` must be from 1 to the number of columns.*3"),
        ("lengths", [2], "`lengths` must have one value for each of the 2 rows"),
        ("max_length", 0, "`max_length` must be from 1 to 65536. Received: 0"),
        ("max_length", [3, 65_537], "`max_length` must be from 1 to 65536.*65537"),
        ("max_length", True, "`max_length` must be integers"),
        ("seed", 2**63, "`seed` must be integers of 64 bits"),
        ("seed", [1, 2, 3], "`seed` must have one value for each of the 2 rows"),
        ("temperature", -0.5, "`temperature` must be a number of at least 0.*-0.5"),
        ("temperature", np.nan, "`temperature` must be a number of at least 0.*nan"),
        ("temperature", "hot", "`temperature` must be numbers"),
        ("top_k", -1, "`top_k` must be at least 0"),
        ("top_p", 0, r"`top_p` must be in \(0, 1\]"),
        ("stop_ids", [12], r"`stop_ids` must be -1 \(none\) or in \[0, 12\).*12"),
        ("stop", [3], "`stop` must be"),
        ("stop", ["a" * 257], "`stop` must be texts of at most 256 bytes"),
        ("stop", [["a"]], "`stop` must be texts, or a list .* for each of the 2 rows"),
        ("forbidden_ids", [-3], "`forbidden_ids` must be -1"),
        ("forbidden_ids", range(12), "`forbidden_ids` must be less than all 12 tokens"),
        ("alternatives", 101, "`alternatives` must be from 0 to 100. Received: 101"),
        ("cache", None, "`cache` must be what a call of this model returned"),
    ],
)
def test_a_bad_request_is_a_sentence(model, name, bad, expected, monkeypatch):
    cache = model.empty_cache(2)
    monkeypatch.setattr(model, "reader", None)  # before anything is computed
    with refuses(expected) as error:
        model.generate(**{**GOOD, "cache": cache, name: bad})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("temperature", [1e300, 2**64 - 1])
def test_a_temperature_beyond_float32_writes_nothing_forbidden(model, temperature):
    forbidden = [*range(1, 12)]
    cache = model.empty_cache(2)
    settings = {"temperature": temperature, "forbidden_ids": forbidden}
    assert not model.generate(**GOOD, cache=cache, **settings).ids.any()


def test_a_cache_of_another_batch_or_shape(model):
    with refuses(r"`cache_inputs` must be .*\[2, 2, 4\]"):
        model.generate(**GOOD, cache=model.empty_cache(1))
    broken = model.empty_cache(2)
    broken["cache_levels_1"][1, 0, 0] = np.nan
    with refuses("`cache_levels_1` must be made of numbers"):
        model.generate(**GOOD, cache=broken)


def test_no_texts(model):
    assert model.score([]).nll.shape == (0, 0)
    answer = model.complete([], max_length=3, seed=0, alternatives=2)
    assert answer.text == [] and answer.lengths.shape == (0,)
    assert model.next([], 3)[0] == []
    with refuses("`count` must be from 0 to 100"):
        model.next(["a"], 101)


def test_texts_that_are_none(model, both):
    with refuses("`texts` must be a list of texts"):
        model.score("a b")
    with refuses(r"`texts` must be strings.*texts\[1\]=3"):
        model.tokenize(["a", 3])
    with refuses("`texts` must be Unicode text"):
        model.tokenize(["\ud800"])
    _, own, name = both
    if name == "adaptive":
        with refuses("symbols of the vocabulary.*'x'"):
            own.score(["abx"])


def test_classifiers_answer_alike(load, exports):
    random = np.random.default_rng(0)
    sequences = random.normal(size=[3, 5, 2]).astype("float32")
    lengths = np.array([5, 1, 3])
    sequences[np.arange(5) >= lengths[:, None]] = np.nan  # padding
    requests = {
        "sequences": {"sequences": sequences, "lengths": lengths},
        "images": {"images": random.integers(0, 256, [3, 2, 3, 2], np.uint8)},
    }
    for name, request in requests.items():
        expected = load(name)("serve", request)["probabilities"]
        found = runtime.load(exports[name])
        assert_allclose(found.classify(**request), expected, atol=1e-5)
    assert found.labels == ["0", "1", "2"]
    model = runtime.load(exports["sequences"])
    good = requests["sequences"]
    for change, message in (
        ({"lengths": [5, 0, 3]}, "`lengths` must be from 1 to the number of steps"),
        ({"lengths": [5, 1]}, "must have one row each for every request"),
        ({"lengths": [6, 1, 3]}, "`lengths` must be from 1"),
        ({"lengths": [5, 2, 3]}, "`sequences` must be made of numbers less than 1e18"),
        ({"sequences": sequences[..., :1]}, "`sequences` must be of shape .*, 2]"),
        ({"images": sequences}, "a request must have sequences, lengths"),
    ):
        with refuses(message):
            model.classify(**{**good, **change})


def test_a_process_without_keras_and_tensorflow(both, exports, tmp_path):
    _, model, name = both
    if name != "stack":
        pytest.skip("one model shows it")
    texts = TEXTS[name]
    arguments = {"texts": texts, "max_length": 7, "seed": 3, "stop": ["g"]}
    folder = str(exports[name].parent)  # whose newest version is loaded
    calls = [(folder, "score", {"texts": texts}), (folder, "complete", arguments)]
    (tmp_path / "calls").write_bytes(pickle.dumps(calls))
    command = [sys.executable, "-m", "tests.serving.without_tensorflow"]
    command += [tmp_path / "calls", tmp_path / "answers"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    scores, answer = pickle.loads((tmp_path / "answers").read_bytes())
    expected = model.complete(**arguments)
    assert_array_equal(scores["nll"], model.score(texts).nll)
    assert_array_equal(answer["ids"], expected.ids)
    assert answer["text"] == expected.text


def damaged(path):
    path.write_bytes(path.read_bytes()[:-1] + b"~")


def refusal(export, version, change, message):
    """Returns the error with which a changed copy of an export is refused, which must match."""
    shutil.copytree(export, version)
    change(version)
    with pytest.raises(manifest.ManifestError, match=message) as error:
        runtime.load(version)
    return str(error.value)


@pytest.mark.parametrize(
    "break_it, message",
    [
        (lambda v: (v / "manifest.json").unlink(), "must be the folder of an export"),
        (lambda v: (v / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (
            lambda v: (v / "manifest.json").write_text("[]"),
            "must have the format 2 or 1",
        ),
        (
            lambda v: (v / "manifest.json").write_text('{"format": 1}'),
            "manifest.json is damaged: `manifest` must have the entries",
        ),
        (lambda v: (v / "step.onnx").unlink(), "step.onnx is missing"),
        (lambda v: damaged(v / "chunk.onnx"), "chunk.onnx must have the SHA-256"),
        (
            lambda v: (v / "tokenizer.json").write_text("{}"),
            "tokenizer.json must have .* bytes. Received: 2",
        ),
    ],
)
def test_an_export_that_is_not_what_was_written(exports, tmp_path, break_it, message):
    told = refusal(exports["stack"], tmp_path / "1", break_it, message)
    assert "\n" not in told


def resealed(version, name, data):
    """Writes other bytes for a file, and what the manifest would say of them."""
    (version / name).write_bytes(data)
    entries = json.loads((version / "manifest.json").read_text())
    digest = hashlib.sha256(data).hexdigest()
    entries["files"][name] = {"bytes": len(data), "sha256": digest}
    seal(version, entries)


def seal(version, entries):
    entries["checksum"] = manifest.checksum(entries)
    (version / "manifest.json").write_text(json.dumps(entries))


def with_runtime(**changes):
    def change(version):
        entries = json.loads((version / "manifest.json").read_text())
        entries["runtime"] |= changes
        seal(version, entries)

    return change


def with_tokenizer(change):
    def forge(version):
        entries = json.loads((version / "tokenizer.json").read_text())
        entries.update(change(entries))
        resealed(version, "tokenizer.json", json.dumps(entries).encode())

    return forge


def swapped(version):
    step, chunk = ((version / f"{n}.onnx").read_bytes() for n in ("step", "chunk"))
    resealed(version, "step.onnx", chunk)
    resealed(version, "chunk.onnx", step)


def with_cache(change):
    def forge(version):
        entries = json.loads((version / "manifest.json").read_text())
        for tensor in entries["runtime"]["cache"].values():
            tensor.update(change(tensor))
            tensor.pop("first", None)
        seal(version, entries)

    return forge


@pytest.mark.parametrize(
    "forge, message",
    [
        (with_runtime(vocabulary_size=10), "size of the vocabulary, 9. Received: 10"),
        (with_runtime(files=[]), "`manifest.runtime.files` must list chunk.onnx"),
        (with_runtime(cache={}), "step.onnx must read ids and the cache"),
        *(
            (with_cache(change), "step.onnx must have cache_.* as manifest.json lists")
            for change in (
                lambda tensor: {"sizes": [size + 1 for size in tensor["sizes"]]},
                lambda tensor: {"sizes": [1, *tensor["sizes"]]},
                lambda tensor: {"dtype": "float64"},
            )
        ),
        (swapped, "step.onnx must read ids and the cache"),
        (lambda v: resealed(v, "step.onnx", b"~"), "that ONNX Runtime loads"),
        (lambda v: resealed(v, "tokenizer.json", b"[]"), "`tokenizer` must have the"),
        (
            lambda v: resealed(v, "tokenizer.json", b"[" * 200_000 + b"]" * 200_000),
            "tokenizer.json is damaged: it is nested too deeply",
        ),
        (with_tokenizer(lambda t: {"kind": "exec"}), "`tokenizer.kind` must be one of"),
        (
            with_tokenizer(lambda t: {"tokens": [*t["tokens"][:-1], 5]}),
            r"`tokenizer.tokens\[8\]` must be a text. Received: 5",
        ),
        (
            with_tokenizer(lambda t: {"tokens": [*t["tokens"][:-1], t["tokens"][1]]}),
            "must be different texts. Received: '<unk>' twice",
        ),
        (
            with_tokenizer(lambda t: {"end_of_line": "<no>"}),
            "`tokenizer.end_of_line` must be one of the tokens. Received: '<no>'",
        ),
        (
            with_tokenizer(lambda t: {"detokenize": [["replace", "(", ""]]}),
            "a pattern must be a regular expression",
        ),
    ],
)
def test_a_forged_export_is_refused_in_one_sentence(exports, tmp_path, forge, message):
    version = tmp_path / "1"
    told = refusal(exports["stack"], version, forge, message)
    assert "\n" not in told and str(version) in told


def test_an_export_of_tensorflow_alone(exports, tmp_path):
    with pytest.raises(manifest.ManifestError, match="exported without `runtime=True`"):
        runtime.load(exports["mixture"])
    with pytest.raises(manifest.ManifestError, match="must be the folder of an export"):
        runtime.load(tmp_path)
    entries = manifest.read(exports["mixture"])
    manifest.check(exports["mixture"], entries)  # all files
    card = (exports["mixture"] / "assets.extra/model_card.md").read_text()
    assert "| Without TensorFlow | no: it was exported without `runtime=True` |" in card
    card = (exports["stack"] / "assets.extra/model_card.md").read_text()
    assert (
        "| Without TensorFlow | tokenizer.json, step.onnx, chunk.onnx, weights" in card
    )
    entries = json.loads((exports["stack"] / "manifest.json").read_text())
    assert f"| Fingerprint | {entries['fingerprint']} |" in card
    assert models.MODELS["stack"].options["precision"] == "int8"


def test_nothing_is_left_in_the_home_folder(exports, tmp_path):
    """ONNX Runtime writes an identifier there where it reports what it runs."""
    program = f"""
from keras_trellis.serving import runtime
runtime.load({str(exports["tied"])!r}).score(["a b"])
"""
    # Without what marks a run of tests, for which it does neither.
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("shape", [(3,), (2, 3, 1), (2, 4)], ids=str)
def test_an_input_of_another_shape_is_told_which_it_must_have(shape):
    spec = sessions.Spec(np.float32, ["rows", 3])
    assert spec.checked("x", np.zeros([2, 3])).dtype == np.float32
    with refuses(r"`x` must be of shape \['any', 3\]\. Rec"):
        spec.checked("x", np.zeros(shape))


def test_a_file_that_is_no_graph_is_named_with_the_runtime_s_reason(tmp_path):
    path = tmp_path / "step.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(manifest.ManifestError, match=f"{path} must be .*: \\S+.*\\w"):
        sessions.Session(path, 1)
