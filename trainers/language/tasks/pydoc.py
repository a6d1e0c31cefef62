"""Python's own reference text, by words or pieces; it needs no download."""

import hashlib
import io

from etils import epath

from configs import pydoc as values
from trainers.data import printed, pydoc, tokens
from trainers.data.encoding import Source
from trainers.language.tasks.task import PIECE_FIELDS, LanguageTask, Measured

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
    plain = _encoded(pydoc.texts(plain=True))
    texts = _encoded(pydoc.texts()) if task.pieces is None else plain
    return Source(
        task.name,
        labels={split: f"the {split} part of pydoc_data.topics" for split in texts},
        checksums={
            split: hashlib.sha256(text).hexdigest() for split, text in texts.items()
        },
        open=lambda split: io.BytesIO(texts[split]),
        settings={"minimum_count": _MINIMUM_COUNT},
        plain=lambda split: io.BytesIO(plain[split]),
    )


def _encoded(texts: dict[str, str]) -> dict[str, bytes]:
    return {split: text.encode() for split, text in texts.items()}


PYDOC = LanguageTask(
    name="pydoc",
    presets=values.PRESETS,
    former_presets=values.FORMER_PRESETS,
    source=_source,
    standardize=tokens.pydoc,
    made_ready="lower case, numbers as `N`, punctuation split off",
    printed=printed.pydoc,
    parts=tokens.pydoc_parts,
    fields=PIECE_FIELDS,
    data="`pydoc_data.topics`, Python's own reference text",
    licence="Python Software Foundation License, as Python's documentation",
    measured=(
        Measured(
            "small_lstm",
            37.59,
            0.61,
            seeds=5,
            tokens=8_278,
            # The text of Python 3.11.7.
            sha256={
                "train": "00f545501b472844f4416e12ea1ddab2d9c4397337f0d96b11a169cc0717c3a2",
                "test": "6aa110d1d7d824be5f855d1d2b29e4e13e32a9537acc4403c4370c5463f3ec71",
            },
        ),
    ),
)
