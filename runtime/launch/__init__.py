"""Starts a program as its shell would, and supervises it as if memopt were not there.

In: the command (program name and arguments), PATH, the environment and the signal state that memopt was started with.
Out: ``Executable`` (the file, and whether memopt may help it), ``Target`` (the started program), ``Supervisor`` (its
events: stopped, continued, ended), memopt's own exit code or signal. ``CannotRun`` if the program cannot be started.
May be touched: memopt's own signal mask, dispositions, descriptors and terminal job; a child process, before execve.
Nothing here traces the program. ``identify``, ``launch``, ``limits`` and ``signals`` are imported before the program
starts and so delay it: they import nothing slow, dataclasses included.

- ``identify``: finds the program in PATH and judges its file: ELF or script, 32-bit, set-uid, truncated.
- ``launch``: forks and executes the program, with memopt's initial environment, descriptors and signal state.
- ``jobcontrol``: waits for the program, passes signals on, stops and ends memopt as the program stops and ends.
- ``signals``: memopt's signal state: holds it back and gives it to the program.
- ``limits``: memopt's resource limits: lifts them for memopt and gives the inherited ones to the program.

Tested by: ``identify``: tests/unit/runtime/launch/test_identify.py. ``launch`` and ``signals``:
tests/live/test_launch.py. ``limits``: tests/live/test_small_limits.py. ``jobcontrol``: tests/live/test_jobcontrol.py;
on a terminal under bash: tests/live/test_exec_terminal.py.
"""
