"""The tasks by name, the configs of runs, and what a run's folder says of itself."""
