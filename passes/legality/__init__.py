"""The second, independent legality check.

In: ``Scop`` and a finished plan. Out: nothing, or ``Rejected``. May be touched: imports no other room of ``passes``
(now a lint contract).

Modules: ``contractions``, ``loops``.
"""
