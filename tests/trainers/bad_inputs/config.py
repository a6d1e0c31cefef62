"""Values of `--config.FIELD`: types, ranges, and fields that do not go together."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

from tests.trainers.bad_inputs.row import Row, texts

LM = "--task=text --preset=small --data_dir=text"
ADDING = "--task=adding --preset=small"
TEXT = texts()

# What fields must be.
COUNT = "an integer of at least 1 and below 2**31"
OPTIONAL_COUNT = f"None or {COUNT}"
ABOVE_0 = "a finite number above 0"
AT_LEAST_0 = "a finite number of at least 0"
RATE = "a number in [0, 1)"
FRACTION = "a number between 0 and 1, neither of them"
DILATIONS = "positive integers below 2**31, at least one, as in 1,2,4"
EPOCHS = "increasing positive integers below 2**31, as in 3,5, or ()"


def flags(task: str, fields: str) -> str:
    """Returns a command's flags for a task and fields of its config."""
    return f"{task} {' '.join(f'--config.{each}' for each in fields.split())}"


def must(fields: str, rule: str, received: str) -> str:
    """Returns the line on the first of the fields; `received` is how its value is printed."""
    field, _, value = fields.split()[0].partition("=")
    return f"`config.{field}` must be {rule}. Received: config.{field}={received or value}"


def lm(name: str, fields: str, line: str, *, task: str = LM) -> Row:
    """Returns the row of fields of a language model."""
    return Row(name, "lm", flags(task, fields), line, TEXT)


def lm_must(name: str, fields: str, rule: str, *, received: str = "", task: str = LM) -> Row:
    """Returns the row of a language model's field, which must be something else."""
    return lm(name, fields, must(fields, rule, received), task=task)


def pixels(name: str, fields: str, line: str, *, task: str = ADDING) -> Row:
    """Returns the row of fields of a model of sequences."""
    return Row(name, "pixels", flags(task, fields), line)


def pixels_must(
    name: str, fields: str, rule: str, *, received: str = "", task: str = ADDING
) -> Row:
    """Returns the row of a field of a model of sequences, which must be something else."""
    return pixels(name, fields, must(fields, rule, received), task=task)


