"""The training loop of all tasks, and what it stands on."""
