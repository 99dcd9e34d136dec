"""Entry, guards, kernel, rejoin: a version of a nest.

In: ``Region``, ``NestPlan``, ``Placement``. Out: ``CompiledRegion``. May be touched: the contract of a version lives
here alone.

Modules: ``entry``, ``generate``, ``guards``, ``kernel``, ``linear_code``, ``overflow_guards``, ``rejoin``,
``rollback``.
"""
