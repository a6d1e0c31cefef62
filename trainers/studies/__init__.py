"""Studies: many runs of one task, that a tuner or a comparison makes."""
