# %% [markdown]
# # A language model: train, export, serve
#
# Three commands train a word model on Python's own documentation, export it, and serve it; then
# we query the server. This notebook trains for 150 steps and takes a minute; `python -m
# trainers.lm --task=pydoc` trains the same model for a few minutes, and it then writes better text.
# Run it in a clone.

# %%
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

folder = Path(tempfile.mkdtemp())
steps = os.environ.get("STEPS", "150")


def run(*command):
    print("$ python -m", *command)
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    print(done.stdout.replace("\r", "\n"))
    assert done.returncode == 0, done.stderr[-3000:]


# %% [markdown]
# ## Train
#
# `small` is a trellis network. On a text of this size two stacked LSTMs that both read the input
# are better; `--preset=small_stacked_lstm` trains them. The run's folder holds its configuration,
# its curves and its weights. The same command resumes it.

# %%
run(
    "trainers.lm",
    "--task=pydoc",
    "--preset=small",
    f"--config.training.steps={steps}",
    "--config.training.epochs=1",
    f"--workdir={folder / 'run'}",
)

# %% [markdown]
# Perplexity: lower is better. The run prints the scores of other models too, those of models that
# were trained to their end.
#
# ## Export
#
# The export is a folder that needs neither this package nor the run: a SavedModel for TensorFlow
# Serving, and the same network as ONNX for our own server, which runs without TensorFlow.

# %%
run(
    "trainers.export",
    f"--workdir={folder / 'run'}",
    f"--output={folder / 'models/pydoc'}",
)
(version,) = (folder / "models/pydoc").iterdir()
for path in sorted(version.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:12,} bytes  {path.relative_to(folder)}")

# %% [markdown]
# ## Serve
#
# `keras-trellis serve models/pydoc` answers at port 8000, and shows a page there; here we let it
# choose a free port. It speaks OpenAI's API for completions.

# %%
command = [
    sys.executable,
    "-m",
    "keras_trellis.serving",
    folder / "models/pydoc",
]
server = subprocess.Popen(
    [*command, "--port=0"], stdout=subprocess.PIPE, text=True, cwd=folder
)
line = server.stdout.readline()
print(line)
address = re.search(r"http://[^/]+", line)[0]


def ask(path, fields):
    body = json.dumps(fields).encode()
    request = urllib.request.Request(
        address + path, body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


asked = {"model": "pydoc", "prompt": "the with statement", "max_tokens": 30, "seed": 1}
answer = ask("/v1/completions", asked)
print(asked["prompt"] + answer["choices"][0]["printed"])

# %% [markdown]
# ## How probable is a text?
#
# `/score` has the negative log-likelihood of each token, and how many words the model does not
# know.

# %%
(scores,) = ask("/score", {"texts": ["the with statement is used to wrap a piano"]})[
    "scores"
]
for word, nll in zip(scores["words"], scores["nll"], strict=True):
    print(f"{nll:6.2f}  {word}")
print(f"{scores['unknown']} unknown words")

# %%
server.terminate()
print("the server ended with", server.wait())

# %% [markdown]
# Next: [Serve a model](../howto/serve.md) has other ways to ask, and links to the API and its
# limits; [Train a language model](../howto/language_model.md) has your own text (`--task=text
# --data_dir=DIR`); with [pieces of words](../howto/pieces.md) no word is unknown.
