"""Tables and recordings that are not what they should be."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

from tests.trainers.bad_inputs.row import NO_FLAGS, Row, fifo, refused

CSV = "--task=csv --data_dir=t"
NUMBERS = "--task=csv_numbers --data_dir=t"
GOOD = {f"t/{name}.csv": f"id,label,a\n{name},{label},1\n{name},{label},2\n"
        for name, label in (("p", "x"), ("q", "y"), ("r", "y"), ("s", "y"), ("u", "x"))}


def csv(name: str, line: str, flags: str = NO_FLAGS, task: str = CSV, **files: str | bytes | None) -> Row:
    """Returns the row of five good files, of which some are replaced, or left out for None."""
    kept = GOOD | {f"t/{name}.csv": content for name, content in files.items()}
    return Row(name, "series", f"{task} {flags}", line, {n: c for n, c in kept.items() if c is not None})


TIMED = {name: f"id,label,a,t\n{name},x,1,0\n{name},x,2,1\n{name},x,3,2\n" for name in "pqrsu"}
PARTS = {name: f"id,label,a,part\n{name},{label},1,{part}\n" for name, label, part in (
    ("p", "x", "train"), ("q", "y", "train"), ("r", "x", "train"), ("s", "y", "validation"), ("u", "x", "test"))}
BY_COLUMN = "--config.data.split=column --config.data.split_column=part"
LEVELS = {name: f"id,label,a\n{name},{level},1\n{name},{level},2\n" for level, name in enumerate("pqrsu")}
GAPS = {name: f"id,label,a,b\n{name},x,,1\n{name},x,2,\n" for name in "pqrsu"}

ROWS = (
    Row("csv_without_data_dir", "series", "--task=csv", "--data_dir must be a folder with CSV or Parquet files for --task=csv. Received: no --data_dir"),
    Row("csv_folder_missing", "series", CSV, "--data_dir must be a folder with .csv or .parquet files. Received: --data_dir=t, which is no folder"),
    Row("csv_folder_without_tables", "series", CSV, "--data_dir must be a folder with .csv or .parquet files. Received: --data_dir=t, which has none", {"t/notes.txt": "id,label,a\n"}),
    Row("csv_is_a_pipe", "series", CSV, "{any}t/p.csv must be a file. Received: a pipe", {"t/p.csv": fifo}),
    csv("csv_without_label_column", "t/q.csv must have the column 'label'. Received: id, a", q="id,a\nq,1\n"),
    csv("csv_without_named_channel", "t/p.csv must have the column 'ax'. Received: id, label, a", "--config.data.channels=a,ax"),
    csv("csv_without_channels", "t/p.csv, line 1 must have columns of channels. Received: id, label, which all have another meaning", p="id,label\np,x\n"),
    csv("csv_column_twice", "t/s.csv, line 1 must have the names of the columns, each once. Received: 'a' twice", s="id,label,a,a\ns,y,1,2\n"),
    csv("csv_without_header", "t/s.csv, line 1 must have the names of the columns, each once. Received: none", s=""),
    csv("csv_row_too_short", "t/q.csv, line 3 must have 3 cells, as the first line. Received: 2", q="id,label,a\nq,y,1\nq,y\n"),
    csv("csv_row_too_long", "t/q.csv, line 4 must have 3 cells, as the first line. Received: 4", q='id,label,a\n"q","y\ny",1\nq,y,1,2\n'),
    csv("csv_cell_in_words", "t/q.csv, line 3: the column 'a' must have finite float32 numbers, or empty cells. Received: 'one'", q="id,label,a\nq,y,1\nq,y,one\n"),
    csv("csv_cell_infinite", "t/q.csv, line 2: the column 'a' must have finite float32 numbers, or empty cells. Received: '1e999'", q="id,label,a\nq,y,1e999\n"),
    csv("csv_cell_with_comma", "t/q.csv, line 2: the column 'a' must have finite float32 numbers, or empty cells. Received: '1,5'", q='id,label,a\nq,y,"1,5"\n'),
    csv("csv_open_quote", "t/q.csv, line 3 must be a row of CSV in UTF-8. Received: unexpected end of data", q='id,label,a\nq,y,1\nq,y,"2\n'),
    csv("csv_latin_1", "t/q.csv, line 2 must be a row of CSV in UTF-8. Received: the byte 0xe9 at character 2", q=b"id,label,a\nq\xe9,y,1\n"),
    csv("csv_utf16", "t/s.csv, line 1 must be a row of CSV in UTF-8. Received: the byte 0xff at character 1", s="id,label,a\ns,y,1\n".encode("utf-16")),
    csv("csv_cell_beyond_float32", "t/q.csv, line 3: the column 'a' must have finite float32 numbers, or empty cells. Received: '1e39'", q="id,label,a\nq,y,1\nq,y,1e39\n"),
    csv("csv_cell_nan", "t/q.csv, line 3: the column 'a' must have finite float32 numbers, or empty cells. Received: 'nan'", q="id,label,a\nq,y,1\nq,y,nan\n"),
    csv("csv_cell_na", "t/q.csv, line 2: the column 'a' must have finite float32 numbers, or empty cells. Received: 'NA'", q="id,label,a\nq,y,NA\n"),
    csv("csv_label_beyond_float32", "t/q.csv, line 2: the column 'label' must have finite float32 numbers, or empty cells. Received: '1e300'", task=NUMBERS, **LEVELS | {"q": "id,label,a\nq,1e300,1\n"}),
    csv("csv_label_nan", "t/q.csv, line 2: the column 'label' must have finite float32 numbers, or empty cells. Received: 'nan'", task=NUMBERS, **LEVELS | {"q": "id,label,a\nq,nan,1\nq,nan,2\n"}),
    csv("csv_channel_spread_too_large", "the channel 'a' must have a standard deviation from 1e-07 to 1e+19 over the training recordings: give other units. Received: 1.41421e+38", BY_COLUMN, **PARTS | {"p": "id,label,a,part\np,x,3e38,train\n"}),
    csv("csv_answers_spread_too_large", "the numbers to predict must have a standard deviation from 1e-30 to 1e+30 over the training recordings: give other units. Received: {any}", task=NUMBERS, **{name: f"id,label,a\n{name},{level}e38,1\n{name},{level}e38,2\n" for level, name in enumerate("psqur", -2)}),
    csv("csv_control_characters", r"t/\x1b[2J.csv, line 2: the column '\x07' must have finite float32 numbers, or empty cells. Received: '\x9b'", **{"\x1b[2J": "id,label,\x07\nq,y,\x9b\n"}),
    csv("csv_cell_without_id", "t/q.csv, line 3: the column 'id' must name the row's series. Received: an empty cell", q="id,label,a\nq,y,1\n ,y,1\n"),
    csv("csv_series_without_full_row", "t/p.csv, line 2: a series must have a row without an empty cell in its channels. Received: none of 'p'", **GAPS),
    csv("csv_two_labels_in_a_series", "t/q.csv, line 4: a series must have one label in 'label' (config.data.answer=step takes one a step). Received: 'x' of 'q', and 'y' in t/q.csv, line 2", q="id,label,a\nq,y,1\nq,,2\nq,x,3\n"),
    csv("csv_series_without_label", "t/{any}.csv, line 2: a series must have a label in 'label'. Received: none of 'q'", q="id,label,a\nq,,1\nq,,2\n"),
    csv("csv_one_class", "t/{any}.csv, line 2: the training series must have labels of at least two classes. Received: x", **{n: f"id,label,a\n{n},x,1\n" for n in "pqrsu"}),
    csv("csv_two_series", "there must be at least 3 series, for training, validation and test. Received: 2, such as 'q', of t/q.csv, line 2", r=None, s=None, u=None),
    csv("csv_split_by_unnamed_time", "`config.data.time` must name a column of the files. Received: config.data.time=''", "--config.data.split=time"),
    csv("csv_split_by_unnamed_column", "`config.data.split_column` must name a column of the files. Received: config.data.split_column=''", "--config.data.split=column"),
    csv("csv_label_column_unnamed", "`config.data.label` must name a column of the files. Received: config.data.label=''", "--config.data.label="),
    csv("csv_label_among_channels", "config.data must give each column one meaning. Received: 'label' twice among its channels, id, time, label and split_column", "--config.data.channels=a,label"),
    csv("csv_unknown_split", "`config.data.split` must be one of ('series', 'time', 'column'). Received: config.data.split='random'", "--config.data.split=random"),
    csv("csv_test_share_one", "`config.data.test_share` must be a number between 0 and 1, neither of them. Received: config.data.test_share=1.0", "--config.data.test_share=1"),
    csv("csv_series_in_two_splits", "t/q.csv, line 3: a series must be in one split. Received: 'q' in 'test', and in 'train' in t/q.csv, line 2", BY_COLUMN, **PARTS | {"q": "id,label,a,part\nq,y,1,train\nq,y,2,test\n"}),
    csv("csv_split_in_capitals", "t/q.csv, line 2: a split must be one of train, validation, test. Received: 'Train'", BY_COLUMN, **PARTS | {"q": "id,label,a,part\nq,y,1,Train\n"}),
    csv("csv_test_split_empty", "each of train, validation, test must have a series by config.data.split_column. Received: none in test", BY_COLUMN, **PARTS | {"u": None}),
    csv("csv_validation_class_untrained", "t/s.csv, line 2: a label must be one of the classes of the training series, x, y. Received: 'z'", BY_COLUMN, **PARTS | {"s": "id,label,a,part\ns,z,1,validation\n"}),
    csv("csv_time_twice", "t/q.csv, line 4: a series must have each time once. Received: 1 of 'q', as in t/q.csv, line 3", "--config.data.time=t", **TIMED | {"q": "id,label,a,t\nq,x,1,0\nq,x,2,1\nq,x,3,1\n"}),
    csv("csv_time_gap", "t/q.csv, line 4: the times of a series must be 1 apart, as most are, or within 5% of it (config.data.tolerance). Received: 2 after the row before, in 'q'", "--config.data.time=t", **TIMED | {"q": "id,label,a,t\nq,x,1,0\nq,x,2,1\nq,x,3,3\n"}),
    csv("csv_time_in_words", "t/q.csv, line 2: the column 't' must have times: numbers, or dates as 2024-05-31 or 2024-05-31T12:00:00. Received: 'noon'", "--config.data.time=t", **TIMED | {"q": "id,label,a,t\nq,x,1,noon\n"}),
    csv("csv_label_in_words", "t/{any}.csv, line 2: the column 'label' must have finite float32 numbers, or empty cells. Received: '{any}'", task=NUMBERS),
    Row("parquet_damaged", "series", CSV, "t/p.parquet must be a Parquet file. Received: {any}", {"t/p.parquet": "PAR1"}),
    Row("watch_folder_without_data", "series", "--task=watch --data_dir=t", "--data_dir must be a folder with watch_dataset.npy or with a wheel of seglearn (or no --data_dir, for the installed package). Received: --data_dir=t"),
    Row("watch_other_data", "series", "--task=watch --data_dir=t", "t/watch_dataset.npy must have the SHA-256 eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537, as in seglearn 1.2.5. Received: {any}", {"t/watch_dataset.npy": b"\x93NUMPY"}),
    Row("watch_wheel_damaged", "series", "--task=watch --data_dir=t", "t/seglearn-1.2.5-py3-none-any.whl must be a wheel with seglearn/data/watch_dataset.npy. Received: File is not a zip file", {"t/seglearn-1.2.5-py3-none-any.whl": b"PK"}),
    Row("watch_fold_five", "series", "--task=watch --config.data.fold=5", "`config.data.fold` must be None or an integer of at least 0 and at most 4. Received: config.data.fold=5"),
    Row("watch_depths", "series", "--task=watch --config.training.depths=2", "`config.training.depths` must be () for --task=watch, which trains all levels at once. Received: config.training.depths=(2,)"),
    Row("watch_sru", "series", "--task=watch --config.model.layer=sru", "`config.model.layer` must be one for inputs of a few channels, as the inputs of 'sru' must have as many channels as its outputs. Received: config.model.layer='sru'"),
    refused("watch_by_workers", "series", "--task=watch --distribute=workers", "none or mirrored for trainers.series"),
    Row("forecast_folder_without_data", "series", "--task=forecast --data_dir=t", "--data_dir must be a folder with co2.csv of statsmodels (or no --data_dir, for the installed package). Received: --data_dir=t"),
    Row("forecast_other_data", "series", "--task=forecast --data_dir=t", "t/co2.csv must have the SHA-256 16695fa2786e53414e5a6b54767a3fdf5de99cfbc68617f69d1362d92776a92f, as in statsmodels. Received: {any}", {"t/co2.csv": "date,co2\n"}),
    Row("csv_split_column_by_series", "series", "--task=csv --data_dir=none --config.data.split_column=fold", "`config.data.split_column` must be '', for nothing reads it with config.data.split='series'. Received: config.data.split_column='fold', config.data.split='series'"),
    Row("watch_embedding_dropout", "series", "--task=watch --config.model.embedding_dropout=0.1", "`config.model.embedding_dropout` must be 0.0, for nothing reads it with config.task='watch'. Received: config.model.embedding_dropout=0.1, config.task='watch'"),
    Row("pixel_task_to_series", "series", "--task=seq_mnist", "--task=seq_mnist is one of python -m trainers.pixels, not of trainers.series"),
    Row("series_task_to_pixels", "pixels", "--task=watch", "--task=watch is one of python -m trainers.series, not of trainers.pixels"),
    Row("predict_without_output", "series", "--task=watch --mode=predict", "--output is missing"),
    Row("predict_input_in_training", "series", "--task=watch --input=t", "--input has no use in --mode=train, only in predict"),
    Row("predict_data_dir_with_input", "series", "--task=csv --mode=predict --input=t --data_dir=t --output=o.csv", "--data_dir has no use with --input=t, which has what is predicted"),
    Row("predict_output_exists", "series", "--task=csv --mode=predict --output=o.csv", "--output must be a new file: none is overwritten. Received: --output=o.csv", {"o.csv": "mine"}),
    Row("import_to_watch", "import_weights", "--task=watch --checkpoint=c --workdir=w", "--task=watch is none of the authors' trellis networks"),
)
