"""A profile on disk: one SQLite file with a versioned schema, named queries, and a merge of several files.

In: the structure of functions (``memopt.cfg.functions.FunctionStructure``), rows that ``memopt.session.profiling``
inserts, questions of the user.
Out: connections to profiles, rows, a tree of ``Frame``.
May be touched: the file of a profile. ``create`` (and so ``merge``) overwrites nothing but an empty file or an earlier
profile. ``open_existing`` opens for reading only.

- ``schema``: the tables and their columns; creates profiles, opens them, and migrates files of older versions.
- ``static``: writes functions, loops, blocks, instructions and calls into the tables.
- ``queries``: the named queries, each one SELECT.
- ``ask``: ``memopt query``: runs a named query or SQL; prints a table, CSV or JSON.
- ``tree``: reads a profile as one tree of threads, functions and loops.
- ``merge``: ``memopt merge``: makes one profile of several.

Tested by: tests/unit/memopt/store. ``schema``, ``static``, ``queries`` and ``ask`` are tested by test_store.py,
``merge`` by tests/live/test_merge.py.
"""
