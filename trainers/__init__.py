"""The trainers: `python -m trainers.lm` and what stands under it."""

import os
import sys

# Before TensorFlow is imported: what it logs would drown what a run says.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# oneDNN's matrix products. TensorFlow leaves them off on CPUs without AVX-512 VNNI or AMX, and
# there too they are faster than its own (docs/benchmarks.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

if sys.argv[0] == "-m":  # so it is while Python looks for the module of `python -m trainers.NAME`
    from trainers.training import available_memory, stopping

    stopping.listen(importing=True)  # imports take seconds
    available_memory.check_imports()
