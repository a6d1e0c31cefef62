"""The browser page of `python -m trainers.demo`."""
