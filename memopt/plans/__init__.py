"""The plan cache: what one run finds out about the loops of a program is a text file, and the next run starts from it.

Example: the second ``memopt exec -- ./dgemm 2048`` finds the plan of the first in ``~/.cache/memopt/plans/v1``. It
lifts the loop again, proves the plan again for what it has lifted, and generates the code. It does not wait for many
samples, does not search for a plan, and does not try code that is the same as the code of an earlier trial.

In: a program file, the options, regions and plans as text. Out: ``Stored``, the entries of one program file; the lines
of ``memopt cache``. A file never holds machine code, addresses of a process, arguments or paths.
May be touched: the folder of the cache. Its files count as input of somebody else: anything odd about one is an
``OddFile``, and nothing in it is believed before it is proved again (memopt.session.replacing.known).

- ``identity``: which program file, which machine, which memopt: the name of a file and the lines it begins with.
- ``addresses``: texts without the addresses of a process.
- ``entries``: the entries of a file, their text form, and how those of two runs are merged.
- ``folder``: reads and writes the files; ownership, limits, atomic replacement.
- ``shown``: the lines of ``memopt cache list``, ``show`` and ``clear``.

Tested by: tests/unit/memopt/plans, a file for each module; tests/live/test_plans.py.
"""
