"""Benchmarks: the kernels, and the programs that make the tables of README.md. Not installed: run from a checkout.

In: kernels in C, C++ and Fortran (``bench/kernels``), programs of the distribution, the installed ``memopt``.
Out: markdown tables on standard output; ``run`` and ``suite`` also write JSON and markdown to build/bench.
May be touched: temporary folders and build/bench. ``demo``, ``run``, ``suite``, ``distribution`` and ``patterns``
compare the output of every program under memopt with its native output byte for byte. They end with exit code 1 where
one differs.

``memopt exec``:

- ``demo``: ``make demo``: one program natively and under memopt.
- ``run``: ``make bench`` and ``make headline``: the command line and the results of ``matrix`` and ``headline``.
- ``matrix``: matrix products: every variant, compiler, build and instruction set.
- ``headline``: large products beside OpenBLAS, the time to install, the cost to programs that have nothing to gain.
- ``tables``: the markdown tables of ``run``.
- ``suite``: ``make suite``: every kernel of every family in every build.
- ``cells``: runs one cell of the suite: one kernel in one build.
- ``suite_tables``: the markdown tables of ``suite``.
- ``rewriting``: kernels of the suite, rewritten: outputs, and the speed of the new files.
- ``leaf``: the speed of a generated kernel alone, without a program around it.

``memopt profile``:

- ``profiling``: costs and counts of a solver whose loop counts are known from its source.
- ``distribution``: ``--exact`` on programs of a Debian installation, compared with callgrind.
- ``readers``: how many accesses a second the readers of traces process.
- ``patterns``: sizes of access patterns, and whether they expand to the trace.
- ``workingsets``: working sets derived from subscripts (``--affine``), compared with those of traces.
- ``paths``: path profiles of windows (``--paths``), compared with the full path profile.

The project itself:

- ``house``: figures of the project's layout: packages, file lengths, docstrings, tests.

Packages:

- ``measure``: runs, times and counts programs.
- ``programs``: which kernels and builds there are, and how they are compiled.

Tested by: tests/unit/bench; the kernels by test_kernels.py. ``suite``, ``cells`` and ``suite_tables`` are tested by
test_suite.py, ``matrix``, ``headline`` and ``tables`` by test_tables.py, ``paths`` by tests/live/test_paths.py,
``patterns`` by tests/live/test_watching.py, ``workingsets`` by tests/live/test_survey.py. No test covers
``distribution``, ``profiling``, ``readers``, ``rewriting``, ``run`` and ``house``: they are run by hand.
"""
