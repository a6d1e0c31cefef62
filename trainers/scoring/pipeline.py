"""The Apache Beam pipeline that scores a corpus.

Files are cut into parts, and one worker reads a part from its beginning to its end. So what is
written for a part does not depend on the others, on the number of workers or on the runner. The
counters are summed in the pipeline, since not every runner can be asked for its metrics.
"""

import contextlib
import io
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from absl import flags
from apache_beam.io import fileio
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.options.value_provider import StaticValueProvider
from apache_beam.utils import shared

from trainers.scoring import documents, keep
from trainers.scoring.corpus import COUNTERS, UNFINISHED, Corpus, format_counts
from trainers.scoring.documents import Document, Fields
from trainers.scoring.keep import Condition
from trainers.scoring.scorer import ModelError, Scorer, Scores

_SPACE = "trainers.batch"  # of the counters
_COUNTED = "counted"  # the output of `Write` beside the lines
_COUNTS = "counts.json"  # in the folder of unfinished files
_SECONDS = 10.0  # between the lines of a worker
# Parts of a corpus: so many workers can share it, and a worker has at most three files open for
# each of its parts.
_PARTS = 100

Numbered = tuple[str, Document]
"""The part that a document is in, such as `00003-of-00016`, and the document."""

Counts = tuple[int, ...]
"""Numbers in the order of `COUNTERS`."""


class Read(beam.DoFn):
    """Reads the documents of a part, in lists for `Score`."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def process(
        self, element: tuple[str, Iterable[Sequence[str]]]
    ) -> Iterator[list[Numbered]]:
        """Yields the documents of the files that belong to a part."""
        part, groups = element
        part_documents = (
            document
            for paths in groups
            for path in paths
            for document in documents.read(path, self._fields, _opened)
        )
        for batch in documents.in_batches(part_documents):
            yield [(part, document) for document in batch]


class Score(beam.DoFn):
    """Scores lists of documents; one that could not be read passes with None.

    Args:
        version: the folder of a version of an exported language model.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._loaded = shared.Shared()  # once a process

    def setup(self) -> None:
        """Loads the model."""
        self.scorer = self._loaded.acquire(self._load)

    def process(
        self, element: Sequence[Numbered]
    ) -> Iterator[tuple[Numbered, Scores | ValueError | None]]:
        """Yields each document with its scores, or the error that says why it has none."""
        texts = [document.text for _, document in element if document.text is not None]
        scores = iter(self.scorer(texts) if texts else ())
        for numbered in element:
            yield numbered, None if numbered[1].text is None else next(scores)

    def _load(self) -> Scorer:
        try:
            return Scorer(self._version)
        except ValueError as error:
            raise ModelError(str(error)) from error


class Write(beam.DoFn):
    """Makes the lines of a document, each with the file that it belongs to, and counts."""

    def __init__(self, conditions: Sequence[Condition], output_field: str) -> None:
        self._conditions = conditions
        self._output_field = output_field
        self._counters = {name: Metrics.counter(_SPACE, name) for name in COUNTERS}
        self._counts = dict.fromkeys(COUNTERS, 0)
        self._printed_at = 0.0

    def setup(self) -> None:
        """Begins to count the time."""
        self._printed_at = time.monotonic()

    def process(
        self, element: tuple[Numbered, Scores | ValueError | None]
    ) -> Iterator[Any]:  # Beam would read any other type as that of both outputs
        """Yields the name of a file without its ending, and a line for it; then the counts."""
        (part, document), scores = element
        if not isinstance(scores, Scores):
            reason = document.reason if scores is None else str(scores)
            yield _line("failures", part, {"id": document.id, "reason": reason})
            yield self._count(failures=1)
            return
        passes = bool(self._conditions) and all(
            condition.holds(scores) for condition in self._conditions
        )
        values = {"id": document.id, **scores._asdict()}
        yield _line("scores", part, values)
        if passes:
            yield f"kept-{part}", document.with_field(self._output_field, values)
        yield self._count(
            documents=1,
            tokens=scores.tokens,
            kept=int(passes),
            empty=int(scores.is_empty),
        )

    def _count(self, **counts: int) -> beam.pvalue.TaggedOutput:
        """Counts for the runner's page and for stderr; returns the counts for the sum."""
        for name, count in counts.items():
            self._counters[name].inc(count)
            self._counts[name] += count
        if time.monotonic() - self._printed_at > _SECONDS:
            self._printed_at = time.monotonic()
            print(f"so far: {format_counts(self._counts)}", file=sys.stderr, flush=True)
        row = tuple(counts.get(name, 0) for name in COUNTERS)
        return beam.pvalue.TaggedOutput(_COUNTED, row)


