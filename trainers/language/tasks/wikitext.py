"""WikiText-2 and WikiText-103, by words."""

import dataclasses

from etils import epath

from configs import wikitext2, wikitext103
from trainers.data import encoding, printed, wikitext
from trainers.data.encoding import Source
from trainers.data.vocabulary import ORDERS
from trainers.kinds.task import Published
from trainers.language.tasks.task import LanguageTask
from trainers.models.fields import one_of

_HELD_OUT = {"validation": 217_646, "test": 245_569}  # the same in both


def _source(
    task: LanguageTask,
    data_dir: epath.PathLike | None,
    cache_dir: epath.Path,
    order: str = "appearance",
) -> Source:
    paths = wikitext.find(task.name, data_dir, cache_dir / "downloads")
    return encoding.source_from_files(
        task.name, paths, task.list_tokens, settings={"order": order}
    )


WIKITEXT2 = LanguageTask(
    name="wikitext2",
    presets=wikitext2.PRESETS,
    source=_source,
    printed=printed.wikitext,
    data="WikiText-2, good and featured articles of Wikipedia",
    licence="Creative Commons Attribution-ShareAlike, which is Wikipedia's",
    vocabulary_size=33_278,
    lengths={"train": 2_088_628, **_HELD_OUT},
    fields={"corpus.order": one_of(*ORDERS)._replace(default="appearance")},
)

WIKITEXT103 = dataclasses.replace(
    WIKITEXT2,
    name="wikitext103",
    presets=wikitext103.PRESETS,
    data="WikiText-103, good and featured articles of Wikipedia",
    vocabulary_size=267_735,
    lengths={"train": 103_227_021, **_HELD_OUT},
    published=(
        Published("as published", 180e6, 29.19),
        Published("anonymous draft", None, 30.35),
    ),
    # Table 2 of the paper
    quoted=(
        Published("LSTM", None, 48.7),
        Published("generic TCN", 150e6, 45.2),
        Published("LSTM with cache", None, 40.8),
        Published("gated linear ConvNet", 230e6, 37.2),
        Published("AWD-QRNN", 159e6, 33.0),
        Published("relational memory core", 195e6, 31.6),
    ),
    sizes={"paper": "180M"},
)
