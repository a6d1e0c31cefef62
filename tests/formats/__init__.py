"""Exported models in the runtimes of their formats."""