def pipeline(beam_flags: Sequence[str]) -> beam.Pipeline:
    """Returns an empty pipeline.

    Args:
        beam_flags: flags of Beam.

    Raises:
        ValueError, ImportError: a flag has a wrong value, or the runner is not there.
        flags.UnrecognizedFlagError: a local runner does not have a flag.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            options = PipelineOptions(list(beam_flags))
            values = options.get_all_options(retain_unknown_options=True)
    except SystemExit as error:
        line = errors.getvalue().strip().rpartition("error: ")[2]
        raise ValueError(f"Beam refuses its flags: {line}") from error
    _check_runner(values)
    if values["runner"] in StandardOptions.LOCAL_RUNNERS:
        known = PipelineOptions([]).get_all_options()
        for name in {*values} - {*known}:
            raise flags.UnrecognizedFlagError(name)
    return beam.Pipeline(options=options)


def matched(pattern: str) -> list[str]:
    """Returns the files that a pattern matches, in the order of their names.

    Raises:
        ValueError: there are none, or one has a name of no known format.
        OSError: the folder cannot be read.
    """
    # Beam finds nothing by a pattern without a folder.
    (match,) = FileSystems.match([pattern if "/" in pattern else f"./{pattern}"])
    paths = sorted(file.path for file in match.metadata_list)
    if not paths:
        raise ValueError(
            f"--input must match files. Received: --input={pattern}, which matches none"
        )
    for path in paths:
        documents.check_name(path)
    return paths


def run(
    pipeline: beam.Pipeline, corpus: Corpus, version: str, paths: Sequence[str]
) -> dict[str, int]:
    """Scores a corpus and waits until all of it is written; returns the counters by name.

    Args:
        pipeline: an empty one.
        corpus: what was asked for.
        version: the folder of a version of its model.
        paths: its files, in the order of their names.
    """
    unfinished = FileSystems.join(corpus.output, UNFINISHED)
    counts = FileSystems.join(unfinished, _COUNTS)
    conditions = [keep.parse(condition) for condition in corpus.keep]
    fields = Fields(corpus.text_field, corpus.output_field if conditions else None)
    scored = (
        pipeline
        | beam.Create(parts(paths), reshuffle=False)
        | "To workers" >> beam.GroupByKey()
        | beam.ParDo(Read(fields))
        | beam.ParDo(Score(version))
        | beam.ParDo(Write(conditions, corpus.output_field)).with_outputs(
            _COUNTED, main="lines"
        )
    )
    _write_lines(scored["lines"], corpus.output, unfinished)
    _ = (
        scored[_COUNTED]
        | beam.CombineGlobally(total)
        | beam.Map(_write_counts, unfinished, counts)
    )
    pipeline.run().wait_until_finish()
    with FileSystems.open(counts) as file:
        return dict(zip(COUNTERS, json.load(file), strict=True))


def _write_lines(lines: beam.PCollection, output: str, unfinished: str) -> None:
    """Writes lines to the files that they name, in `unfinished` until all are written."""
    _ = (
        lines
        | fileio.WriteToFiles(
            path=output,
            destination=_destination,
            sink=_Lines,
            file_naming=_name,
            temp_directory=StaticValueProvider(str, unfinished),
            max_writers_per_bundle=3 * _PARTS,
        )
        | beam.Map(_check_written, output)
    )


def total(rows: Iterable[Counts]) -> Counts:
    """Returns the sum of counts, or of sums of them; zeros for none."""
    return tuple(map(sum, zip((0,) * len(COUNTERS), *rows, strict=True)))


def parts(paths: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Returns the parts of a corpus: a name, and neighbouring files."""
    count = min(len(paths), _PARTS)
    bounds = [len(paths) * part // count for part in range(count + 1)]
    return [
        (f"{part:05d}-of-{count:05d}", list(paths[bounds[part] : bounds[part + 1]]))
        for part in range(count)
    ]


class _Lines(fileio.TextSink):
    """Writes the lines of pairs of a file and a line."""

    def write(self, record: tuple[str, str]) -> None:
        super().write(record[1])


def _opened(path: str) -> Any:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _line(kind: str, part: str, fields: dict[str, Any]) -> tuple[str, str]:
    """Returns a file and a line; half of a surrogate pair, no UTF-8, is escaped as in JSON."""
    line = json.dumps(fields, ensure_ascii=False)
    return f"{kind}-{part}", line.encode(errors="backslashreplace").decode()


def _destination(pair: tuple[str, str]) -> str:
    return pair[0]


def _name(_: Any, __: Any, index: int, count: int, ___: Any, destination: str) -> str:
    """Returns a file's name; a runner that cuts a part in two gives two files."""
    return f"{destination}.jsonl" if count == 1 else f"{destination}-{index}.jsonl"


def _check_written(result: Any, output: str) -> None:
    """Raises OSError if a file has not got its final name, which Beam does not tell."""
    path = FileSystems.join(output, result.file_name)
    if not FileSystems.exists(path):
        raise OSError(f"{path} could not be written")


def _write_counts(counts: Counts, folder: str, path: str) -> None:
    with contextlib.suppress(OSError):  # it is there when anything has been written
        FileSystems.mkdirs(folder)
    with FileSystems.create(path) as file:
        file.write(json.dumps(counts).encode())


def _check_runner(options: Mapping[str, Any]) -> None:
    """Raises ValueError if a pipeline like this cannot run by such flags of Beam."""
    runner = options["runner"] or ""
    name = runner.rpartition(".")[2].lower()  # it may be a class with its module
    if name == "portablerunner" and not options["job_endpoint"]:
        raise ValueError(f"--job_endpoint is missing, which --runner={runner} needs")
    # It computes the last branch of a pipeline alone.
    if name == "daskrunner":
        raise ValueError(
            "--runner must be one that computes all branches of a pipeline, such as FnApiRunner, "
            "PortableRunner, FlinkRunner, SparkRunner or DataflowRunner. Received: "
            f"--runner={runner}"
        )