ROWS = (
    # types
    lm_must("units_in_words", "model.units=many", "of type int"),
    lm_must("units_fraction", "model.units=1.5", "of type int"),
    lm_must("units_empty", "model.units=", "of type int"),
    lm_must("learning_rate_in_words", "optimizer.learning_rate=fast", "of type float"),
    lm_must("learning_rate_with_comma", "optimizer.learning_rate=1,5", "of type float"),
    lm_must("average_not_boolean", "schedule.average=7", "of type bool"),
    lm_must("dilation_in_letters", "model.dilation_rate=1,b", DILATIONS, received="(1, 'b')"),
    lm_must("dilation_fraction", "model.dilation_rate=1.5", DILATIONS, received="('1.5',)"),
    lm_must("schedule_epochs_in_words", "schedule.epochs=never", EPOCHS, received="('never',)"),
    lm_must("seed_in_words", "seed=now", "of type int"),
    lm_must("epochs_in_exponents", "training.epochs=1e2", "of type int"),
    # names
    lm("preset_as_field", "preset=paper",
        "--config.preset would change the name alone, and none of its values; use --preset=..."),
    lm("task_as_field", "task=ptb",
        "--config.task would change the name alone, and none of its values; use --task=..."),
    lm_must("unknown_layer", "model.layer=rnn",
        "one of ('trellis', 'equilibrium', 'lstm', 'skip_lstm', 'gru', 'gru_reset_before', 'weight_drop_lstm', 'irc_gru', 'irc_lstm', 'ihc_lstm', 'ihc_lstm_projected', 'sru', 'irc_sru', 't_lstm', 'irc_t_lstm', 'fast_grnn', 'irc_fast_grnn', 'tensorized', 'grid_lstm', 'tcn', 'transformer')", received="'rnn'"),
    lm_must("unknown_gate", "model.gate=relu",
        "one of ('fastgrnn', 'gru', 'irc_gru', 'irc_lstm', 'lstm', 'tanh')", received="'relu'"),
    lm("auxiliary_weight_with_gru", "model.layer=gru model.auxiliary_weight=0.1",
        "`config.model.auxiliary_weight` must be 0.0, for nothing reads it with config.model.layer='gru'. Received: config.model.auxiliary_weight=0.1, config.model.layer='gru'"),
    lm("auxiliary_weight_with_equilibrium", "model.layer=equilibrium model.auxiliary_weight=0.1",
        "`config.model.auxiliary_weight` must be 0.0, for nothing reads it with config.model.layer='equilibrium'. Received: config.model.auxiliary_weight=0.1, config.model.layer='equilibrium'"),
    lm("gate_with_lstm", "model.layer=lstm model.gate=tanh",
        "`config.model.gate` must be 'lstm', for nothing reads it with config.model.layer='lstm'. Received: config.model.gate='tanh', config.model.layer='lstm'"),
    lm("forget_bias_with_gru_gate", "model.gate=gru model.unit_forget_bias=true",
        "`config.model.unit_forget_bias` must be False, for nothing reads it with config.model.gate='gru'. Received: config.model.unit_forget_bias=True, config.model.gate='gru'"),
    lm("groups_with_lstm", "model.layer=lstm model.groups=7 model.weight_dropout=0.9",
        "`config.model.groups` must be 1, for nothing reads it with config.model.layer='lstm'. Received: config.model.groups=7, config.model.layer='lstm', config.model.weight_dropout=0.9"),
    lm("cutoffs_with_tied_head", "model.adaptive.cutoffs=9",
        "`config.model.adaptive.cutoffs` must be (2000,), for nothing reads it with config.model.head='tied'. Received: config.model.adaptive.cutoffs=(9,), config.model.head='tied'"),
    pixels("dropout_with_adding", "model.dropout=0.5",
        "`config.model.dropout` must be 0.0, for nothing reads it with config.task='adding'. Received: config.model.dropout=0.5, config.task='adding'"),
    pixels("tensorized_size_with_trellis", "model.tensorized.size=5",
        "`config.model.tensorized.size` must be 3, for nothing reads it with config.model.layer='trellis'. Received: config.model.tensorized.size=5, config.model.layer='trellis'"),
    lm("more_heads_than_units", "model.layer=transformer model.transformer.heads=300",
        "`config.model.transformer.heads` must be at most config.model.units=256. Received: config.model.transformer.heads=300"),
    lm_must("unknown_optimizer", "optimizer.name=rmsprop", "one of ('sgd', 'adam')", received="'rmsprop'"),
    lm_must("optimizer_in_capitals", "optimizer.name=Adam", "one of ('sgd', 'adam')", received="'Adam'"),
    lm_must("unknown_history", "data.history=kept", "one of ('zero', 'carried')", received="'kept'"),
    # numbers that are none
    lm_must("minimum_rate_nan", "schedule.minimum=nan", AT_LEAST_0),
    lm_must("learning_rate_nan", "optimizer.learning_rate=nan", ABOVE_0),
    lm_must("learning_rate_infinite", "optimizer.learning_rate=inf", ABOVE_0),
    lm_must("clip_norm_nan", "optimizer.clip_norm=nan", ABOVE_0),
    lm_must("weight_decay_nan", "optimizer.weight_decay=nan", AT_LEAST_0),
    lm_must("factor_nan", "schedule.factor=nan", FRACTION),
    lm_must("dropout_nan", "model.dropout=nan", RATE),
    lm_must("deviation_nan", "model.initial_deviation=nan", AT_LEAST_0),
    # ranges
    lm_must("seed_negative", "seed=-1", "an integer of at least 0 and at most 4294967295"),
    lm_must("seed_huge", "seed=99999999999999999999", "an integer of at least 0 and at most 4294967295"),
    lm_must("units_zero", "model.units=0", COUNT),
    lm_must("units_negative", "model.units=-3", COUNT),
    lm_must("depth_zero", "model.depth=0", COUNT),
    lm_must("output_units_zero", "model.output_units=0", OPTIONAL_COUNT),
    lm_must("embedding_units_zero", "model.embedding_units=0", OPTIONAL_COUNT),
    lm_must("embedding_units_negative", "model.embedding_units=-1", OPTIONAL_COUNT),
    lm_must("dilation_zero", "model.dilation_rate=0", DILATIONS, received="(0,)"),
    lm_must("dropout_one", "model.dropout=1", RATE, received="1.0"),
    lm_must("dropout_negative", "model.dropout=-0.1", RATE),
    lm_must("auxiliary_from_the_side", "model.auxiliary_from=left", "one of ('bottom', 'top')", received="'left'"),
    lm_must("horizon_negative", "data.horizon=-1", "an integer of at least 0 and below 2**31"),
    lm_must("factor_zero", "schedule.factor=0", FRACTION, received="0.0"),
    lm_must("factor_negative", "schedule.factor=-0.5", FRACTION),
    lm_must("schedule_epochs_negative", "schedule.epochs=-3", EPOCHS, received="(-3,)"),
    lm_must("schedule_epochs_falling", "schedule.epochs=3,2", EPOCHS, received="(3, 2)"),
    # fields that do not go together
    lm_must("horizon_as_long_as_window", "data.horizon=80 data.window=80 data.history=zero",
        "below config.data.window=80, so that a window has something to score"),
    lm_must("horizon_with_carried_history", "data.horizon=16",
        "0 with config.data.history='carried': windows that overlap have no state to go on from"),
    lm("schedule_epochs_with_steps", "training.steps=9 schedule.epochs=1,2",
        "--config.schedule.epochs has no use with config.training.steps=9, over which the rate falls along a cosine; --config.training.steps=0 trains with the schedule"),
    lm("epochs_with_steps", "training.epochs=2",
        "--config.training.epochs=2 would change the number of validations, not the length of the run, which is config.training.steps=33000; give --config.training.steps too, where 0 trains for so many epochs",
        task="--task=ptb --preset=small --data_dir=text"),
    lm("sru_units_unlike_embedding", "model.layer=sru",
        "`config.model.units` must be config.model.embedding_units, as the inputs of 'sru' must have as many channels as its outputs. Received: config.model.units=256, config.model.embedding_units=200"),
    lm("released_variant_with_irc_lstm", "model.layer=irc_lstm model.variant=released",
        "`config.model.variant` must be one of ('paper',) with config.model.layer='irc_lstm'. Received: config.model.variant='released'"),
    lm_must("layer_dropout_one", "model.layer_dropout=1", "None or a number in [0, 1)", received="1.0"),
    lm_must("stop_at_without_answers", "schedule.stop_at=1",
        "None for --task=text, which has no answers to be right", received="1.0"),
    pixels_must("stop_at_above_one", "schedule.stop_at=2",
        "None or a number above 0 and at most 1", received="2.0", task="--task=addition --preset=small"),
    pixels_must("grid_lstm_units_unlike_outputs", "model.units=30 model.output_units=20",
        "20, the channels of the outputs: all blocks of a grid are alike", task="--task=addition --preset=small_grid_lstm"),
    lm_must("horizon_with_drawn_lengths", "data.horizon=16 data.history=zero data.lengths=drawn",
        "0 with config.data.lengths='drawn', whose windows do not overlap"),
    lm("depths_without_steps", "training.depths=4,8",
        "`config.training.depths` must be () without config.training.steps, which has the parts of the run. Received: config.training.depths=(4, 8), config.training.steps=0"),
    Row("unknown_tokens", "lm", "--task=pydoc --config.data.tokens=bytes",
        "`config.data.tokens` must be one of ('words', 'pieces'). Received: config.data.tokens='bytes'"),
    Row("vocabulary_below_bytes", "lm", "--task=pydoc --config.data.tokens=pieces --config.data.vocabulary_size=255",
        "`config.data.vocabulary_size` must be None or an integer of at least 256 and below 2**31. Received: config.data.vocabulary_size=255"),
    Row("vocabulary_size_with_words", "lm", "--task=pydoc --config.data.vocabulary_size=2000",
        "`config.data.vocabulary_size` must be None with config.data.tokens='words': the training text has its words. Received: config.data.vocabulary_size=2000"),
    lm_must("unknown_lengths", "data.lengths=random", "one of ('equal', 'drawn')", received="'random'"),
    lm_must("more_output_units_than_units", "model.output_units=300 model.units=256", "at most config.model.units=256"),
    lm("output_units_unlike_embedding", "model.output_units=100 model.embedding_units=200",
        "`config.model.output_units` must be config.model.embedding_units, as outputs and word vectors are multiplied. Received: config.model.output_units=100, config.model.embedding_units=200"),
    lm_must("auxiliary_every_above_depth", "model.auxiliary_every=13 model.auxiliary_weight=0.1",
        "at most config.model.depth=8 (or config.model.auxiliary_weight 0)"),
    lm_must("more_dilations_than_levels", "model.dilation_rate=1,2,4 model.depth=2",
        "at most config.model.depth=2 dilations: no level uses more", received="(1, 2, 4)"),
    lm("window_longer_than_text", "data.window=100000",
        "the training text (text/train.txt) holds 800 tokens, 12 in each of config.data.batch_size=64 streams; expected at least 100001 in each, for config.data.window=100000: use --config.data.window=11, or give more text"),
    lm("batch_leaves_short_streams", "data.batch_size=800",
        "the training text (text/train.txt) holds 800 tokens, 1 in each of config.data.batch_size=800 streams; expected at least 9 in each, for config.data.window=8: use --config.data.batch_size=88, or give more text"),
    lm("batch_leaves_empty_streams", "data.batch_size=100000",
        "the training text (text/train.txt) holds 800 tokens, 0 in each of config.data.batch_size=100000 streams; expected at least 9 in each, for config.data.window=8: use --config.data.batch_size=88, or give more text"),
    lm("evaluation_batch_too_large", "evaluation.batch_size=5000",
        "the validation text (text/valid.txt) holds 800 tokens; expected at least 10000, 2 (config.data.horizon + 2) in each of config.evaluation.batch_size=5000 streams: use --config.evaluation.batch_size=400, or give more text"),
    # fields of other tasks
    lm_must("corpus_unknown_not_boolean", "corpus.unknown=perhaps",
        "of type bool", task="--task=ptb_char --preset=small"),
    lm_must("unknown_corpus_form", "corpus.form=theirs",
        "one of ('mikolov', 'paper', 'released')", received="'theirs'", task="--task=ptb_char --preset=small"),
    lm_must("unknown_corpus_order", "corpus.order=size",
        "one of ('appearance', 'frequency')", received="'size'", task="--task=wikitext2 --preset=small"),
    lm_must("cutoffs_falling", "model.adaptive.cutoffs=5,3",
        "increasing positive integers below 2**31, at least one", received="(5, 3)", task="--task=wikitext103 --preset=small"),
    lm_must("unknown_head", "model.head=hierarchy",
        "one of ('tied', 'mixture', 'adaptive')", received="'hierarchy'", task="--task=ptb_mos --preset=small"),
    lm_must("groups_not_a_divisor", "model.groups=3",
        "a divisor of config.model.units=494", task="--task=ptb --preset=small_mixed_group_convolution"),
    lm_must("inject_groups_with_one_group", "model.inject_groups=True",
        "False with config.model.groups=1, which the input enters anyway", task="--task=ptb --preset=small"),
    pixels_must("adding_steps_zero", "data.steps=0", "an integer of at least 2 and below 2**31"),
    pixels_must("adding_steps_one", "data.steps=1", "an integer of at least 2 and below 2**31"),
    pixels("batch_larger_than_training_set", "data.batch_size=200 data.train=100",
        "`config.data.batch_size` must be at most the number of training sequences. Received: config.data.batch_size=200, config.data.train=100"),
    pixels("pixel_task_as_field", "task=copy_memory",
        "--config.task would change the name alone, and none of its values; use --task=..."),
    pixels("stop_after_without_validation", "data.validation=0 schedule.stop_after=3",
        "`config.schedule.stop_after` must be None with config.data.validation=0, which leaves no validation loss. Received: config.schedule.stop_after=3", task="--task=seq_mnist --preset=small"),
    pixels("no_validation_and_no_test", "data.validation=0 evaluation.test=False",
        "`config.evaluation.test` must be True with config.data.validation=0: there would be no score. Received: config.evaluation.test=False", task="--task=seq_mnist --preset=small"),
    pixels_must("label_smoothing_one", "training.label_smoothing=1",
        RATE, received="1.0", task="--task=seq_mnist --preset=small"),
    pixels_must("too_many_digits", "data.digits=19",
        "an integer of at least 1 and at most 18", task="--task=addition --preset=small"),
    pixels_must("one_kind_to_memorize", "data.kinds=1",
        "an integer of at least 2 and at most 257", task="--task=memorization --preset=small"),
    pixels("too_many_sequences_to_memorize", "data.symbols=40 data.kinds=65",
        "(`config.data.kinds` - 1) to the power of half of `config.data.symbols` must be below 2**62. Received: config.data.kinds=65, config.data.symbols=40", task="--task=memorization --preset=small"),
    pixels("more_examples_than_there_are", "data.digits=1 data.train=100 data.batch_size=20 training.epochs=2 data.validation=10 data.test=10",
        "a run of --task=addition sees each example once, and there are 81. Received: 20 that are held out and 200 to train on (config.training.epochs, config.data.train)", task="--task=addition --preset=small"),
)
# of the environment, which says that there are several workers
_WORKERS = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
ROWS += (
    Row("two_machines_to_lm", "lm", LM,
        "TF_CONFIG in the environment names a cluster of 2 machines, each of which would train alone; --distribute=workers trains on all of them, and without TF_CONFIG (unset TF_CONFIG) this one trains alone", TEXT, environment={"TF_CONFIG": _WORKERS}),
    Row("two_machines_to_pixels", "pixels", "--task=adding",
        "TF_CONFIG in the environment names a cluster of 2 machines, each of which would train alone; --distribute=workers trains on all of them, and without TF_CONFIG (unset TF_CONFIG) this one trains alone", environment={"TF_CONFIG": _WORKERS}),
    Row("workers_without_tf_config", "lm", LM + " --distribute=workers",
        "--distribute=workers needs TF_CONFIG in the environment, {\"cluster\": {\"worker\": [\"HOST:PORT\", ...]}, \"task\": {\"type\": \"worker\", \"index\": 0}}, or a step of Slurm (srun); there is neither", TEXT),
    Row("worker_index_outside_cluster", "pixels", "--task=adding --distribute=workers",
        "TF_CONFIG in the environment has task.index 7; its cluster has worker 0 to 1", environment={"TF_CONFIG": _WORKERS.replace(": 0", ": 7")}),
    Row("workers_wait_without_workers", "pixels", "--task=adding --workers_wait=3",
        "--workers_wait has no use without --distribute=workers"),
)
