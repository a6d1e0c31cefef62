"""Times a training step of the authors' code with the settings of an exported folder.

    python -m benchmarks.paper.authors --folder=FOLDER --reference_dir=DIR --steps=20

It needs PyTorch and a clone of https://github.com/locuslab/trellisnet, and no TensorFlow. The step
is that of their `word_ptb.py`: the losses, the gradient, clipping, SGD.
"""

import argparse
import contextlib
import json
import pathlib
import sys
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import torch

from trainers.authors import clone


def build(reference_dir: str, config: dict, words: int) -> torch.nn.Module:
    """Returns their model, as their script builds it.

    Raises:
        ValueError: `reference_dir` is no clone of their repository.
    """
    model = config["model"]
    outputs = model["output_units"]
    with mock.patch.object(sys, "path", list(sys.path)):
        module = clone.load(reference_dir, "model")
    return module.TrellisNetModel(
        ntoken=words,
        ninp=model["embedding_units"],
        nhid=model["units"] - outputs,
        nout=outputs,
        nlevels=model["depth"],
        kernel_size=model["kernel_size"],
        dilation=list(model["dilation_rate"]),
        dropout=model["output_dropout"],
        dropouti=model["dropout"],
        dropouth=model["recurrent_dropout"],
        emb_dropout=model["embedding_dropout"],
        wdrop=model["weight_dropout"],
        temporalwdrop=False,
        tie_weights=True,
        wnorm=model["weight_normalization"],
        aux=model["auxiliary_weight"] > 0,
        aux_frequency=model["auxiliary_every"],
    )


def loss(
    model: torch.nn.Module, config: dict, ids: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Returns their training loss of a window: ids and targets `[B, T]`."""
    horizon, weights = config["data"]["horizon"], config["model"]
    hidden = model.init_hidden(len(ids))
    (raw, output, decoded), _, auxiliary = model(ids, hidden)
    cross_entropy = torch.nn.functional.cross_entropy
    scored = targets[:, horizon:].flatten()
    total = cross_entropy(decoded[:, horizon:].flatten(0, 1).float(), scored)
    if weights["auxiliary_weight"]:
        for level in auxiliary.unbind(1):
            term = cross_entropy(level[:, horizon:].flatten(0, 1).float(), scored)
            total = total + weights["auxiliary_weight"] * term
    output, raw = output[:, horizon:], raw[:, horizon:]
    total = total + weights["activation_weight"] * output.pow(2).mean()
    return total + weights["temporal_weight"] * raw.diff(dim=1).pow(2).mean()


def _parse() -> tuple[argparse.Namespace, dict]:
    """Returns the flags, and the manifest in the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--reference_dir", required=True)
    parser.add_argument("--steps", type=int, default=20)
    flags = parser.parse_args()
    if flags.steps < 1:
        parser.error(f"--steps must be at least 1. Received: --steps={flags.steps}")
    manifest = json.loads((flags.folder / "manifest.json").read_text())
    if "trellisnet" not in manifest["scores"]:
        task = manifest["config"]["task"]
        parser.error(
            f"--folder must hold a recipe of trainers.lm. Received: --folder={flags.folder}, "
            f"of --task={task}"
        )
    return flags, manifest


def _step(
    model: torch.nn.Module, config: dict, window: np.ndarray, device: str
) -> Callable[[], float]:
    """Returns a function that trains on a window `[B, T + 1]` and returns the loss."""
    optimizer = config["optimizer"]
    sgd = torch.optim.SGD(
        model.parameters(),
        lr=optimizer["learning_rate"],
        weight_decay=optimizer["weight_decay"],
    )
    ids = torch.tensor(window[:, :-1])
    targets = torch.tensor(window[:, 1:])
    products: contextlib.AbstractContextManager = contextlib.nullcontext()
    if config["model"]["dtype"] == "mixed_bfloat16":
        products = torch.autocast(device, torch.bfloat16)

    def step() -> float:
        sgd.zero_grad()
        with products:
            value = loss(model, config, ids, targets)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip_norm"])
        sgd.step()
        return value.item()  # waits for the device

    return step


def main() -> None:
    """Prints milliseconds a step and the peak of memory."""
    flags, manifest = _parse()
    config, device = manifest["config"], "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_device(device)  # their network makes zeros
    model = build(flags.reference_dir, config, manifest["classes"]).train()
    length = config["data"]["window"] + 1
    with np.load(flags.folder / "arrays.npz") as arrays:
        window = arrays["train/streams"][:, :length].astype("int64")
    step = _step(model, config, window, device)
    step()  # the first is slower
    began = time.monotonic()
    values = [step() for _ in range(flags.steps)]
    milliseconds = 1e3 * (time.monotonic() - began) / flags.steps
    print(f"{milliseconds:.1f} ms a step on {device}, loss {values[-1]:.4f}")
    if device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
