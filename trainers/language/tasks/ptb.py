"""The Penn Treebank by words, with a tied softmax and with a mixture of softmaxes."""

import dataclasses
import functools
import io

from etils import epath

from configs import ptb, ptb_mos, ptb_recurrent
from keras_trellis.formats.manifest import NOT_STATED
from trainers.data import penn_treebank, printed, tokens
from trainers.data.encoding import Source
from trainers.kinds.task import Published
from trainers.language.tasks.task import LanguageTask, Measured

DATA = "the Penn Treebank, Wall Street Journal of 1989, as Mikolov preprocessed it"
LICENCE = (
    f"{NOT_STATED} with the preprocessed files; the Penn Treebank itself is licensed by the "
    "Linguistic Data Consortium (LDC99T42)"
)
MADE_READY = "lower case, numbers as `N`"


def text_source(
    task: LanguageTask,
    data_dir: epath.PathLike | None,
    cache_dir: epath.Path,
    split: tokens.Tokens | None = None,
    **settings: object,
) -> Source:
    """Returns the published text: downloaded, or the three files in `data_dir`."""
    if data_dir is not None:
        penn_treebank.published_files(data_dir)

    @functools.cache
    def texts() -> dict[str, str]:
        return penn_treebank.texts(data_dir, cache_dir / "tensorflow_datasets")

    return Source(
        task.name,
        penn_treebank.FILES,
        penn_treebank.checksums(),
        lambda split: io.BytesIO(texts()[split].encode()),
        split or task.list_tokens,
        **settings,  # type: ignore[arg-type]
    )


# Table 1 of the paper: other models of these words.
_QUOTED = (
    Published("generic TCN", 13e6, 88.68),
    Published("variational LSTM", 66e6, 73.4),
    Published("NAS cell", 54e6, 62.4),
    Published("NAS, tuned as a black box", None, 59.7),
    Published("AWD-LSTM", 24e6, 58.8),
    Published("LSTM with skip connections, tuned as a black box", None, 58.3),
    Published("AWD-LSTM, mixture of contexts", None, 57.55),
    Published("DARTS", None, 56.10),
    Published("AWD-LSTM, mixture of softmaxes", None, 55.97),
    Published("ENAS", None, 55.80),
)

PTB = LanguageTask(
    name="ptb",
    presets=ptb.PRESETS,
    former_presets=ptb.FORMER_PRESETS,
    source=text_source,
    standardize=tokens.penn_treebank,
    made_ready=MADE_READY,
    printed=printed.penn_treebank,
    data=DATA,
    licence=LICENCE,
    vocabulary_size=10_000,
    # Section 5.2; what is left out or changed is of the ablation there.
    published=(
        Published("as published", 24e6, 56.97),
        Published("larger", 33e6, 56.80),
        Published("no hidden dropout", 24.1e6, 64.69),
        Published("no weight dropout", 24.1e6, 63.82),
        Published("no auxiliary loss", 24.1e6, 57.99),
        Published("no long sequence parallelism", 24.1e6, 57.35),
        Published("mixed group convolution", 24.1e6, 59.18),
        Published("input every 2 layers", 24.1e6, 57.44),
        Published("input every 5 layers", 24.1e6, 59.75),
        Published("input every 10 layers", 24.1e6, 60.70),
        Published("input every 20 layers", 24.1e6, 74.91),
    ),
    quoted=_QUOTED,
    sizes={
        "paper": "24M",
        "paper_larger": "33M",
        "paper_short": "24M",
        **{f"paper_{name}": "24.1M" for name in ptb.ABLATIONS},
        # Table II of Kuo et al. 2020
        **{
            name: f"{row.size} in its layer"
            for name, row in ptb_recurrent.ROWS.items()
            if row.size
        },
    },
    measured=(Measured("small_lstm", 90.43, 0.19, seeds=3, tokens=82_429),),
)

PTB_MOS = dataclasses.replace(
    PTB,
    name="ptb_mos",
    presets=ptb_mos.PRESETS,
    former_presets={},
    published=(
        Published("as published", 25e6, 54.67),
        Published("larger", 34e6, 54.19),
    ),
    sizes={"paper": "25M", "paper_larger": "34M"},
    measured=(),  # has no preset of an LSTM
)
