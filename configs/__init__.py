"""One file a task: values only, each with its source."""
