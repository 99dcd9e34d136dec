"""Tiling of one contraction.

In: ``Region`` of one statement. Out: ``Plan``. May be touched: pure; each pass is a ``Pass``.

Modules: ``base``, ``contraction``, ``distribution``, ``interchange``, ``packing``, ``pipeline``, ``profitability``,
``register_tile``, ``tiling``.
"""
