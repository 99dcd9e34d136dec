"""Trial runs in shadows, forked copies of the program: capture of a state, validation of versions, timing.

In: a stopped ``Tracee``, versions (``CompiledRegion``) and the values they were made for. Out: a ``Shadow`` that stands
at a loop header, the values of live-ins there, and for each version a ``Measurement`` or the reason why it is
``Rejected`` (SHADOW_MISMATCH, NOT_FASTER, SHADOW_INCONCLUSIVE, COPY_COSTS, ...).
May be touched: shadows only: their registers, code and private memory. The program itself is stopped for the fork and
otherwise left alone. A shadow makes no system call that others could notice, and ends at once if memopt ends.

- ``shadow``: forks a shadow, runs it to an address under PTRACE_SYSEMU, compares the memory of two shadows.
- ``isolation``: takes descriptors, shared memory and the working directory from a new shadow.
- ``trial``: runs a slice of the loop by the original and by each version, compares the states, judges the times.
- ``agreement``: compares the states of two shadows after the same iterations.
- ``touched_pages``: finds the pages that code accesses.
- ``timing``: times iterations of the original and of a version in a shadow.
- ``copy_cost``: estimates what a shadow costs the program, and says whether it is worth that yet.
- ``memory_budget``: checks that shadows fit the free memory, cgroup limits included.

Tested by: tests/unit/runtime/trial, one test file for each module, ``agreement`` by test_trial.py; on real processes
tests/live/test_shadow.py, ``isolation`` in tests/live/test_copies.py, ``touched_pages`` in tests/live/test_snapshot.py.
"""
