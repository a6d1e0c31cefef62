"""The trainers: `python -m trainers.lm` and the other commands."""

import os
import sys

# TensorFlow reads these as it is imported. Its warnings would drown what a run says.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# oneDNN's matrix products. TensorFlow leaves them off on CPUs without AVX-512 VNNI or AMX, and
# they are faster than its own there too (docs/benchmarks.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# While Python looks for the module of `python -m trainers.NAME`, it calls the command "-m".
if sys.argv[0] == "-m":
    from trainers.cli import quiet
    from trainers.training import available_memory, stopping

    stopping.listen(importing=True)  # imports take seconds
    available_memory.check_imports()
    quiet.import_tensorflow()
