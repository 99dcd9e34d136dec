"""The driver: starts a program or attaches to one, watches it, and improves or profiles it.

Example: ``memopt exec -- ./dgemm 2048`` starts the program (``driver``), samples it (``watching``), takes its hot loop
through the stages and installs the new code (``improving``), and prints the report when the program has ended. ``memopt
profile`` starts a program and writes what it does to a database (``profiling``). ``memopt snapshot`` is ``exec`` that
changes nothing and keeps a nest, which ``memopt replay`` runs again (``snapshotting``). ``memopt rewrite`` writes what
``exec`` finds into a new file (``rewriting``).

In: ``Options``, from the command line. Out: the exit code of the program, the report or the profile.
May be touched: the process that is watched. With ``memopt.cli``, this is the only part that imports ``memopt``,
``passes`` and ``runtime`` together.

- ``driver``: starts the program before anything but the launcher is imported, then hands it to one of the rooms.

Rooms, each of which imports only those behind it: ``profiling``, ``rewriting``, ``watching``, ``snapshotting``,
``improving``.

Tested by: tests/unit/memopt/session, tests/unit/memopt/test_cli.py (``driver``), tests/live.
"""
