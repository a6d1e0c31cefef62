"""Measurements of speed, memory and reliability.

They are run as modules: `python -m benchmarks.train_step`.
"""

import os

# As the trainers do, and before TensorFlow is imported (see oneDNN in docs/notes/benchmarks.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
