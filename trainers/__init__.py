"""The trainers: `python -m trainers.lm` and what stands under it."""
