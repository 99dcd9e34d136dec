"""Everything that touches a process: starts it, samples it, stops it, reads it, copies it, and changes its code.

In: command lines and process ids; machine code to install (``CompiledRegion``); functions to instrument. Out: started
programs, samples, registers and bytes of a process, measurements from shadows, installed patches, recorded traces.
May be touched: processes, through ptrace, /proc, perf events and system calls made in the process. Only ``patching``
changes the code of the live program. A shadow (forked copy) may be changed and may fail: the program does not notice.

Rooms, where each imports only those further down (``launch`` and ``sampling`` stand side by side):

- ``recording``: runs a program as instrumented copies of its functions (``memopt profile --exact``).
- ``trial``: forks shadows of the stopped program, runs original and new code in them, compares and times them.
- ``patching``: places new code in the program and patches the jump that leads there; the only writer of program text.
- ``target``: one traced process: registers, memory, remote system calls, and whether it may be changed at all.
- ``launch``: starts a program as its shell would, and stands between the two for job control.
- ``sampling``: perf events.

One module belongs to no room:

- ``faults``: fault injection, for tests that kill memopt at a named point.

runtime never imports ``passes``, nor ``passes`` runtime: only the driver (``memopt.session``) and the command line join
the two. From ``memopt`` it imports values and analyses, never the driver.

Tested by: tests/unit/runtime, one folder for each room, and tests/live, which starts real programs. ``faults``:
tests/unit/runtime/test_faults.py.
"""
