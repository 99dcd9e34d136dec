"""``memopt rewrite``: what ``memopt exec`` finds in trainings is written into a new ELF file.

In: a program or a library, and command lines to train it with. Out: a new file that needs no memopt to run, or a
refusal; an exit code.
May be touched: the trained processes, as ``memopt exec`` does; the new file. The input is only read.

A version in a file has nobody who looks after it. So it holds no address, makes no system call, asks the processor once
whether it may run (``passes.version.file_entry``), and serves one thread at a time by its lock.

- ``driver``: the way of a file: look at it, train, write, run the result, put it in place.
- ``training``: one run of a program under memopt, whose versions are made for a file (a child process).
- ``supposed``: an entry as it may be at another size, so that sizes become parameters.
- ``movable``: whether a version would work wherever the program is loaded.
- ``assembly``: the versions of all trainings become one piece of code for the file.
- ``runs``: runs of the original and of the new file, whose outputs must agree.
- ``inspection``: ``memopt inspect`` and ``memopt rewrite --undo``.

Tested by: tests/unit/memopt/session/rewriting; ``driver``, ``training``, ``assembly`` and ``runs`` by
tests/live/test_rewrite.py.
"""
