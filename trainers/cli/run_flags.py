"""The flags that name a run."""

from absl import flags

from trainers.tasks import registry

flags.DEFINE_string("task", None, f"One of {', '.join(registry.TASKS)}.")
flags.DEFINE_string("preset", None, "A preset of the task; its first one by default.")
flags.DEFINE_string("data_dir", None, "The folder of the corpus's text files.")
flags.DEFINE_string("workdir", None, "The folder of the run.")
