"""Properties of regions."""

from __future__ import annotations

import pytest

from memopt.ir.parse import parse_region

_PUBLISHING = """region 0x401000
  rdi = s64 rdi
  R = (rdi) / 1
  {rejoin}array A0: f64 at rdi, strides (800, 8)
  array A1: f64 at 2*rdi, strides (800, 8)
  private P0: f64, strides (8)
  {statements}
"""
_ROWS = "S1[i<R, j<100] at (0, 1, 0): A0[i, j] = add(A0[i, j], A1[i, j])"


@pytest.mark.parametrize(("statements", "rejoin", "expected"), [
    ((_ROWS,), "", False),
    ((_ROWS, "S2[i<R, j<100] at (0, 1, 1): A1[i, j] = A0[i, j]"), "", True),
    ((_ROWS, "S2[i<R] at (0, 2): A1[i, 0] = A1[i, 1]"), "", True),
    ((_ROWS, "S2[i<R] at (0, 2): A0[i, 0] = A1[i, 1]"), "", True),
    (("S0[i<R] at (0, 0): P0[i] = A1[i, 0]", _ROWS), "", False),
    (("S0[i<R, j<100] at (0, 0, 0): A0[i, j] = A1[i, j]",
      "S1[i<R, j<100, k<50] at (0, 0, 1, 0): A0[i, j] = add(A0[i, j], A1[i, k])"), "", False),
    (("S0[i<R, j<100] at (0, 0, 0): A0[i, j] = A1[i, j]",
      "S1[i<R, k<50, l<100] at (0, 1, 0, 0): A0[i, l] = add(A0[i, l], A1[i, k])"), "", False),
    (("S0[i<R, j<100] at (0, 0, 0): A0[i, j] = A1[i, j]",
      "S1[i<R, k<50, l<99] at (0, 1, 0, 0): A0[i, l] = add(A0[i, l], A1[i, k])"), "", True),
    (("S0[i<R, j<100] at (0, 0, 0): A0[j, j] = A1[i, j]",
      "S1[i<R, k<100, l<100] at (0, 1, 0, 0): A0[k, l] = add(A0[k, l], A1[i, k])"), "", True),
    ((_ROWS,), "rejoin [+0x4000]:4 := H", True),
    ((_ROWS,), "rejoin [rsp-0x8]:8 := H", False),
])
def test_a_nest_whose_order_of_stores_may_say_something(statements: tuple[str, ...], rejoin: str,
                                                        expected: bool) -> None:
    text = _PUBLISHING.format(statements="\n  ".join(statements), rejoin=f"{rejoin}\n  " if rejoin else "")
    assert parse_region(text).publishes is expected
