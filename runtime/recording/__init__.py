"""Records everything a program executes: a dynamic binary translator, which runs copies of its code with probes.

In: a launched program that stands before its first instruction, what is to be recorded (``Recording``), a ``Watcher``
for traces.

Out: ``Counted``: for each calling context of each thread the counters of its function; the words of traces, handed to
the watcher; notes on what was not recorded, and why.

May be touched: the recorded processes: memopt's own mappings in them, their registers where they stand still, and the
frames of signal handlers. The memory, registers and signals of the program are its own at every instruction of its own.
What cannot be copied runs as it is.

- ``recorder``: answers the questions of threads, delivers signals, collects the results.
- ``tracer``: follows processes and threads by ptrace: how they begin, stop, end, and are let go of.
- ``call_stops``: handles system calls that change code, confine the process, or make tasks that nobody may trace.
- ``system_calls``: which system calls matter to recording, and why.
- ``process``: the data type of a recorded process, and which ones memopt must leave alone.
- ``space``: the memory that recording adds to a process: copies, the table of targets, threads, traces.
- ``targets``: the table of targets: which copy stands for an original address.
- ``trace_memory``: the memory for traces, which memopt sees, too.
- ``slots``: the places of threads in that memory; those of ended threads are used again.
- ``copies``: the copies made so far, and the regions of memory they lie in.
- ``kits``: all units of a text, ready to be placed in another process; they are kept between runs.
- ``placed``: a unit as it lies in one process.
- ``units``: the units that are placed in one process, found by their addresses.
- ``trees``: the calling-context trees of threads, read from the process's memory.
- ``intermittent``: records a thread in windows of time, and lets it run as it is between them.
- ``escapes``: samples how much of the time the program runs outside of copies.
- ``emulator``: emulates a thread that cannot run any more up to its next instruction.
- ``translation``: translates one function into its copy.

Tested by: tests/unit/runtime/recording/test_emulator.py for ``emulator``; tests/live/test_recording.py for
``recorder``, ``tracer``, ``space``, ``targets``, ``trees`` and ``escapes``; tests/live/test_recorded_threads.py for
``slots`` and ``trace_memory``; tests/live/test_recorded_calls.py for ``call_stops`` and ``system_calls``;
tests/live/test_children.py for ``process`` and ``tracer``; tests/live/test_paths.py for ``intermittent``;
tests/live/test_shared_copies.py for ``copies``, ``kits``, ``placed`` and ``units``.
"""
