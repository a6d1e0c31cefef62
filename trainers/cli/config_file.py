"""The flag of a file of config values, for programs that train; `config_flags` reads the file."""

from absl import flags

flags.DEFINE_string(
    "config_file",
    None,
    "A JSON file of config values, such as trainers.tune's best.json, for --task and --preset.",
)
