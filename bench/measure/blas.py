"""GFLOP/s of OpenBLAS on one thread, through numpy, in a process of its own: the yardstick for matrix products.

``OPENBLAS_CORETYPE`` is unset, so that OpenBLAS picks the best kernel for this processor.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench.measure.execution import median

_PROGRAM = """
import sys, time
import numpy
n = int(sys.argv[1])
generator = numpy.random.default_rng(1)
a, b = (generator.random((n, n)).astype(sys.argv[2]) for _ in range(2))
c = numpy.empty_like(a)
numpy.matmul(a, b, out=c)
for _ in range(int(sys.argv[3])):
    start = time.perf_counter()
    numpy.matmul(a, b, out=c)
    print(time.perf_counter() - start)
"""


def gflops(size: int, real: str = "double", runs: int = 5) -> float | None:
    """Median GFLOP/s of a product of two matrices of ``size``; None if numpy does not run."""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    kind = {"double": "float64", "float": "float32"}[real]
    command = [sys.executable, "-c", _PROGRAM, str(size), kind, str(runs)]
    completed = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    seconds = median([float(x) for x in completed.stdout.split()])
    return 2e-9 * size**3 / seconds if seconds else None
