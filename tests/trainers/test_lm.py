"""`python -m trainers.lm` from end to end, on a tiny corpus of its own."""

import json
import math
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import flagsaver
from etils import epath

from tests.trainers import calls
from trainers import evaluate, generate, lm, pixels, report
from trainers.language import exporting
from trainers.tasks.run_folders import ExportOptions

# The initializer is as release 0.1 had it.
SMALL = calls.flags("""
    --preset=small model.units=12 model.output_units=8 model.embedding_units=8
    model.depth=3 model.auxiliary_every=2
    model.embeddings_initializer.config.minval=-0.1
    model.embeddings_initializer.config.maxval=0.1
    data.batch_size=4 data.window=10 data.horizon=0 data.history=carried
    evaluation.batch_size=2 evaluation.exact_batch_size=2
    training.epochs=2 training.log_every_steps=5
""")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Texts of 4,884 and twice 462 tokens: streams of whole windows, each traced once."""
    folder = tmp_path_factory.mktemp("corpus")
    words = np.random.default_rng(0).integers(0, 30, 5600)
    lines = [" ".join(f"w{word}" for word in row) for row in words.reshape(-1, 10)]
    for name, part in (
        ("train", lines[:444]),
        ("valid", lines[444:486]),
        ("test", lines[486:528]),
    ):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in part))
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}


def run(forks, environment, *arguments, status=0):
    done = forks.run("-m", "trainers.lm", *arguments, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def call(environment, own_settings, monkeypatch, capsys):
    """Runs a command line in this process, whose generators are left as they are."""
    monkeypatch.setenv("HOME", environment["HOME"])
    return calls.in_process(lm, capsys)


def checkpoint(workdir):
    """The arrays of the newest checkpoint of a run."""
    newest = max((workdir / "checkpoints").glob("step-*.npz"))
    with np.load(newest) as file:
        return newest.name, {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def trained(corpus, environment, tmp_path_factory, forks):
    workdir = tmp_path_factory.mktemp("runs") / "trained"
    output = run(
        forks,
        environment,
        "--task=text",
        f"--data_dir={corpus}",
        f"--workdir={workdir}",
        *SMALL,
    )
    return workdir, output


def test_training_tells_its_size_and_its_result(trained):
    workdir, output = trained
    assert output.startswith("trellis network: 3 levels of 12 units; ")
    assert "4,884 training tokens, 32 words\n" in output
    assert "to the end of the run, validations and scores included" in output
    # 462 validation tokens: all but the first; 2 streams of 231, all but the first of each.
    assert re.search(r"validation perplexity: exact [\d.]+ \(461 tokens\), ", output)
    assert re.search(r"trellisnet [\d.]+ \(460 tokens\); test perplexity", output)
    result = json.loads((workdir / "result.json").read_text())
    assert result["scores"]["test"]["exact"]["tokens"] == 461
    assert result["summary"] == calls.summary(output)
    assert (workdir / "curves.png").exists()
    assert (workdir / "metrics.csv").exists()


def test_training_ends_with_other_scores_and_what_to_do_next(trained, corpus, call):
    workdir, output = trained
    _, end = re.split(r"\ntest perplexity, exact \(.*\):\n", output)
    own, unigram, saved, *commands = end.splitlines()
    exact = json.loads((workdir / "result.json").read_text())["scores"]["test"]["exact"]
    assert own.split() == [f"{exact['perplexity']:.2f}", "this", "run"]
    # 30 words, one in 11 tokens a line's end; `<unk>` never occurs.
    assert 25 < float(unigram.split()[0]) < 32 and "a unigram model" in unigram
    assert saved == f"the run is saved in {workdir}; next:" and len(commands) == 3
    arguments = ("--task=text", f"--data_dir={corpus}", f"--workdir={workdir}", *SMALL)
    assert call(*arguments).endswith(end)


def test_the_report_tells_what_a_run_took(trained, environment, tmp_path, forks):
    workdir, output = trained
    report = ("-m", "trainers.report", workdir, f"--output={tmp_path}")
    done = forks.run(*report, env=environment)
    assert done.returncode == 0, done.stderr
    (row,) = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("| trained | small |")
    ]
    parameters, exact, _, epochs, tokens, seconds, memory = row.strip("| ").split(
        " | "
    )[2:]
    assert f"{parameters} parameters" in output and f"exact {exact}" in calls.summary(
        output
    )
    assert (epochs, tokens) == ("2", f"{2 * 4 * (4884 // 4 - 1):,}")
    assert re.fullmatch(r"0:0\d:\d\d", seconds) and re.fullmatch(r"\d\.\d GiB", memory)
    assert row in (tmp_path / "results.md").read_text()


def test_the_memory_that_is_told_is_what_the_process_takes(trained):
    workdir, output = trained
    (told,) = re.findall(r"about ([\d.]+) GiB of memory in training", output)
    peak = json.loads((workdir / "result.json").read_text())["cost"]["peak_bytes"]
    # 30 % of what a process takes that is no fork, which has no pages of libraries of its own.
    assert float(told) == pytest.approx(peak / 2**30, abs=0.3)


def stop(process, workdir, number):
    """Sends a process a signal at its first new checkpoint; returns its output and exit status."""
    former = {
        *workdir.glob("checkpoints/step-*.npz"),
        workdir / "checkpoints/step-00000000.npz",
    }
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if set(workdir.glob("checkpoints/step-*.npz")) - former:
            break
        time.sleep(0.005)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=120)
    assert not (workdir / "result.json").exists()
    return output, process.returncode


def test_stopped_and_resumed_is_bit_for_bit_the_run_that_was_not(
    trained, corpus, environment, tmp_path, forks
):
    workdir = tmp_path / "stopped"
    arguments = (
        "--task=text",
        f"--data_dir={corpus}",
        f"--workdir={workdir}",
        *SMALL,
        "--config.training.checkpoint_every_steps=7",
    )
    process = forks.start("-m", "trainers.lm", *arguments, env=environment)
    output, status = stop(process, workdir, signal.SIGTERM)
    assert status == 143
    line = re.search(
        r"stopped by SIGTERM after step (\d+); the same command goes on from", output
    )
    assert f"going on from step {line[1]}," in run(forks, environment, *arguments)
    expected_name, expected = checkpoint(trained[0])
    name, actual = checkpoint(workdir)
    assert name == expected_name
    assert set(actual) == set(expected)
    for key in set(expected) - {"cost/seconds", "cost/peak_bytes", "run_id"}:
        np.testing.assert_array_equal(actual[key], expected[key], err_msg=key)


def test_evaluate_and_generate_take_the_workdirs_config(trained, corpus, call):
    workdir, output = trained
    evaluated = call("--mode=evaluate", f"--workdir={workdir}", f"--data_dir={corpus}")
    assert "; ".join(evaluated.splitlines()) in output
    sampling = (
        "--mode=generate",
        f"--workdir={workdir}",
        "--seed=3",
        "--max_length=12",
    )
    text = call(*sampling, "--prompt=w1 w2")
    assert text.startswith("w1 w2")
    assert set(text.split()) <= {f"w{word}" for word in range(30)}
    place = (f"--workdir={workdir}", f"--data_dir={corpus}")
    assert call(*place, program=evaluate) == evaluated
    own = (f"--workdir={workdir}", "--seed=3", "--max_length=12", "--prompt=w1 w2")
    assert call(*own, program=generate) == text


def test_no_unknown_word_is_written(trained, call):
    arguments = (
        "--mode=generate",
        f"--workdir={trained[0]}",
        "--max_length=200",
        "--seed=3",
    )
    text = call(*arguments, "--temperature=1e6")  # all 32 words are about as likely
    assert "<unk>" not in text and len({*text.split()}) > 25


def test_generation_by_every_kind_of_sampling(trained, call):
    arguments = (
        "--mode=generate",
        f"--workdir={trained[0]}",
        "--prompt=w1",
        "--max_length=12",
    )
    likeliest = call(*arguments, "--temperature=0")
    assert call(*arguments, "--top_k=1") == likeliest
    assert call(*arguments, "--top_p=1e-6") == likeliest
    assert "--top_p must be" in call(*arguments, "--top_p=2", status=2)


def test_words_of_the_prompt_that_are_unknown_are_told(trained, call):
    arguments = ("--mode=generate", f"--workdir={trained[0]}", "--max_length=6")
    prompt = "--prompt=w1 W\x1b2 w3 w99"
    assert call(*arguments, prompt).startswith("w1 <unk> w3 <unk>")
    assert call.output.err.endswith("unknown words, read as <unk>: W\\x1b2, w99\n")
    call(*arguments, "--prompt=w1")
    assert "unknown" not in call.output.err


PIECES = ("--config.data.tokens=pieces", "--config.data.vocabulary_size=270")


def compared(output, split="test"):
    """Returns the numbers by which models compare, and the line of a split."""
    (line,) = re.findall(rf"{split} perplexity: [^;\n]+", output)
    numbers = re.findall(r"bits_per_byte ([\d.]+), word_perplexity ([\d.]+)", line)
    assert len(numbers) == 1  # those of all tokens, by the protocol `exact`
    return (*map(float, numbers[0]), line)


def test_pieces_know_every_text_and_compare_with_words(
    trained, corpus, call, monkeypatch, tmp_path
):
    workdir = tmp_path / "pieces"
    place = (f"--workdir={workdir}", f"--data_dir={corpus}")
    output = call("--task=text", *place, *SMALL, *PIECES)
    assert "270 pieces" in output
    bits, perplexity, line = compared(output)
    exact = json.loads((workdir / "result.json").read_text())["scores"]["test"]["exact"]
    # All of the text but the first piece and the first word; a line has a word more, its end.
    text = (corpus / "test.txt").read_text()
    words = len(text.split()) + text.count("\n") - 1
    assert perplexity == pytest.approx(math.exp(exact["nll"] / words), abs=0.005)
    whole = exact["nll"] / math.log(2) / len(text)
    assert whole <= exact["bits_per_byte"] < 1.01 * whole
    assert bits == round(exact["bits_per_byte"], 3)
    # Random words of the same chance have no other model; to spell them is free, and blanks are.
    of_words, word_perplexity, _ = compared(trained[1])
    exact = json.loads((trained[0] / "result.json").read_text())["scores"]["test"][
        "exact"
    ]
    assert exact["perplexity"] < word_perplexity < 1.1 * exact["perplexity"]
    assert of_words == pytest.approx(exact["nll"] / math.log(2) / len(text), rel=0.05)

    # Another version of the package may learn others: the run has its own.
    monkeypatch.setattr("trainers.data.pieces.learn", None)
    assert line in call(*place, program=evaluate)
    prompt = "W3  ünknown\t日本"
    own = (f"--workdir={workdir}", "--seed=3", "--max_length=60", f"--prompt={prompt}")
    written = call(*own, program=generate)
    assert written.startswith(prompt) and not call.output.err
    report.run([str(trained[0]), str(workdir)], str(tmp_path))
    table = (tmp_path / "results.md").read_text()
    assert f"bits_per_byte {bits:.3f}, " in table
    assert f"bits_per_byte {of_words:.3f}, " in table


def test_one_protocol_alone(trained, corpus, call):
    evaluated = call(
        "--mode=evaluate",
        f"--workdir={trained[0]}",
        f"--data_dir={corpus}",
        "--protocol=trellisnet",
    )
    assert "trellisnet" in evaluated
    assert "exact" not in evaluated


ADAPTATIONS = {
    "dynamic": ("--dynamic_rate=1e-3", "--dynamic_decay=0.01"),
    "cache": ("--cache_size=20", "--cache_theta=0.5", "--cache_lambda=0.1"),
}


@pytest.mark.parametrize("names", [["dynamic"], ["cache"], ["dynamic", "cache"]])
def test_evaluation_that_adapts_leaves_the_run_as_it_is(trained, corpus, call, names):
    workdir, output = trained
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    given = [flag for name in names for flag in ADAPTATIONS[name]]
    evaluated = call(
        "--mode=evaluate", f"--workdir={workdir}", f"--data_dir={corpus}", *given
    )
    for line in evaluated.splitlines():
        static, adapted = re.findall(r"[\d.]+ \(461 tokens\)", line)
        assert f"exact {static}" in output and adapted != static
        assert f", adapted {adapted}" in line and "trellisnet" not in line
    assert len(evaluated.splitlines()) == 2
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("layer", ["lstm", "equilibrium"])  # a GRU in test_pixels
def test_each_layer_is_trained_scored_adapted_sampled_from_and_exported(
    layer, corpus, call, tmp_path
):
    workdir = tmp_path / "run"
    model = (
        "--config.model.units=6",
        "--config.model.output_units=5",
        "--config.model.embedding_units=5",
        {
            "lstm": "--config.model.layers=2",
            "equilibrium": "--config.model.equilibrium.max_iterations=5",
        }[layer],
    )
    levels = ("--config.model.depth=", "--config.model.auxiliary_every=")
    small = [each for each in SMALL if not each.startswith(levels)]
    place = (f"--workdir={workdir}", f"--data_dir={corpus}")
    chosen = (f"--config.model.layer={layer}", "--config.training.epochs=1")
    output = call("--task=text", *small, *chosen, *model, *place)
    assert "warning" not in output and "exact" in calls.summary(output)
    adapted = call(
        "--mode=evaluate", *place, *ADAPTATIONS["dynamic"], *ADAPTATIONS["cache"]
    )
    for line in adapted.splitlines():
        static, _ = re.findall(r"[\d.]+ \(461 tokens\)", line)
        assert f"exact {static}" in output and ", adapted " in line
    arguments = (
        "--mode=generate",
        place[0],
        "--prompt=w1",
        "--max_length=5",
        "--temperature=0",
    )
    text = call(*arguments)
    assert text.startswith("w1")
    options = ExportOptions(str(tmp_path / "served"))
    folder = exporting.export(epath.Path(workdir), options)
    generate = tf.saved_model.load(folder).signatures["generate_v2"]
    assert generate.structured_input_signature


def test_a_run_of_release_0_1_goes_on(trained, corpus, call, tmp_path):
    """Its config has `kind`, and none of the fields that have joined since."""
    workdir = tmp_path / "run"
    shutil.copytree(trained[0], workdir)
    config = json.loads((workdir / "config.json").read_text())
    joined = (
        "layer",
        "gate",
        "head",
        "layers",
        "groups",
        "inject_every",
        "equilibrium",
        "mixture",
    )
    joined += ("adaptive", "untrained_input_id", "embeddings_initializer")
    model = {
        name: value for name, value in config["model"].items() if name not in joined
    }
    config["model"] = {"kind": "trellis", **model}
    del config["checksum"]  # 0.1 wrote none
    (workdir / "config.json").write_text(json.dumps(config))
    place = (f"--workdir={workdir}", f"--data_dir={corpus}")
    assert "; ".join(call("--mode=evaluate", *place).splitlines()) in trained[1]
    sampling = ("--mode=generate", "--seed=3", "--max_length=9")
    assert call(*sampling, place[0]) == call(*sampling, f"--workdir={trained[0]}")
    assert "holds a finished run" in call("--task=text", *place, *SMALL)
    more = call("--task=text", *place, *SMALL, "--config.training.epochs=3")
    assert "epoch 3/3, " in more and "best of epoch" in more
    assert (
        json.loads((workdir / "config.json").read_text())["model"]["layer"] == "trellis"
    )


def test_a_workdir_is_the_users_home_and_the_tasks_own_by_default(
    trained, call, monkeypatch, tmp_path
):
    for folder in ("runs/text-small", "home/run"):
        shutil.copytree(trained[0], tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    generate = ("--mode=generate", "--task=text", "--temperature=0", "--max_length=8")
    text = call(*generate)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert call(*generate, "--workdir=~/run") == text
    assert not (tmp_path / "~").exists()


def test_files_of_others_in_a_runs_folder_change_nothing(
    trained, corpus, call, tmp_path
):
    """Of a file manager, of a desktop, of somebody's notes."""
    workdir = tmp_path / "run"
    shutil.copytree(trained[0], workdir)
    for name in (
        "config (copy).json",
        "result.json~",
        "metrics (copy).csv",
        ".DS_Store",
    ):
        (workdir / name).write_text("x")
    for name in (
        "step-foo.npz",
        "step-00000001 (copy).npz",
        "best (copy).npz",
        "step-99.npz",
    ):
        (workdir / "checkpoints" / name).write_text("x")
    for name in ("notes", "checkpoints/old", "checkpoints/step-00009999.npz.d"):
        (workdir / name).mkdir()
    strays = {
        path for path in workdir.rglob("*") if not (trained[0] / path.name).exists()
    }
    results = []
    for each in (trained[0], workdir):
        place = f"--workdir={each}"
        results.append(
            [
                call("--mode=evaluate", place, f"--data_dir={corpus}"),
                call("--mode=generate", place, "--seed=1", "--max_length=9"),
                calls.summary(
                    call("--task=text", place, f"--data_dir={corpus}", *SMALL)
                ),
                report.read_run(each, "run"),
            ]
        )
    assert results[0] == results[1]
    assert all(path.exists() for path in strays)


