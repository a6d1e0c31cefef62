"""enwik8, the first 10^8 bytes of an English Wikipedia of 2006, by bytes: bits per character.

The file is published at http://mattmahoney.net/dc/textdata.html. `--data_dir` must hold it, as
`enwik8` or in `enwik8.zip`. A token is a byte, as published results count. `latin1` writes it as
the character of its number, so that generated text shows bytes above 127 as Latin-1 does.
"""

import functools
import hashlib
import io
import zipfile
from collections.abc import Callable

from etils import epath

from configs import baselines, ptb_char
from trainers.data import tokens
from trainers.data.encoding import SPLITS, Source
from trainers.data.stores import to_path
from trainers.data.text import find_files, is_there
from trainers.kinds import search
from trainers.kinds.measures import CHARACTERS
from trainers.language.tasks.task import LanguageTask

_NAME = "enwik8"


def _source(
    task: LanguageTask, data_dir: epath.PathLike | None, cache_dir: epath.Path
) -> Source:
    del cache_dir
    parts = _parts(_content(data_dir))
    return Source(
        task.name,
        labels={split: f"the {split} part of {_NAME}" for split in SPLITS},
        checksums={split: hashlib.sha256(parts[split]).hexdigest() for split in SPLITS},
        open=lambda split: io.BytesIO(parts[split]),
        tokens=tokens.split_characters,
        settings={"unknown": True},
        raw=True,
    )


def _content(data_dir: epath.PathLike | None) -> bytes:
    folder = to_path(data_dir or "")
    plain = data_dir is not None and is_there(folder / _NAME)
    name = _NAME if plain else f"{_NAME}.zip"
    otherwise = (
        f"{_NAME} itself; it is published at http://mattmahoney.net/dc/textdata.html"
    )
    path = find_files(data_dir, {_NAME: name}, otherwise)[_NAME]
    if plain:
        return path.read_bytes()
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return archive.read(_NAME)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(
            f"{path} is not the published archive of {_NAME} ({error})"
        ) from error


def _parts(content: bytes) -> dict[str, bytes]:
    """Splits the content as published results do: into 90, 5 and 5 of 100 parts."""
    valid, test = round(0.9 * len(content)), round(0.95 * len(content))
    parts = (content[:valid], content[valid:test], content[test:])
    return dict(zip(SPLITS, parts, strict=True))


def _byte_preset(preset: Callable[[], dict]) -> dict:
    config = preset()
    del config["corpus"]
    return config


ENWIK8 = LanguageTask(
    name=_NAME,
    presets={
        name: functools.partial(_byte_preset, preset)
        for name, preset in ptb_char.PRESETS.items()
    },
    source=_source,
    standardize=tokens.latin1,
    made_ready="a character of Latin-1 for each byte",
    characters=True,
    measure=CHARACTERS,
    search=search.CHARACTERS,
    baselines=baselines.CHARACTERS,
    data="enwik8, the first 10^8 bytes of an English Wikipedia of 2006",
    licence="GNU Free Documentation License, which was Wikipedia's",
)
