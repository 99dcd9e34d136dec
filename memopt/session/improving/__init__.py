"""Chooses the next loop to improve: works on hot addresses one after another, and watches installed versions in
service.

In: samples (``Hotness``), a running ``Process``. Out: a ``Decision`` for each hot loop (``Installed`` or ``Refused``),
and the ``RunReport`` of them all.
May be touched: the process, through memopt.session.replacing and runtime.patching.

- ``account``: where the samples of a process went.
- ``improver``: chooses the next hot address and the loop around it that is tried; records what is refused for good.
- ``prefilter``: a quick look at the code around an address: could there be anything to gain?
- ``worker``: the thread in which loops are worked on.
- ``in_service``: watches installed versions, takes them out, puts them back, or makes another one for other sizes.

Tested by: tests/unit/memopt/session/improving, a file for each module.
"""
