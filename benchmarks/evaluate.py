"""Evaluation of the Penn Treebank's test set, beside the authors' code with the same weights.

    python -m benchmarks.evaluate --data_dir=PTB --reference_dir=TRELLISNET --json=evaluate.json

`exact` scores every target once, with its whole history. The authors' protocol scores one window at
a time and discards the first outputs of each. This package runs it, and so does the authors' own
network, as in their script. All have the same random weights; no time depends on them.
"""

import dataclasses
import functools
import types
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import authors as released
from benchmarks import report
from benchmarks.workers import Contender, Facts

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Setting:
    """The text ids `[N]`, and a language model of word vectors of `embedding_units`.

    Attributes:
        window: of the authors' protocol.
        horizon: outputs of a window without a score.
        batch_size: streams, and pieces of `exact`.
        check: targets compared one by one.
    """

    ids: Any
    vocabulary_size: int
    units: int = 256
    embedding_units: int = 200
    depth: int = 58
    window: int = 110
    horizon: int = 58
    batch_size: int = 12
    check: int = 1000
    threads: int = 1
    reference_dir: str | None = None

    def arrays(self) -> dict[str, Any]:
        """Returns the weights, by the authors' names."""
        return released.language_model_arrays(
            self.vocabulary_size, self.embedding_units, self.units
        )


def ours(protocol: str, setting: Setting) -> Contender:
    """This package, under a protocol."""
    import numpy as np

    from keras_trellis import convert
    from trainers.language.evaluation import Evaluator

    model = convert.language_model_from_torch(
        setting.arrays(), depth=setting.depth, dilation_rate=1
    )
    data = types.SimpleNamespace(
        window=setting.window,
        horizon=setting.horizon,
        history="zero",
    )
    settings = types.SimpleNamespace(
        batch_size=setting.batch_size,
        exact_batch_size=setting.batch_size,
        exact_chunk=128,
    )
    evaluator = Evaluator(model, data, settings)
    # Tracing is no part of it.
    evaluator.score(protocol, setting.ids[: 256 * setting.batch_size])
    facts: Facts = {"parameters": model.count_params()}
    if protocol == OURS:
        # In one pass from the beginning: what every protocol must agree with.
        ids = np.asarray(setting.ids[None, : setting.check + 1])
        nll, _ = model.score(ids[:, :-1], ids[:, 1:])
        facts["first"] = nll[0].numpy().tolist()

    def step():
        score = evaluator.score(protocol, setting.ids)
        facts.update(tokens=score.tokens, nll=score.nll)

    return Contender(step, facts)


def authors(setting: Setting) -> Contender:
    """The authors' network and the loop of their `evaluate`."""
    model = released.language_model(
        setting.reference_dir, setting.arrays(), setting.depth
    )
    import torch

    torch.set_num_threads(setting.threads)
    length = len(setting.ids) // setting.batch_size
    whole = setting.ids[: length * setting.batch_size]
    rows = torch.tensor(whole).long().view(setting.batch_size, length)
    facts: Facts = {
        "parameters": sum(parameter.numel() for parameter in model.parameters())
    }

    def step():
        scored = []
        for start in range(0, length - 1, setting.window - setting.horizon):
            if start + setting.horizon < length - 1:
                scored.append(_window_nll(model, rows, start, setting))
        nll = torch.cat(scored, dim=1)
        facts.update(tokens=nll.numel(), nll=nll.double().sum().item())
        # Each row's first `horizon` targets are the ones that nothing scores.
        facts["first"] = [None] * setting.horizon + nll[0].tolist()

    return Contender(step, facts)


def _window_nll(model, rows, start, setting):
    """Returns the nll `[B, n]` of a window's targets behind the horizon."""
    import torch
    from torch.nn import functional

    stop = min(start + setting.window, rows.shape[1] - 1)
    with torch.no_grad():
        state = model.init_hidden(len(rows))
        outputs, _, _ = model(rows[:, start:stop], state)
        _, _, logits = outputs
        targets = rows[:, start + setting.horizon + 1 : stop + 1]
        scored = logits[:, setting.horizon :].transpose(1, 2)
        return functional.cross_entropy(scored, targets, reduction="none")


OURS = "exact"
CONTENDERS: report.Contenders = {
    OURS: ("keras_trellis, `exact`", functools.partial(ours, OURS)),
    "trellisnet": (
        "keras_trellis, the authors' protocol",
        functools.partial(ours, "trellisnet"),
    ),
    "authors": ("the authors' code", authors),
}


def compared(rows: Sequence[Facts]) -> list[Facts]:
    """Returns the rows with the largest difference of a single target's nll from ours."""
    expected = rows[0]["first"]
    compared_rows = []
    for row in rows:
        differences = [
            abs(nll - reference)
            for nll, reference in zip(row.pop("first", ()), expected, strict=False)
            if nll is not None and row["name"] != OURS
        ]
        difference = max(differences, default=None)
        compared_rows.append(
            {**row, "difference": difference, "compared": len(differences)}
        )
    return compared_rows


def table(result: Facts) -> str:
    """Returns the result as a Markdown table."""
    targets = result["setting"]["tokens"] - 1

    def difference(row):
        if row["difference"] is None:
            return ""
        return f"{row['difference']:.1e} of {row['compared']:,}"

    columns: report.Columns = {
        "": report.title,
        "seconds": lambda row: report.number(row["median"], 1),
        **report.times_to("ours"),
        "tokens scored": lambda row: report.number(row["tokens"]),
        "of the corpus": lambda row: f"{row['tokens'] / targets:.2%}",
        "tokens/s": lambda row: report.number(row["tokens"] / row["median"]),
        "nats a token": lambda row: report.number(row["nll"] / row["tokens"], 6),
        "largest difference a token": difference,
    }
    return report.table(result["rows"], columns)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "data_dir", None, "The folder of ptb.train.txt and the other two."
    )
    report.define_only(CONTENDERS, OURS)
    report.define_reference()
    report.define_flags(rounds=1, warmup=0)


def read(data_dir: str | None) -> tuple[Any, int]:
    """Returns the test set's ids `[N]` and the size of the training text's vocabulary."""
    import numpy as np

    from trainers.language import corpora

    try:
        corpus = corpora.load("ptb", data_dir)
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    return np.array(corpus.test), corpus.vocabulary.size


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the table; returns the exit status."""
    here = report.begin(argv)
    ids, vocabulary_size = read(FLAGS.data_dir)
    setting = Setting(
        ids, vocabulary_size, threads=here["threads"], reference_dir=FLAGS.reference_dir
    )
    results, left_out = report.compare(CONTENDERS, OURS, setting, here)
    known = dataclasses.asdict(setting)
    del known["ids"]
    result = {
        "setting": {**known, "tokens": len(ids)},
        **here,
        "left_out": left_out,
        "rows": [],
    }
    if OURS in results:
        result["rows"] = compared(report.rows(CONTENDERS, OURS, results))
    report.end(result, table(result))
    return int(OURS not in results)


if __name__ == "__main__":
    define_flags()
    app.run(main)
