"""Affine nests of every family, small enough to be run by hand; ``R`` is the trip count of the patched loop."""

from __future__ import annotations

from memopt.ir.region import Region
from tests.support.nests import region


def nests(n: int) -> dict[str, Region]:
    """By name; ``n``: about the size of each dimension but the patched one, at least 6."""
    a = (n + 4, n + 4)
    v = (n + 4,)
    return {
        "matrix vector": region(f"""
for i < R
  y[i] = 0
  for j < {n}
    y[i] = add(y[i], mul(A[i,j], x[j]))
""", {"A": a, "x": v, "y": v}),
        "private sum": region(f"""
for i < R
  t_s[i] = 0
  for j < {n}
    t_s[i] = add(t_s[i], mul(A[i,j], x[j]))
  y[i] = add(y[i], t_s[i])
""", {"A": a, "x": v, "y": v, "t_s": (1,)}),
        "two products": region(f"""
for i < R
  q[i] = 0
  for j < {n}
    s[j] = add(s[j], mul(r[i], A[i,j]))
    q[i] = add(q[i], mul(A[i,j], p[j]))
""", {"A": a, "q": v, "s": v, "r": v, "p": v}),
        "scaled product": region(f"""
for i < R
  for j < {n}
    t_s[i,j] = 0
    for k < {n}
      t_s[i,j] = add(t_s[i,j], mul(A[i,k], B[k,j]))
    C[i,j] = add(C[i,j], mul(t_s[i,j], xmm1))
""", {"A": a, "B": a, "C": a, "t_s": (1, 1)}),
        "symmetric update": region(f"""
for i < R
  for j < i+1
    C[i,j] = mul(C[i,j], xmm3)
  for k < {n}
    for j2 < i+1
      C[i,j2] = add(C[i,j2], mul(A[i,k], A[j2,k]))
""", {"A": a, "C": a}),
        "triangular product": region(f"""
for i < R
  for j < {n}
    for k < {n}-i
      B[i,j] = add(B[i,j], mul(A[i+k,i], B[i+k+1,j]))
    B[i,j] = mul(B[i,j], xmm0)
""", {"A": a, "B": a}),
        "jacobi": region(f"""
for t < R
  for i < {n}
    for j < {n}
      B[i+1,j+1] = add(add(add(add(A[i+1,j+1],A[i+1,j]),A[i+1,j+2]),A[i+2,j+1]),A[i,j+1])
  for i < {n}
    for j < {n}
      A[i+1,j+1] = B[i+1,j+1]
""", {"A": a, "B": a}),
        "jacobi in one dimension": region(f"""
for t < R
  for i < {n}
    B[i+1] = add(add(A[i], A[i+1]), A[i+2])
  for i < {n}
    A[i+1] = B[i+1]
""", {"A": v, "B": v}),
        "three fields": region(f"""
for t < R
  for j < {n}
    Y[0,j] = F[t,0]
  for i < {n}
    for j < {n}
      Y[i+1,j] = sub(Y[i+1,j], mul(xmm0, sub(H[i+1,j], H[i,j])))
  for i < {n}
    for j < {n}
      X[i,j+1] = sub(X[i,j+1], mul(xmm0, sub(H[i,j+1], H[i,j])))
  for i < {n}
    for j < {n}
      H[i,j] = sub(H[i,j], add(sub(X[i,j+1], X[i,j]), sub(Y[i+1,j], Y[i,j])))
""", {"Y": a, "X": a, "H": a, "F": a}),
        "in place": region(f"""
for t < R
  for i < {n}
    for j < {n}
      A[i+1,j+1] = add(add(add(add(A[i+1,j+1],A[i+1,j]),A[i+1,j+2]),A[i+2,j+1]),A[i,j+1])
""", {"A": a}),
        "in place, nine points": region(f"""
for t < R
  for i < {n}
    for j < {n}
      A[i+1,j+1] = add(add(add(A[i+1,j+1],A[i,j]),add(A[i,j+1],A[i,j+2])),add(A[i+2,j],add(A[i+2,j+1],A[i+2,j+2])))
""", {"A": a}),
        "two triangular products": region(f"""
for i < R
  for j < R-i
    t_s[i,j] = 0
    for k < {n}
      t_s[i,j] = add(t_s[i,j], add(mul(A[k,i], B[k,i+j]), mul(B[k,i], A[k,i+j])))
    C[i,i+j] = add(t_s[i,j], C[i,i+j])
""", {"A": a, "B": a, "C": a, "t_s": (1, 1)}),
        "factors": region(f"""
for k < R
  for i < {n}-k-1
    A[k+i+1,k] = div(A[k+i+1,k], A[k,k])
  for i < {n}-k-1
    for j < {n}-k-1
      A[k+i+1,k+j+1] = sub(A[k+i+1,k+j+1], mul(A[k+i+1,k], A[k,k+j+1]))
""", {"A": a}),
        "peeled factors": region(f"""
for k < R
  for i < {n}-k-1
    A[k+i+1,k] = div(A[k+i+1,k], A[k,k])
    A[k+i+1,k+1] = sub(A[k+i+1,k+1], mul(A[k+i+1,k], A[k,k+1]))
    for j < {n}-k-2
      A[k+i+1,k+j+2] = sub(A[k+i+1,k+j+2], mul(A[k,k+j+2], A[k+i+1,k]))
""", {"A": a}),
        "square roots": region("""
for i < R
  for j < i
    for k < j
      A[i,j] = sub(A[i,j], mul(A[i,k], A[j,k]))
    A[i,j] = div(A[i,j], A[j,j])
  for k < i
    A[i,i] = sub(A[i,i], mul(A[i,k], A[i,k]))
  A[i,i] = sqrt(A[i,i])
""", {"A": a}),
        "shortest paths": region(f"""
for k < R
  for i < {n}
    for j < {n}
      D[i,j] = min(D[i,j], add(D[i,k], D[k,j]))
""", {"D": a}),
        "triangular solution": region("""
for i < R
  x[i] = b[i]
  for j < i
    x[i] = sub(x[i], mul(L[i,j], x[j]))
  x[i] = div(x[i], L[i,i])
""", {"L": a, "x": v, "b": v}),
        "alignment": region(f"""
for i < R
  for j < {n}
    S[i+1,j+1] = max(max(add(S[i,j], M[i,j]), S[i,j+1]), S[i+1,j])
""", {"S": a, "M": a}),
        "filter": region(f"""
for i < R
  for j < {n}
    y[i,j+1] = add(mul(x[i,j], xmm0), mul(y[i,j], xmm1))
""", {"x": a, "y": a}),
        "two sweeps": region(f"""
for t < R
  for i < {n}
    for j < {n}
      u[i,j+1] = sub(u[i,j+1], mul(u[i,j], c[i,j]))
  for i < {n}
    for j < {n}
      u[i+1,j] = sub(u[i+1,j], mul(u[i,j], c[i,j]))
""", {"u": a, "c": a}),
        "transposition": region(f"""
for i < R
  for j < {n}
    B[j,i] = A[i,j]
""", {"A": a, "B": a}),
        "table of sums": region(f"""
for i < R
  t_r[i,0] = 0
  for j < {n}
    t_r[i,j+1] = add(t_r[i,j], A[i,j])
    S[i+1,j+1] = add(S[i,j+1], t_r[i,j+1])
""", {"A": a, "S": a, "t_r": (1, 1)}),
    }
