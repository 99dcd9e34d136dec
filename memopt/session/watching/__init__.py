"""Watching: a program is sampled and looked after until it ends, while another thread improves it.

In: ``Options``, a program that was just launched or a process that runs already. Out: the report, and the exit code of
the program.
May be touched: the process, which is stopped for moments where the system has no perf events. The code here is never
busy for long: signals and the terminal of the program wait for it.

- ``launched``: one program that memopt has launched, from its start to its end, and its report.
- ``attached``: ``memopt attach``: one process that runs already, improved or restored.
- ``followed``: processes that memopt has not launched: that of ``memopt attach``, those of ``memopt exec --follow``.
- ``started``: how much time went to processes that a program has started, and that are not followed.
- ``sampling_rate``: how often a process is sampled.
- ``stop_sampling``: samples by stopping the process, where the system has no perf events.

Tested by: tests/unit/memopt/session/watching (``sampling_rate``); tests/live/test_exec_*.py (``launched``,
``attached``), test_follow.py (``followed``, ``started``), test_sampling.py (``stop_sampling``).
"""
