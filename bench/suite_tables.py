"""Markdown tables of the suite: counts, kernels by builds, families, reference compilers, exceptions.

In: cells (``bench.cells``). Out: markdown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.cells import COUNTED, MAIN_BUILD, REFERENCES, Cell
from bench.measure.execution import median
from bench.programs.families import FAMILIES, KERNELS, Kernel
from bench.tables import table

_NO_FMA = ("gcc-O1", "gcc-O2", "gcc-O3", "clang-O2", "clang-O3")  # builds whose native outputs must agree


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean of ``values``, all above 0; None without values."""
    logarithms = [math.log(v) for v in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def wrong(cell: Cell) -> bool:
    """Whether an output under memopt differs from the native one, or is missing."""
    return bool(cell.memopt_seconds) and not cell.identical


def right_reason(kernel: Kernel, cell: Cell) -> bool:
    """Whether a nest that must be left alone was left alone, for one of the reasons in ``kernel.kept``."""
    return not cell.replaced and any(x["reason"] in {r.value for r in kernel.kept} for x in cell.loops)


def suite_text(cells: Sequence[Cell]) -> str:
    """The whole text: all tables, the most important first."""
    builds = [name for name in dict.fromkeys(c.build for c in cells) if name not in REFERENCES]
    sections = [
        ("Counts", counts_table(cells, builds)),
        ("Kernel x build", kernel_table(cells, builds)),
        (f"Families, {MAIN_BUILD}", family_table(cells)),
        ("References", reference_lines(cells)),
        ("Exceptions", exceptions(cells)),
    ]
    return "\n".join(f"## {title}\n\n{text}" for title, text in sections)


def counts_table(cells: Sequence[Cell], builds: Sequence[str]) -> str:
    """For each build: affine kernels replaced, others rightly left alone, identical outputs, processes too slow."""
    rows = []
    for build in (*builds, *(["all builds"] if len(builds) > 1 else [])):
        of = [c for c in cells if c.build == build or (build == "all builds" and c.build in COUNTED)]
        affine = [c for c in of if KERNELS[c.kernel].affine]
        others = [c for c in of if not KERNELS[c.kernel].affine]
        replaced = [c for c in affine if c.replaced]
        rows.append([
            build,
            f"{len(replaced)} of {len(affine)}" + (f" ({100 * len(replaced) / len(affine):.0f} %)" if affine else ""),
            f"{sum(right_reason(KERNELS[c.kernel], c) for c in others)} of {len(others)}",
            f"{sum(c.identical for c in of)} of {len(of)}",
            str(sum(c.too_slow for c in of)),
            _times(geometric_mean(c.speedup for c in affine if c.speedup)),
        ])
    return table(["build", "affine, replaced", "rightly left alone", "identical", "too slow", "speed-up"], rows)


def kernel_table(cells: Sequence[Cell], builds: Sequence[str]) -> str:
    """Speed-ups of one repetition by kernel and build, or why the nest was left alone; more columns for the main build.

    "installed": seconds from the first sample of the nest. "late": installed so late that the figure holds repetitions
    of the original code, too.
    """
    found = {c.key: c for c in cells}
    extra = ["process", "installed", "fp fast", *REFERENCES]
    rows = []
    for family in FAMILIES:
        for kernel in (k for k in KERNELS.values() if k.family == family):
            of = [found.get((kernel.name, build)) for build in builds]
            if any(of):
                rows.append([kernel.name, *map(_cell, of), *_extra(kernel.name, found)])
    return table(["kernel", *builds, *extra], rows)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if wrong(cell):
        return f"**{cell.detail or 'differs'}**"
    if cell.replaced:
        kept = sum(x["outcome"] != "replaced" and x["share"] >= 0.05 for x in cell.loops)
        return _times(cell.speedup) + (f" ({kept} kept)" if kept else "") + (" late" if cell.late else "")
    return cell.reason or cell.detail[:60] or "?"


def _extra(kernel: str, found: dict[tuple[str, str], Cell]) -> list[str]:
    """The further columns of the main build. The figure of a reference is native seconds of the main build over its
    seconds."""
    main = found.get((kernel, MAIN_BUILD))
    if main is None:
        return [""] * (3 + len(REFERENCES))
    figures = [_times(main.process_speedup), _seconds(main.installed_after_first_sample),
               _times(_ratio(main.native_step, main.fast_step))]
    for name in REFERENCES:
        reference = found.get((kernel, name))
        figures.append(_times(_ratio(main.native_step, reference.native_step)) if reference else "")
    return figures


def family_table(cells: Sequence[Cell]) -> str:
    """Geometric means over the affine kernels of each family, replaced or not; and the mean over the families."""
    main = [c for c in cells if c.build == MAIN_BUILD and KERNELS[c.kernel].affine]
    rows, steps, processes = [], [], []
    for family in FAMILIES:
        of = [c for c in main if KERNELS[c.kernel].family == family]
        step = geometric_mean(c.speedup for c in of if c.speedup)
        process = geometric_mean(c.process_speedup for c in of if c.process_speedup)
        if step and process:
            rows.append([family, str(len(of)), _times(step), _times(process)])
            steps.append(step)
            processes.append(process)
    rows.append(["**all families**", str(len(main)), _times(geometric_mean(steps)), _times(geometric_mean(processes))])
    return table(["family", "kernels", "steady state", "whole process"], rows)


def reference_lines(cells: Sequence[Cell]) -> str:
    """The number of kernels on which memopt, on the main build, is at least as fast as the better reference."""
    found = {c.key: c for c in cells}
    compared, reached, missing, behind = 0, 0, 0, []
    for cell in cells:
        if cell.build != MAIN_BUILD or not KERNELS[cell.kernel].affine:
            continue
        steps = [found[cell.kernel, name].native_step for name in REFERENCES if (cell.kernel, name) in found]
        known = [s for s in steps if s]
        if not known or not cell.memopt_step:
            missing += 1
            continue
        compared += 1
        if cell.memopt_step <= min(known):
            reached += 1
        else:
            behind.append(f"{cell.kernel} {min(known) / cell.memopt_step:.2f}")
    lines = [f"memopt at least as fast as the better reference on {reached} of {compared} kernels"
             + (f" ({missing} without a reference)." if missing else "."), ""]
    if behind:
        lines += ["Slower than the reference, at this fraction of its speed: " + ", ".join(behind) + ".", ""]
    return "\n".join(lines)


def exceptions(cells: Sequence[Cell]) -> str:
    """One line for each cell that is not as expected, wrong results first."""
    lines = [f"- **WRONG** {c.kernel} {c.build}: {c.detail} (`memopt exec -- {c.command}`)" for c in cells if wrong(c)]
    lines += _disagreements(cells)
    for cell in cells:
        kernel = KERNELS[cell.kernel]
        if wrong(cell):
            continue
        if not cell.memopt_seconds:
            if cell.detail:
                lines.append(f"- {cell.kernel} {cell.build}: not run: {cell.detail}")
        elif kernel.affine and not cell.replaced:
            lines.append(f"- {cell.kernel} {cell.build}: {cell.reason or 'no reason'} ({cell.detail})")
        elif not kernel.affine and cell.replaced:
            lines.append(f"- {cell.kernel} {cell.build}: replaced, expected {_expected(kernel)}")
        elif not kernel.affine and not right_reason(kernel, cell):
            lines.append(f"- {cell.kernel} {cell.build}: kept for {cell.reason or 'no reason'} ({cell.detail}), "
                         f"expected {_expected(kernel)}")
        if cell.too_slow:
            lines.append(f"- {cell.kernel} {cell.build}: slower than native, {cell.memopt_seconds:.2f} s for "
                         f"{cell.native_seconds:.2f} s")
    installed = median([c.installed_after_first_sample for c in cells])
    if installed is not None:
        lines.append(f"- from the first sample of a nest to its version installed: median {installed:.2f} s")
    return "\n".join(lines) + "\n"


def _disagreements(cells: Sequence[Cell]) -> list[str]:
    """Kernels whose native outputs differ between builds without fused multiply-adds, after the same number of
    repetitions. That is a fault of the kernel."""
    lines = []
    for kernel in dict.fromkeys(c.kernel for c in cells):
        found = {(c.repetitions, c.native_hash) for c in cells
                 if c.kernel == kernel and c.build in _NO_FMA and c.native_hash}
        if len(found) > len({repetitions for repetitions, _ in found}):
            lines.append(f"- {kernel}: native outputs differ between builds")
    return lines


def _expected(kernel: Kernel) -> str:
    return " or ".join(sorted(r.value for r in kernel.kept))


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _times(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.{0 if value >= 10 else 1 if value >= 2 else 2}f}x"