def test_the_folder_of_runs_is_told_from_a_run(trained, call):
    message = call("--mode=generate", f"--workdir={trained[0].parent}", status=2)
    assert message.endswith(f"config.json is missing; it has those of {trained[0]}\n")


def test_a_loss_that_is_not_finite_has_a_status_of_its_own_and_names_the_step(
    corpus, call, tmp_path
):
    message = call(
        "--task=text",
        f"--data_dir={corpus}",
        f"--workdir={tmp_path / 'nan'}",
        *SMALL,
        "--config.optimizer.name=sgd",
        "--config.optimizer.learning_rate=1e38",
        "--config.optimizer.clip_norm=1e38",
        status=3,
    )
    assert re.search(
        r"error: .*at step \d+; checkpoints from before it, if any, are kept in",
        message,
    )


WORKERS = {"worker": ["one:1", "two:1"]}


@pytest.mark.parametrize(
    "value, told",
    [
        (
            json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": 0}}),
            "2 machines",
        ),
        (json.dumps({"cluster": {"worker": ["one:1"], "ps": ["two:1"]}}), "2 machines"),
        (
            json.dumps({"cluster": {"chief": {"0": "a:1"}, "worker": {"3": "b:1"}}}),
            "2 machines",
        ),
        ("{", "is not JSON"),
        ("[1]", "is not JSON of a cluster"),
        ('{"cluster": 3}', "is not JSON of a cluster"),
    ],
)
@pytest.mark.parametrize("program, task", [(lm, "text"), (pixels, "adding")])
def test_a_cluster_is_refused_before_anything(
    program, task, value, told, monkeypatch, capsys
):
    monkeypatch.setenv("TF_CONFIG", value)
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as exit_:
        program.parse_flags(["program", f"--task={task}"])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert told in error and "unset TF_CONFIG" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "value",
    ["", "{}", json.dumps({"cluster": {"worker": ["one:1"]}, "task": {"index": 0}})],
)
def test_a_cluster_of_one_machine_is_none(value, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", value)
    with flagsaver.flagsaver():
        lm.parse_flags(["lm", "--task=text"])


def test_a_cluster_is_nothing_to_evaluation(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": WORKERS}))
    with flagsaver.flagsaver():
        lm.parse_flags(["lm", "--task=text", "--mode=evaluate"])
