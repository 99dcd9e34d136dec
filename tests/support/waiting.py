"""How long tests wait for what must come about: long enough for a machine that does other things, too.

A test that has to wait so long has failed. No test asserts how fast something is.
"""

from __future__ import annotations

PATIENCE = 300.0  # seconds
