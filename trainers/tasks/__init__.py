"""The tasks: where the data come from, what is measured, which presets there are."""
