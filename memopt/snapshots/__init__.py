"""Snapshots: the inputs of one loop nest in a file, so that it can be lifted, planned and run again elsewhere.

In: the state of a process at the header of a nest (``Snapshot``), a path. Out: the file; or the ``Snapshot`` of a file
that anybody may have written, or ``SnapshotError`` in one line.
May be touched: the named file. docs/snapshots.md describes the form for those who open it with other tools.

- ``form``: the ``Snapshot`` value, and its manifest in JSON.
- ``file``: the file: a compressed tar archive with the manifest and the pages.

Tested by: tests/unit/memopt/snapshots, a file for each module.
"""
