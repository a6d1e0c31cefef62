"""The trainers: `python -m trainers.lm` and what stands under it."""

import os

# Before TensorFlow is imported: what it logs would drown what a run says.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
