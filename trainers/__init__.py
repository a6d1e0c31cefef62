"""The trainers: `python -m trainers.lm` and the other commands."""

import os
import sys

# TensorFlow reads these during its import. Its warnings would drown the lines of a run; without a
# driver for GPUs its errors, too, say nothing that its exceptions do not.
_LEVEL = "2" if os.path.exists("/dev/nvidiactl") else "3"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _LEVEL)
# Use oneDNN's matrix products. On CPUs without AVX-512 VNNI or AMX TensorFlow leaves them off, but
# they are faster than its own there too (docs/notes/benchmarks.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# The command that asks a server and computes nothing, and the one that trains on JAX.
_ON_JAX = "trainers.reproduce"
_WITHOUT_TENSORFLOW = ("trainers.client", _ON_JAX)

# Python names the command "-m" while it looks for the module of `python -m trainers.NAME`, whose
# name stands before the arguments.
if sys.argv[0] == "-m":
    from trainers.training import stopping

    stopping.listen(importing=True)  # imports take seconds
    _module = sys.orig_argv[-len(sys.argv)]
    if _module.endswith(_ON_JAX):
        from trainers.cli import quiet

        os.environ.setdefault("KERAS_BACKEND", "jax")
        quiet.check_backend("jax")
    if not _module.endswith(_WITHOUT_TENSORFLOW):
        from trainers.cli import quiet
        from trainers.training import resources

        resources.check_imports()
        quiet.import_tensorflow()
        quiet.check_backend()
