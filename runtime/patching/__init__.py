"""Puts a version into the live process and takes it out again: the code cache, and the five bytes of the jump to it.

In: a stopped ``Tracee``, the header's address and its bytes, the machine code of a version. Out: ``CodeCache`` with its
``Placement``, an installed ``Patch`` that any later memopt can find and undo, the version's counters.
May be touched: this room is the only writer of program text: one write of at most 16 bytes in one page. It maps and
unmaps pages in the program, and appends to /tmp/perf-PID.map if memopt made that file. memopt may be killed at any
step: the process then has either its original bytes or a complete, recorded patch.

- ``code_cache``: maps code, statistics, frame and scratch pages in the process, within reach of a 32-bit displacement.
- ``install``: commits the patch, removes it, and finds the versions that are or were in force.
- ``frame_lock``: gives back the lock of a version whose holder has left it for good.
- ``perf_map``: names the new code for perf and other profilers.

Tested by: tests/unit/runtime/patching, one test file for each module. On a real process: ``code_cache`` by
tests/live/test_codecache.py, ``install`` by tests/live/test_install.py and tests/live/test_kill.py, ``frame_lock`` by
tests/live/test_frame_lock.py.
"""
