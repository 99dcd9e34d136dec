"""memopt: makes the memory behaviour of a compiled x86-64 Linux program fit the machine it runs on.

This package holds the vocabulary (``memopt.ir``), the pure analyses, the machine description, the report,
the driver (``memopt.session``) and the command line (``memopt.cli``).
"""

__version__ = "0.1.0"
