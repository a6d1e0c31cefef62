"""The Penn Treebank by characters."""

import re

from etils import epath

from configs import baselines, ptb_char
from trainers.data import printed, tokens
from trainers.data.encoding import Source
from trainers.kinds import search
from trainers.kinds.measures import CHARACTERS
from trainers.kinds.task import Published
from trainers.language.tasks import ptb
from trainers.language.tasks.task import LanguageTask, Measured
from trainers.models.fields import SWITCH, one_of

# The characters before and after the words of a line. Mikolov's form has none. The paper counts
# 396,412 validation symbols, which is one space more on each line. The authors' script reads the
# published file as it is, with a space at both ends.
_FORMS = {"mikolov": ("", ""), "paper": (" ", ""), "released": (" ", " ")}


def _source(
    task: LanguageTask,
    data_dir: epath.PathLike | None,
    cache_dir: epath.Path,
    form: str = "mikolov",
    unknown: bool = False,
) -> Source:
    before, after = _FORMS[form]

    def characters(text: str) -> list[str]:
        text = tokens.penn_treebank_characters.apply(text)
        lines = re.sub("([^\n]*)\n", rf"{before}\1{after}" "\n", text)
        return tokens.split_characters(lines)

    settings = {"unknown": unknown}
    return ptb.text_source(
        task, data_dir, cache_dir, characters, settings=settings, form=form
    )


PTB_CHAR = LanguageTask(
    name="ptb_char",
    presets=ptb_char.PRESETS,
    source=_source,
    standardize=tokens.penn_treebank_characters,
    made_ready=f"{ptb.MADE_READY}, single spaces",
    printed=printed.penn_treebank,
    characters=True,
    measure=CHARACTERS,
    search=search.CHARACTERS,
    baselines=baselines.CHARACTERS,
    data=f"{ptb.DATA}, by characters",
    licence=ptb.LICENCE,
    vocabulary_size=50,
    published=(
        Published("as published", 13.4e6, 1.158),
        Published("anonymous draft", None, 1.159),
    ),
    # Table 3 of the paper
    quoted=(
        Published("generic TCN", 3.0e6, 1.31),
        Published("IndRNN", 12.0e6, 1.23),
        Published("Hyper LSTM", 14.4e6, 1.219),
        Published("NAS cell", 16.3e6, 1.214),
        Published("Fast-Slow-LSTM-2", 7.2e6, 1.19),
        Published("QRNN", 13.8e6, 1.187),
        Published("AWD-LSTM", 13.8e6, 1.175),
    ),
    sizes={"paper": "13.4M"},
    measured=(Measured("small_lstm", 1.495, 0.001, seeds=3, tokens=442_422),),
    fields={
        "corpus.form": one_of(*_FORMS)._replace(default="mikolov"),
        "corpus.unknown": SWITCH._replace(default=False),
    },
)
