"""Statistical sampling of a program's instruction pointers with perf events.

In: the id of a process, before or after its execve; whether its child processes count, too. Out: samples (address,
thread), and where asked for, lifecycle events of processes: files mapped, forks, execs, ends.
May be touched: nothing of the program. memopt opens perf events and reads their ring buffers. Only where the kernel
refuses perf events may the caller's interrupter stop the program for a moment at each reading.

- ``perf_events``: opens the events, one ring buffer for each thread and processor; imported before the program starts.
- ``samples``: parses the records of the rings; falls back to interruptions where there are no events.

Tested by: tests/unit/runtime/sampling/test_samples.py (``perf_events``, too) and tests/live/test_sampling.py.
"""
