"""The process that forks commands on JAX; see `processes`.

    python -m benchmarks.faults.on_jax DESCRIPTOR

It imports what they do, and computes nothing: its children must find JAX as it begins.
"""

import sys
import warnings
from multiprocessing import connection

import trainers.papers.training  # noqa: F401 - the children then need not import it
from benchmarks.faults import processes

if __name__ == "__main__":
    processes.limit_core_files()
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # it has no threads
    processes.fork_when_asked(connection.Connection(int(sys.argv[1])))
