"""Which loop is next: hot addresses are taken up one after another, and installed versions are watched in service.

In: samples (``Hotness``), a running ``Process``. Out: a ``Decision`` for each hot loop (``Installed`` or ``Refused``),
and the ``RunReport`` of them all.
May be touched: the process, through memopt.session.replacing and runtime.patching.

- ``improver``: which hot address is taken up next, which loop around it is tried, what is refused for good.
- ``prefilter``: a quick look at the code around an address: could there be anything to gain?
- ``worker``: the thread in which loops are worked on.
- ``in_service``: installed versions are watched, taken out, put back, or followed by one for other sizes.

Tested by: tests/unit/memopt/session/improving, a file for each module.
"""
