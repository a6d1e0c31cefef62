"""The parts of `trainers.reproduce`, which trains on JAX: rows, data, the step, the run."""
