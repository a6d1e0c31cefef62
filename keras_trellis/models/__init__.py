"""Models over any sequence layer: a language model and a classifier."""
