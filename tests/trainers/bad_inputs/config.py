"""Values of `--config.FIELD`: types, ranges, and fields that do not go together."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

from tests.trainers.bad_inputs.row import Row, texts

LM = "--task=text --data_dir=text"
TEXT = texts()


def lm(field: str, line: str, *, task: str = LM) -> Row:
    """Returns the row of a language model's field."""
    return Row("lm", f"{task} {' '.join(f'--config.{each}' for each in field.split())}", line, TEXT)


def pixels(field: str, line: str, *, task: str = "--task=adding --preset=small") -> Row:
    """Returns the row of a field of a model of sequences."""
    return Row("pixels", f"{task} {' '.join(f'--config.{each}' for each in field.split())}", line)


ROWS = (
    # types
    lm("model.units=many", ""),
    lm("model.units=1.5", ""),
    lm("model.units=", ""),
    lm("optimizer.learning_rate=fast", ""),
    lm("optimizer.learning_rate=1,5", ""),
    lm("schedule.average=7", ""),
    lm("model.dilation_rate=1,b", ""),
    lm("model.dilation_rate=1.5", ""),
    lm("model.dilation_rate=1,2 model.dilation_rate=4", ""),
    lm("schedule.epochs=never", ""),
    lm("seed=now", ""),
    lm("training.epochs=1e2", ""),
    # names
    lm("preset=paper", ""),
    lm("task=ptb", ""),
    lm("model.kind=gru", ""),
    lm("optimizer.name=rmsprop", ""),
    lm("optimizer.name=Adam", ""),
    lm("data.history=kept", ""),
    # numbers that are none
    lm("schedule.minimum=nan", ""),
    lm("optimizer.learning_rate=nan", ""),
    lm("optimizer.learning_rate=inf", ""),
    lm("optimizer.clip_norm=nan", ""),
    lm("optimizer.weight_decay=nan", ""),
    lm("schedule.factor=nan", ""),
    lm("model.dropout=nan", ""),
    lm("model.initial_deviation=nan", ""),
    lm("model.auxiliary_weight=nan", ""),
    lm("model.temporal_weight=inf", ""),
    # ranges
    lm("seed=-1", ""),
    lm("seed=99999999999999999999", ""),
    lm("model.units=0", ""),
    lm("model.units=-3", ""),
    lm("model.depth=0", ""),
    lm("model.depth=-1", ""),
    lm("model.kernel_size=0", ""),
    lm("model.kernel_size=1", ""),
    lm("model.output_units=0", ""),
    lm("model.embedding_units=0", ""),
    lm("model.embedding_units=-1", ""),
    lm("model.dilation_rate=0", ""),
    lm("model.dilation_rate=-1,2", ""),
    lm("model.dilation_rate=", ""),
    lm("model.initial_deviation=-0.1", ""),
    lm("model.dropout=1", ""),
    lm("model.dropout=-0.1", ""),
    lm("model.dropout=1.5", ""),
    lm("model.recurrent_dropout=1", ""),
    lm("model.weight_dropout=2", ""),
    lm("model.output_dropout=-1", ""),
    lm("model.embedding_dropout=1", ""),
    lm("model.auxiliary_every=0", ""),
    lm("model.auxiliary_weight=-1", ""),
    lm("model.activation_weight=-1", ""),
    lm("model.temporal_weight=-1", ""),
    lm("data.batch_size=0", ""),
    lm("data.batch_size=-1", ""),
    lm("data.window=0", ""),
    lm("data.window=-5", ""),
    lm("data.horizon=-1", ""),
    lm("optimizer.learning_rate=0", ""),
    lm("optimizer.learning_rate=-1", ""),
    lm("optimizer.clip_norm=0", ""),
    lm("optimizer.clip_norm=-1", ""),
    lm("optimizer.weight_decay=-1", ""),
    lm("schedule.factor=0", ""),
    lm("schedule.factor=-0.5", ""),
    lm("schedule.factor=2", ""),
    lm("schedule.patience=-1", ""),
    lm("schedule.minimum=-1", ""),
    lm("schedule.epochs=-3", ""),
    lm("schedule.epochs=3,2", ""),
    lm("training.epochs=0", ""),
    lm("training.epochs=-3", ""),
    lm("training.log_every_steps=0", ""),
    lm("training.checkpoint_every_steps=0", ""),
    lm("training.checkpoint_every_steps=-1", ""),
    lm("evaluation.batch_size=0", ""),
    lm("evaluation.exact_batch_size=0", ""),
    lm("evaluation.exact_chunk=-1", ""),
    # fields that do not go together
    lm("data.horizon=80 data.window=80", ""),
    lm("data.history=carried", ""),
    lm("schedule.average=true optimizer.name=adam", ""),
    lm("model.output_units=300 model.units=256", ""),
    lm("model.output_units=100 model.embedding_units=200", ""),
    lm("model.auxiliary_every=7 model.auxiliary_weight=0.1", ""),
    lm("schedule.minimum=1", ""),
    lm("data.window=100000", ""),
    lm("data.batch_size=800", ""),
    lm("data.batch_size=100000", ""),
    lm("evaluation.batch_size=5000", ""),
    # fields of other tasks
    lm("corpus.unknown=1", "", task="--task=ptb_char --preset=small"),
    lm("corpus.form=theirs", "", task="--task=ptb_char --preset=small"),
    lm("corpus.order=size", "", task="--task=wikitext2 --preset=small"),
    lm("model.head.experts=0", "", task="--task=ptb_mos --preset=small"),
    lm("model.head.cutoffs=5,3", "", task="--task=wikitext103 --preset=small"),
    lm("model.head.kind=hierarchy", "", task="--task=ptb_mos --preset=small"),
    lm("model.layers=0", "", task="--task=ptb --preset=small_lstm"),
    lm("model.groups=3", "", task="--task=ptb --preset=small_mixed_group_convolution"),
    lm("model.inject_every=0", "", task="--task=ptb --preset=small_inject_every_2"),
    pixels("data.steps=0", ""),
    pixels("data.steps=1", ""),
    pixels("data.steps=-5", "", task="--task=copy_memory --preset=small"),
    pixels("data.train=0", ""),
    pixels("data.validation=-1", ""),
    pixels("data.test=0", ""),
    pixels("data.batch_size=0", ""),
    pixels("data.batch_size=20000", ""),
    pixels("evaluation.batch_size=0", ""),
    pixels("model.depth=0", ""),
    pixels("model.initial_deviation=-1", ""),
    pixels("model.dilation_rate=1 model.dilation_rate=2", ""),
    pixels("training.epochs=-3", ""),
    pixels("task=copy_memory", ""),
    pixels("data.validation=0", "", task="--task=seq_mnist --preset=small"),
)
# of the environment, which says that there are several workers
_WORKERS = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
ROWS += (
    Row("lm", LM, "", TEXT, environment={"TF_CONFIG": _WORKERS}),
    Row("pixels", "--task=adding", "", environment={"TF_CONFIG": _WORKERS}),
)
