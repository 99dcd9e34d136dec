"""Machine code and a captured state become a `Region`.

In: ``Code`` (graph, loops, block semantics), registers, ``peek``. Out: ``Lifted`` (a ``Region`` and its intermediate
forms) or ``Rejected``. May be touched: ``lift.py`` is the only file other packages import.

Modules: ``lift``.
"""
