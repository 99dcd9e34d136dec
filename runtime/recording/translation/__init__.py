"""Translates one function into its instrumented copy: a unit of a dynamic binary translator.

In: the flow graph of the function and its loops, the address of the copy, what is to be recorded (``Recording``).

Out: a ``Unit``: the bytes of the copy, its counters and call sites, the original address of each copied instruction.

May be touched: nothing. The code here makes bytes and knows no process, but for ``code_map``, which reads the mappings
and the code of one.

- ``call_sites``: the places at which a copy may be left: calls, tail calls, indirect jumps; the calling context.
- ``translate``: writes the copy of a function, with its probes.
- ``trace_probes``: the events that copies write to traces, and the probes that write them.
- ``probe_routines``: the code that the probes of all functions share: lookup of targets, calling contexts, questions.
- ``asked_calls``: the system calls before which a copy asks memopt.
- ``relocations``: the words of a copy that depend on where it lies, and the copy at another place.
- ``relocated``: moves an instruction to another address.
- ``encode``: the few instructions that probes are made of, as bytes.
- ``writer``: writes code from front to back, with labels.
- ``layout``: the memory that probes and memopt share: page of a thread, nodes, stack of calls, table of targets.
- ``unit``: the data type of a translated function.
- ``code_map``: where the code of a process lies, and which functions it has.

Tested by: tests/unit/runtime/recording/translation/test_encode.py for ``encode``. tests/live/test_recording.py runs
copies, which ``translate``, ``asked_calls``, ``call_sites``, ``unit``, ``relocated``, ``code_map``, ``layout``,
``probe_routines`` and ``writer`` make; tests/live/test_paths.py and tests/live/test_values.py those with the probes of
``trace_probes``; tests/unit/runtime/recording/translation/test_relocations.py for ``relocations``.
"""
