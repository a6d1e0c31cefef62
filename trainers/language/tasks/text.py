"""Text of the user's own, by words or pieces: train.txt, valid.txt and test.txt in `--data_dir`.

`small` is the default preset.
"""

from etils import epath

from configs import text as values
from trainers.data import encoding
from trainers.data.encoding import Source
from trainers.data.text import find_files
from trainers.language.tasks.task import PIECE_FIELDS, LanguageTask

_FILES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}


def _source(
    task: LanguageTask, data_dir: epath.PathLike | None, cache_dir: epath.Path
) -> Source:
    del cache_dir
    paths = find_files(data_dir, _FILES, "--task=pydoc, which needs none")
    return encoding.source_from_files(task.name, paths, task.list_tokens)


TEXT = LanguageTask(
    name="text",
    presets=values.PRESETS,
    former_presets=values.FORMER_PRESETS,
    source=_source,
    fields=PIECE_FIELDS,
    data="text files of the user's own",
)
