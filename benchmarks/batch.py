"""The scoring of a corpus by Apache Beam, beside the same scoring in a plain loop.

    python -m benchmarks.batch --json=batch.json

The model has random weights, and the documents random words, their lengths drawn from a log-normal
distribution. What Beam takes for a corpus of one document, the loading of the model above all, is
a row of its own and is taken off the others. `docs/notes/corpora.md` has the tables.
"""

import functools
import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks import report, workers
from benchmarks.workers import Contender, Facts

FLAGS = flags.FLAGS
_FILES = 8  # of a corpus, so that two workers share it evenly
_WORDS = 1_000


class Setting(NamedTuple):
    """A model, a corpus, and how many cores score it.

    Attributes:
        folder: holds the exported `model`, and in `texts` the corpus.
        documents: the number of documents.
        cores: of a contender.
    """

    folder: str
    documents: int
    cores: int

    @property
    def texts(self) -> Path:
        """The folder of a corpus of this size."""
        return Path(self.folder) / f"texts-{self.documents}"


def export(folder: str, units: int, depth: int) -> None:
    """Writes a language model of random weights."""
    import keras_trellis
    from keras_trellis.export import export_language_model

    width = min(units, 200)
    layer = keras_trellis.TrellisLayer(units, depth, output_units=width)
    model = keras_trellis.TrellisLM(_WORDS, layer, embedding_units=width)
    model.build((None, None))
    words = [f"w{index}" for index in range(2, _WORDS)]
    export_language_model(model, ["<eos>", "<unk>", *words], f"{folder}/model")


def write(setting: Setting) -> int:
    """Writes a corpus of JSON Lines; returns the number of its tokens."""
    random = np.random.default_rng(0)
    lengths = random.lognormal(4.5, 0.8, setting.documents).clip(5, 2_000).astype(int)
    setting.texts.mkdir()
    for place, part in enumerate(np.array_split(lengths, _FILES)):
        with gzip.open(setting.texts / f"{place}.jsonl.gz", "wt", 1) as file:
            for length in part:
                numbers = random.integers(2, _WORDS, length)
                text = " ".join(f"w{number}" for number in numbers)
                print(json.dumps({"text": text}), file=file)
    return int(lengths.sum())


# The contenders


def loop(setting: Setting) -> Contender:
    """Reads, scores and writes one list of documents after the other."""
    from trainers.scoring import documents
    from trainers.scoring.scorer import Scorer

    scorer = Scorer(f"{setting.folder}/model/1")
    fields = documents.Fields("text")

    def score():
        paths = sorted(setting.texts.iterdir())
        with tempfile.TemporaryFile("w") as file:
            for path in paths:
                corpus = documents.read(
                    str(path), fields, lambda name: open(name, "rb")
                )
                for batch in documents.in_batches(corpus):
                    scores = scorer([document.text for document in batch])
                    for document, score in zip(batch, scores, strict=True):
                        line = json.dumps({"id": document.id, **score._asdict()})
                        print(line, file=file)

    return Contender(score, {})


def beam(setting: Setting) -> Contender:
    """The command, with a thread for each core."""
    from trainers import batch
    from trainers.scoring.corpus import Corpus

    beam_flags = [
        f"--direct_num_workers={setting.cores}",
        "--direct_running_mode=multi_threading",
    ]

    def score():
        with tempfile.TemporaryDirectory() as output:
            corpus = Corpus(f"{setting.folder}/model", f"{setting.texts}/*", output)
            batch.score(corpus, beam_flags)

    return Contender(score, {})


def start(setting: Setting) -> Contender:
    """The command with a corpus of one document."""
    return beam(setting._replace(documents=1))


CONTENDERS: report.Contenders = {
    "loop": ("a loop", loop),
    "beam": ("`trainers.batch`", beam),
    "start": ("`trainers.batch`, one document", start),
}


