"""The programs that the benchmarks build: kernels, compilers, optimisation levels, ways to link.

In: the sources in bench/kernels.
Out: the lists ``KERNELS``, ``VARIANTS``, ``COMPILERS``; executables in a folder that the caller names.
May be touched: that folder. Compilers run.

- ``families``: the kernels of the suite by family, and the reasons for which some of them must be left alone.
- ``variants``: the matrix products of ``bench.run``, and how a C source is compiled.

Tested by: tests/unit/bench/programs/test_families.py; ``variants`` by test_kernels.py of tests/unit/bench.
"""
