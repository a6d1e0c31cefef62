"""Python's own reference text, by words; it needs no download."""

import hashlib
import io

from etils import epath

from configs import pydoc as values
from trainers.data import printed, pydoc, tokens
from trainers.data.encoding import Source
from trainers.tasks.task import LanguageTask

# Of 62,000 words 3.5 % read <unk>, enough to learn what <unk> means.
_MINIMUM_COUNT = 3


def _source(
    task: LanguageTask, data_dir: epath.PathLike | None, cache_dir: epath.Path
) -> Source:
    del cache_dir
    if data_dir is not None:
        raise ValueError(
            "--data_dir has no use for --task=pydoc, which reads Python's own text (--task=text "
            f"reads yours). Received: --data_dir={data_dir}"
        )
    texts = {split: text.encode() for split, text in pydoc.texts().items()}
    return Source(
        task.name,
        labels={split: f"the {split} part of pydoc_data.topics" for split in texts},
        checksums={
            split: hashlib.sha256(text).hexdigest() for split, text in texts.items()
        },
        open=lambda split: io.BytesIO(texts[split]),
        settings={"minimum_count": _MINIMUM_COUNT},
    )


PYDOC = LanguageTask(
    name="pydoc",
    presets=values.PRESETS,
    source=_source,
    standardize=tokens.pydoc,
    made_ready="lower case, numbers as `N`, punctuation split off",
    printed=printed.pydoc,
    data="`pydoc_data.topics`, Python's own reference text",
    licence="Python Software Foundation License, as Python's documentation",
)
