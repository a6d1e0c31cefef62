"""What a command scores, and the words for what it has done; without Beam."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

COUNTERS = ("documents", "tokens", "kept", "empty", "failures")
# In the folder of the scores, for files that are being written.
UNFINISHED = "unfinished"


class Corpus(NamedTuple):
    """What to score, by what, and where to write.

    Attributes:
        model: the folder of an exported language model.
        input: the files: a name, or a pattern with `*`.
        output: the folder of the scores.
        keep: which documents to write again, see `keep.parse`; all of them must hold.
        text_field: the field of the text in JSON Lines and `tf.train.Example`.
        output_field: the field of the scores in what is written again.
    """

    model: str
    input: str
    output: str
    keep: Sequence[str] = ()
    text_field: str = "text"
    output_field: str = "score"


def told(counts: Mapping[str, int]) -> str:
    """Returns the counters of a run in words, `empty` only if there are such documents."""
    names = (name for name in COUNTERS if name != "empty" or counts[name])
    return ", ".join(f"{counts[name]:,} {name}" for name in names)


def check_fields(text_field: str, output_field: str) -> None:
    """Raises ValueError if the scores would replace the text."""
    if text_field == output_field:
        raise ValueError(
            "--output_field must be another field than --text_field. Received: "
            f"--output_field={output_field}"
        )
