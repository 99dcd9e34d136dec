"""The command ``memopt``, its driver, the intermediate representation and all analyses of machine code.

memopt makes the memory behaviour of a compiled x86-64 Linux program fit the machine it runs on.

In: a command line. Out: one value, ``Options``, for the driver (``memopt.session.driver``), and an exit code. The
commands ``query``, ``report``, ``merge`` and ``trace`` are answered here, without a driver.
May be touched: files that the command line names, standard output, standard error. Only the driver touches a process,
through the package ``runtime``.

The command line:

- ``cli``: the entry point; starts the driver, and turns every exception into one line and an exit code.
- ``arguments``: reads the common command lines of ``exec`` and ``profile`` without click, which is slow to import.
- ``usage``: reads all other command lines with click: options with their help texts, errors in one line.
- ``options``: the result of both: the frozen value ``Options``.
- ``promise``: what is outside the promise of memopt, for ``--explain-promise``.
- ``private_files``: folders for what memopt's parts load and execute, which nobody else can write to.
- ``imports``: leaves out parts of outside packages that memopt never uses and that are slow to import.
- ``console``: writes lines that begin with ``memopt:`` to standard error, and a line of progress.
- ``opt``: ``python -m memopt.opt`` runs one pass of the transformation on a nest in text form, as mlir-opt does.

Packages, the outermost first:

- ``session``: the driver: starts the program, replaces its hot loops, or profiles it.
- ``report``: the report of a run as text and JSON; a profile as text, as a page, for other viewers.
- ``store``: a profile on disk: an SQLite file, its schema, its queries.
- ``plans``: the plan cache: what one run finds out about a program's loops, kept for the next.
- ``lifting``: lifts a loop nest from machine code and a captured process state to a polyhedral region.
- ``traces``: reads memory traces: access patterns, dependences, working sets, reuse distances.
- ``instrumentation``: decides where probes stand in a recorded program, and what they record.
- ``cfg``: control-flow graphs, dominators, loops, liveness of registers.
- ``polyhedral``: integer sets, dependences and loop generation with isl.
- ``models``: cost models: expected times of plans on a machine.
- ``machine``: the caches and instruction sets of this machine.
- ``elf``: reads executables: symbols, unwind tables, line tables.
- ``x86``: decodes, lifts, assembles, verifies and moves x86-64 code.
- ``ir``: the intermediate representation: the frozen values that pass between the stages.

Tested by: tests/unit/memopt. ``arguments`` is also held against ``usage`` by tests/property/test_arguments.py; ``opt``
is tested by tests/golden/test_passes.py, ``usage`` by test_cli.py and test_arguments.py, ``console`` by test_cli.py and
tests/live/test_exec_behaviour.py.
"""

__version__ = "0.1.0"
