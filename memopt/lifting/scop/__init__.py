"""Statements become arrays, domains, guards: the `Region`.

In: ``StatementLoop``, obligations, evidence. Out: ``Region``. May be touched: the last room: turns what is open into
a guard or ``Rejected``.

Modules: ``delinearisation``, ``dereferenceable``, ``element_types``, ``flatten``, ``liveness``, ``obligations``,
``pivot_guards``, ``reduction_unrolling``, ``region_builder``.
"""
