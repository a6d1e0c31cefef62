"""The facts about a task's data in a model card: its name, its licence, its text's form."""

from collections.abc import Mapping
from typing import Any

from keras_trellis.serving.manifest import NOT_STATED
from trainers.kinds.task import Task


def data_facts(task: Task, checksums: Mapping[str, str]) -> dict[str, str]:
    """Returns the model card's facts about a run's data.

    Args:
        task: the task; of language, with the tokens of the run's config.
        checksums: the SHA-256 of each split; empty if the run did not keep them.
    """
    sums = ", ".join(f"{split} {sha256}" for split, sha256 in checksums.items())
    return {
        "Trained on": task.data,
        "Licence of the data": task.licence,
        "SHA-256 of the data": sums or NOT_STATED,
        **task.data_facts(),
    }


def unknown_words(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the model card's fact about the test text's unknown words.

    Args:
        record: what the run kept of its text; see `language.texts.keep_corpus`.
    """
    if "unknown" not in record:
        return {"Unknown words in the test text": "not measured"}
    count, tokens = (record[name]["test"] for name in ("unknown", "tokens"))
    share = f"{100 * count / tokens:.2f} % ({count:,} of {tokens:,} tokens)"
    return {"Unknown words in the test text": share}
