"""Start a program as its shell would, stand between.

In: argv. Out: ``Target``, ``Supervisor``. May be touched: nothing slow is imported.

Modules: ``identify``, ``jobcontrol``, ``launch``, ``signals``.
"""
