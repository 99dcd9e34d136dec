"""Reports: the result of ``memopt exec`` as text and JSON; a profile as text, as an HTML page, for other viewers.

In: ``RunReport`` (``model``), which the driver fills in; or an open profile (``memopt.store.schema``).
Out: lines of text, JSON, HTML, speedscope's and callgrind's formats.
May be touched: ``files`` writes the file that the user named. ``details`` reads source files and line tables, to show
source lines. All else only reads the profile.

The report of ``memopt exec`` and ``memopt attach``:

- ``model``: the frozen values ``RunReport`` and ``LoopReport``: what was done with each loop, and how fast it is.
- ``text``: the report for people.
- ``json``: the report for machines.
- ``files``: writes a report to a file atomically.

Of a rewritten file, ``memopt inspect``:

- ``rewritten``: what memopt did to the file, as text and JSON.

The report of a profile, ``memopt report``:

- ``profile``: the tree of functions and loops, as text.
- ``memory``: dependences of loops and their working sets beside the cache sizes, as text.
- ``patterns``: access patterns of the most frequent accesses, as text.
- ``page``: a profile as one HTML file: an icicle graph, code, curves and clouds of addresses.
- ``details``: the data that the page shows of single functions, loops and accesses.
- ``figures``: drawings of the page, as SVG.
- ``exports``: a profile in speedscope's and callgrind's formats.

Tested by: tests/unit/memopt/report. ``page``, ``details``, ``exports`` and ``profile`` are tested by test_tree.py of
memopt/store, ``patterns`` by tests/live/test_watching.py.
"""
