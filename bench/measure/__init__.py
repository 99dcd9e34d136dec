"""Runs, times and counts programs: natively, under memopt, under callgrind; measures the limits of the machine.

In: command lines, the description of the machine.
Out: ``Execution``, ``Streaming``, GFLOP/s, instruction counts by file.
May be touched: processes that these modules start themselves, and temporary files.

- ``execution``: runs a program natively and under memopt: wall time, exit code, output, report.
- ``blas``: GFLOP/s of OpenBLAS on one thread, the yardstick for matrix products.
- ``streaming``: a Jacobi stencil compared with the memory bandwidth: does time tiling beat it?
- ``callgrind``: instructions that callgrind counts, by file.

Tested by: tests/live, which runs its programs with ``execution``; ``callgrind`` by tests/live/test_recording.py. No
test runs ``streaming``; test_tables.py of tests/unit/bench makes tables of its results.
"""
