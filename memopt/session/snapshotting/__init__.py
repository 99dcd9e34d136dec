"""Snapshotting: keeps the inputs of a nest in a file, and runs a nest from such a file.

In: a trial of a nest in a running program; or a file, which anybody may have written. Out: the file; or for each
version of the nest whether it computes what the original computes, and how fast it is.
May be touched: copies of the program; the named file; the child of runtime.replay.

- ``keeping``: after a trial, writes a snapshot where the user asked for one.
- ``recording``: notes what memopt reads of a process and of its files, for the snapshot.
- ``nest_of``: the nest of a snapshot, ready to be lifted, from the snapshot alone.
- ``replaying``: lifts, plans and generates again, runs original and versions, compares.
- ``emulating``: the same in an emulator, for SSE code.

Tested by: tests/live/test_snapshot.py for ``keeping`` and ``recording``; tests/live/test_replay.py for ``nest_of``,
``replaying`` and ``emulating``.
"""