def measured(setting: Setting, names: Sequence[str]) -> list[Facts]:
    """Returns the row of each contender; prints who cannot run."""
    results, left_out = workers.measure(
        {name: CONTENDERS[name][1] for name in names},
        setting,
        threads=setting.cores,
        warmup=FLAGS.warmup,
        rounds=FLAGS.rounds,
    )
    for name, reason in left_out.items():
        print(f"Left out: {CONTENDERS[name][0]}: {reason}")
    facts = {"cores": setting.cores, "documents": setting.documents}
    return [row | facts for row in report.rows(CONTENDERS, "loop", results)]


def rates(rows: Sequence[Facts]) -> list[Facts]:
    """Returns the rows of the corpus with their rates, and these to the loop's on one core.

    The ratio of processor times is to the loop's on as many cores.
    """
    named = {(row["name"], row["cores"]): row for row in rows}
    rated = []
    for row in rows:
        if row["name"] == "start":
            continue
        loop, start = (named[name, row["cores"]] for name in ("loop", "start"))
        is_beam = row["name"] == "beam"
        seconds = row["median"] - is_beam * start["median"]
        processor_to_loop = [
            (one - is_beam * first) / other
            for one, first, other in zip(
                *(entry["processor_seconds"] for entry in (row, start, loop)),
                strict=True,
            )
        ]
        facts = {
            "start": is_beam * start["median"],
            "rate": row["documents"] / seconds,
            "processor_to_loop": report.spread(processor_to_loop),
        }
        rated.append(row | facts)
    (alone,) = (
        row["rate"] for row in rated if (row["name"], row["cores"]) == ("loop", 1)
    )
    return [{**row, "to_loop": row["rate"] / alone} for row in rated]


def table(rows: Sequence[Facts], tokens: float) -> str:
    """Returns the rates as a Markdown table; `tokens` is the mean length of a document."""
    columns: report.Columns = {
        "": report.title,
        "cores": lambda row: report.number(row["cores"]),
        "documents/s": lambda row: report.number(row["rate"], 1),
        "tokens/s": lambda row: report.number(tokens * row["rate"]),
        "rate to a loop's on one core": lambda row: report.number(row["to_loop"], 2),
        "processor time to the loop's: min, median, max": functools.partial(
            report.spread_cell, "processor_to_loop"
        ),
        "seconds to start": lambda row: report.number(row["start"], 1),
    }
    return report.table(rows, columns)


def memory_table(rows: Sequence[Facts]) -> str:
    """Returns the memory as a Markdown table."""
    columns: report.Columns = {
        "documents": lambda row: report.number(row["documents"]),
        "MiB": report.peak_mebibytes,
    }
    return report.table(rows, columns)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("units", 256, "Hidden channels.", lower_bound=1)
    flags.DEFINE_integer("depth", 12, "Levels.", lower_bound=1)
    flags.DEFINE_integer("documents", 2_000, "Of the corpus.", lower_bound=_FILES)
    flags.DEFINE_list(
        "memory_documents",
        ["1000", "10000", "100000"],
        "Of the corpora that the memory is measured on, with a model of 4 units.",
    )
    report.define_flags(rounds=3, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures, and prints the tables; returns the exit status."""
    here = report.begin(argv)
    result: dict[str, Any] = {**here, "left_out": {}}
    with tempfile.TemporaryDirectory() as folder:
        export(folder, FLAGS.units, FLAGS.depth)
        corpus = Setting(folder, FLAGS.documents, 1)
        mean = write(corpus) / FLAGS.documents
        write(corpus._replace(documents=1))
        cores = sorted({1, here["threads"]})
        result["rows"] = rates(
            [
                row
                for count in cores
                for row in measured(corpus._replace(cores=count), [*CONTENDERS])
            ]
        )
    with tempfile.TemporaryDirectory() as folder:
        export(folder, 4, 1)
        result["memory"] = []
        for documents in report.integers("memory_documents"):
            setting = Setting(folder, documents, 1)
            write(setting)
            result["memory"] += measured(setting, ["beam"])
    tables = [table(result["rows"], mean), memory_table(result["memory"])]
    report.end(result, "\n\n".join(tables))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
