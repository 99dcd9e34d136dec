"""The format of a trace of memory accesses, and what all analyses of traces stand on.

In: words of a trace, and the shapes of its blocks.

Out: compiled kernels and their tables, the base classes ``Reading`` and ``Activity``, traces in files.

May be touched: ``compiler.py`` alone writes the folder in which numba keeps compiled code; ``file.py`` alone writes
files. ``format.py`` and ``sources.py`` do not import numba, which takes long to load.

- ``active_loops``: follows which loops are active, in which iteration, and since when.
- ``compiler``: compiles the kernels, and keeps what was compiled under a hash of all sources.
- ``file``: writes traces to files, and reads them as text.
- ``format``: the words of a trace, and the shapes of blocks and accesses.
- ``frequent``: counts the most frequent values in a fixed number of places.
- ``reader``: base of all analyses: the shapes of blocks, and a number for each access in each context.
- ``sources``: hashes what the kernels are compiled from.
- ``tables``: arrays, hash tables and LLVM intrinsics for kernels.

Tested by: tests/unit/memopt/traces/core: test_compiler.py (also ``sources``) and test_file.py. ``active_loops`` is
tested by traces/dependences/test_dependences.py and traces/test_working_sets.py, against models that keep whole
iteration vectors; ``reader`` and ``tables`` by all tests of analyses, ``frequent`` by traces/test_streams.py and
traces/test_values.py.
"""
