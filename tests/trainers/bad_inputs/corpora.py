"""What corpora are scored, by what, and where to."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

from tests.trainers.bad_inputs.row import Row, refused

TEXT = {"a.txt": "a b c\n"}
FLAGS = "--model=models --input=a.txt --output=scores"
BAD_KEEP = "--keep must be FIELD<NUMBER (or <=, >, >=), FIELD one of tokens, nats, perplexity, unknown_share. Received: --keep="
NO_VERSION = "--model must be a model's folder, with a version, a folder whose name is a number. Received: --model='models', which has none"
BAD_NAME = "--input must match files whose names end with .txt, .jsonl, .ndjson or .tfrecord, and .gz after it if they are compressed. Received: "
NO_DASK = "--runner must be one that computes all branches of a pipeline, such as FnApiRunner, PortableRunner, FlinkRunner, SparkRunner or DataflowRunner. Received: --runner="

ROWS = (
    Row("batch_without_model", "batch", "--input=a.txt --output=scores", "--model is missing", TEXT),
    Row("batch_without_input", "batch", "--model=models --output=scores", "--input is missing", TEXT),
    Row("batch_without_output", "batch", "--model=models --input=a.txt", "--output is missing", TEXT),
    Row("batch_text_field_empty", "batch", f"{FLAGS} --text_field=", "--text_field is missing", TEXT),
    Row("batch_output_field_empty", "batch", f"{FLAGS} --output_field=", "--output_field is missing", TEXT),
    refused("batch_output_field_is_text_field", "batch", f"{FLAGS} --output_field=text",
        "another field than --text_field", TEXT),
    Row("batch_output_field_not_utf8", "batch", f"{FLAGS} --output_field=a\udcff", r"--output_field must be UTF-8. Received: --output_field='a\udcff'", TEXT),
    Row("batch_output_with_leading_space", "batch", f"{FLAGS} --output=' s'",
        "--output must be a name without control characters or white space at its ends. Received: --output=' s'", TEXT),
    Row("keep_without_number", "batch", f"{FLAGS} --keep=perplexity", f"{BAD_KEEP}perplexity", TEXT),
    Row("keep_unknown_field", "batch", f"{FLAGS} --keep='tokens>3' --keep='length<3'", f"{BAD_KEEP}length<3", TEXT),
    Row("keep_nan", "batch", f"{FLAGS} --keep='perplexity<nan'", f"{BAD_KEEP}perplexity<nan", TEXT),
    Row("stray_word_to_batch", "batch", f"{FLAGS} stray", "arguments must be flags, --FLAG=VALUE. Received: stray", TEXT),
    Row("misspelt_keep_flag", "batch", f"{FLAGS} --kep='tokens>3'", "unknown flag --kep; did you mean --keep?", TEXT),
    Row("batch_workers_in_words", "batch", f"{FLAGS} --direct_num_workers=two",
        "Beam refuses its flags: argument --direct_num_workers: invalid int value: 'two'", TEXT),
    Row("unknown_runner", "batch", f"{FLAGS} --runner=Nobody", "Unexpected pipeline runner: Nobody. {any}", TEXT),
    Row("portable_runner_without_endpoint", "batch", f"{FLAGS} --runner=PortableRunner", "--job_endpoint is missing, which --runner=PortableRunner needs", TEXT),
    Row("dask_runner", "batch", f"{FLAGS} --runner=DaskRunner", f"{NO_DASK}DaskRunner", TEXT),
    refused("dask_runner_by_full_name", "batch", f"{FLAGS} --runner=apache_beam.runners.dask.dask_runner.DaskRunner",
        "one that computes all branches of a pipeline, such as FnApiRunner, PortableRunner, FlinkRunner, SparkRunner or DataflowRunner", TEXT),
    Row("batch_input_missing", "batch", FLAGS, "--input must match files. Received: --input=a.txt, which matches none"),
    Row("batch_pattern_matches_none", "batch", "--model=models --input=nowhere/*.txt --output=scores",
        "--input must match files. Received: --input=nowhere/*.txt, which matches none"),
    Row("batch_input_is_csv", "batch", "--model=models --input=* --output=scores", f"{BAD_NAME}./a.csv", {"a.csv": ""}),
    Row("batch_input_name_not_utf8", "batch", "--model=models --input=* --output=scores",
        r"--input must match files whose names are UTF-8. Received: './a\udcff.txt'", {"a\udcff.txt": ""}),
    Row("batch_model_without_version", "batch", FLAGS, NO_VERSION, TEXT),
    Row("batch_model_is_a_file", "batch", FLAGS,
        "--model must be a model's folder, in which each export is a new version. Received: --model='models', which is a file", TEXT | {"models": "a file"}),
    refused("batch_output_not_empty", "batch", FLAGS,
        "a new or an empty folder, or that of the same command", TEXT | {"models/1/a": "", "scores/a": ""}, received="scores, which is not empty and has no settings.json"),
    Row("batch_saved_model_damaged", "batch", FLAGS,
        "models/1 cannot be loaded: {any}", TEXT | {"models/1/saved_model.pb": b"damaged"}),
)
