"""Replay: the state of a snapshot, run in a child process that can do nothing but compute, and in an emulator.

In: pages, registers and vector state at the header of a nest, which nobody vouches for; versions of the nest. Out: a
``Shadow`` that stands at the header, for runtime.trial; the memory that the emulator leaves.
May be touched: the child. It makes no system call of its own accord: PTRACE_SYSEMU turns each into a stop, and a
confined shadow ends there. It has no descriptors and no environment, limits on memory and on processor time, and ends
with memopt.

- ``sandbox``: makes the child, maps the pages, sets registers and vector state.
- ``vector_image``: the vector state as the XSAVE area of this machine, and back.
- ``emulation``: runs SSE code in Unicorn.

Tested by: ``sandbox`` and ``emulation`` by tests/live/test_replay.py; tests/unit/runtime/replay.
"""
