"""One traced process: its threads, registers and memory, system calls made in it, and whether it may be changed.

In: a process id. Out: ``Tracee`` (attached threads that stop at safe points), ``Registers``, ``Mapping``, bytes,
results of system calls. Raises ``Rejected`` (THREADS, SET_UID, SECCOMP, ...) for a process that must be left alone,
``TargetEnded`` or ``Rejected(ENDED)`` for one that is over.
May be touched: the stopped process: its registers, its signal mask, its memory through /proc/PID/mem. The room itself
writes only stubs of remote calls, into unused bytes, and zeroes them afterwards. It decides nothing about loops or
versions. The process must run on rightly if memopt is killed after any request.

- ``ptrace``: ptrace requests and wait statuses, one Python call each.
- ``tracee``: attaches to all running threads of a process, stops them at safe points, detaches.
- ``memory``: the memory map and the bytes of a process, and which pages are its own.
- ``remote_calls``: makes system calls in the stopped process, through a stub that restores all it changes.
- ``contexts``: whether a thread stands in some code, or a suspended context may come back to it.
- ``eligibility``: which processes memopt must not change, and whether a process id still means the same process.
- ``sigsegv``: whether the process handles SIGSEGV in a way that could repair faults, or any signal in a way that could
  leave code suspended.
- ``proc``: descendants, thread count and processor time of a process, from /proc.

Tested by: tests/unit/runtime/target, one test file each for ``ptrace``, ``memory``, ``remote_calls`` and
``eligibility``; test_eligibility.py covers ``sigsegv``, too. tests/live/test_ptrace.py covers ``tracee``, and
``ptrace`` and ``remote_calls`` on a real process; tests/live/test_contexts.py ``contexts``; tests/live/test_follow.py
covers ``proc``.
"""
