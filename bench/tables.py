"""Markdown tables of ``bench.run``: a line for each program, a column for each figure, exceptions with reasons."""

from __future__ import annotations

from collections.abc import Sequence

from bench.headline import Overhead
from bench.matrix import Row
from bench.measure.execution import median
from bench.measure.streaming import Streaming


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table. Without rows it consists of its header."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def matrix_table(rows: Sequence[Row]) -> str:
    """Speed-ups of the nest (in brackets: of the whole process), with one column for each instruction set; then a list
    of the exceptions."""
    isas = list(dict.fromkeys(r.isa for r in rows))
    programs = list(dict.fromkeys((r.variant, r.compiler, r.build, r.size) for r in rows))
    cells = {(r.variant, r.compiler, r.build, r.size, r.isa): r for r in rows}
    body = [
        [*map(str, program), *(_cell(cells.get((*program, isa))) for isa in isas)]
        for program in programs
    ]
    text = table(["variant", "compiler", "build", "n", *isas], body)
    return text + "\n" + _exceptions(rows)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if not row.identical:
        return "**differs**"
    if not row.replaced:
        return "kept"
    return f"{_times(row.speedup)} ({_times(row.process_speedup)})"


def _exceptions(rows: Sequence[Row]) -> str:
    failing = [r for r in rows if not (r.replaced and r.identical)]
    done = len(rows) - len(failing)
    head = f"{done} of {len(rows)} replaced and identical: speed-up of the nest, in brackets of the whole process."
    lines = [head, ""]
    lines += [f"- {r.variant} {r.compiler} {r.build} n={r.size} {r.isa}: {r.reason or 'unknown'}" for r in failing]
    return "\n".join(lines) + "\n"


def product_table(products: Sequence[tuple[Row, float | None]]) -> str:
    """The large products: rows of pairs of a result and OpenBLAS's GFLOP/s."""
    header = ["program", "native", "memopt", "speed-up", "time cut", "nest GFLOP/s", "OpenBLAS GFLOP/s", "identical"]
    rows = []
    for row, yardstick in products:
        cut = f"{100 * (1 - 1 / row.process_speedup):.1f} %" if row.process_speedup else ""
        rows.append([
            f"{row.variant}, n = {row.size}, {row.isa}", _seconds(row.native_seconds), _seconds(row.memopt_seconds),
            _times(row.process_speedup), cut, _number(row.gflops), _number(yardstick), _yes(row.identical),
        ])
    return table(header, rows)


def streaming_table(streamed: Streaming) -> str:
    """Million points per second, beside the limit that memory sets to a loop without time tiling."""
    figures = [_number(x and x / 1e6) for x in (streamed.native, streamed.memopt, streamed.limit)]
    return table(["2-D Jacobi, four times the last-level cache", "native", "memopt", "memory's limit", "identical"],
                 [[f"n = {streamed.size}, million points/s", *figures, _yes(streamed.identical)]])


def install_line(seconds: Sequence[float], which: str = "") -> str:
    """The time from launch to installation: median and range over the runs that installed code. ``which``: words for
    these runs."""
    middle = median(seconds)
    if middle is None:
        return f"From launch to installed{which}: never installed.\n"
    return (f"From launch to installed{which}: median {middle:.2f} s of {len(seconds)} runs "
            f"({min(seconds):.2f} to {max(seconds):.2f} s).\n")


def overhead_table(overheads: Sequence[Overhead]) -> str:
    """The cost to programs that have nothing to gain."""
    rows = [
        [o.program + (", processors busy" if o.busy else ""), _seconds(o.native_seconds), _seconds(o.memopt_seconds),
         f"{o.excess:+.3f} s", f"{o.allowed:.3f} s", _yes(o.identical)]
        for o in overheads
    ]
    return table(["program", "native", "memopt", "later by", "allowed", "identical"], rows)


def _times(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f} s"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"
