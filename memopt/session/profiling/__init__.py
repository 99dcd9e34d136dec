"""Profiling: a program runs as it is, or as instrumented copies of its code, and becomes a database.

In: ``Options`` with a profile to write; samples, counters or traces of the program. Out: the rows of ``memopt.store``.
May be touched: the file of the profile; the program only through its recorder (``runtime.recording``). Its memory,
registers, signals and output are the same as without a profile.

Drivers, one for each way to look at a program:

- ``sampled``: ``memopt profile``: the program is sampled while it runs as it is.
- ``affine``: ``--affine``: hot nests are lifted, and their working sets derived from subscripts and bounds.
- ``exact``: ``--exact`` and all that needs instrumented copies: counts, traces, paths.

Rows of the database:

- ``profile_file``: the file itself, and how it was made.
- ``static_rows``: the executables, their functions and the samples in them.
- ``count_rows``: how often code ran, and the tree of calling contexts with its loops.
- ``memory_rows``: ``--memory``, ``--dependences``: dependences, access patterns, working sets.
- ``dependence_rows``: the dependences, and what loops carry in registers.
- ``recurrence_rows``: finds what loops carry, with what is known of the functions that they call.
- ``objects``: which variable, allocated block, stack or mapping an accessed address lies in.
- ``value_rows``: ``--values``: arguments, trip counts, cycles, values that stay the same.
- ``path_rows``: ``--paths``: how often each acyclic path was taken.
- ``trace_file``: ``--trace``: all accesses to memory, in a file of their own.
- ``images``: which executable lies where in a process, from its start to its end.

Tested by: tests/unit/memopt/session/profiling (``images``, ``static_rows``); tests/live/test_profile.py (``sampled``,
``profile_file``), test_recording.py (``exact``, ``count_rows``), test_watching.py (``memory_rows``, ``objects``,
``trace_file``), test_parallel_loops.py (``dependence_rows``, ``recurrence_rows``), test_survey.py (``affine``),
test_values.py (``value_rows``), test_paths.py (``path_rows``).
"""
