"""``make bench`` and ``make headline``: measures matrix products, and writes the results as JSON and markdown.

    python -m bench.run [--headline] [OPTION]...

The exit code is 1 if any output differs from the native one. A loop that was left alone is a result, not a failure.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import click

from bench import headline, tables
from bench.matrix import Row, run_cell
from bench.measure import streaming
from bench.programs.variants import COMPILERS, VARIANTS, BuildError, parts
from memopt import __version__
from memopt.elf.executable import describe
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from memopt.report.files import write

_DEFAULT_BUILDS = "plain,no-pie+stripped+prime"


def _names(known: dict[str, Any], what: str) -> Any:
    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
        names = tuple(value.split(",")) if value else tuple(known)
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name}: not a {what}; known are {', '.join(known)}")
        return names

    return check


def _builds(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        for build in value.split(","):
            parts(build)
    except BuildError as error:
        raise click.BadParameter(str(error)) from error
    return tuple(value.split(","))


_ISAS = {isa.value: isa for isa in usable_isas(detect())}


@click.command()
@click.option("--variants", callback=_names(VARIANTS, "variant"), help=f"Of {', '.join(VARIANTS)}.  [default: all]")
@click.option("--compilers", callback=_names(COMPILERS, "compiler"), help=f"Of {', '.join(COMPILERS)}.  [default: all]")
@click.option("--builds", callback=_builds, default=_DEFAULT_BUILDS, show_default=True,
              help="Ways to build: plain, prime, no-pie, stripped, debug, joined by + to one build.")
@click.option("--isa", "isas", callback=_names(_ISAS, "usable instruction set"),
              help="Instruction sets of the first build; others get the first set.  [default: all, widest first]")
@click.option("--size", type=click.IntRange(min=1), help="Matrix size n.  [default: some seconds of native time]")
@click.option("--runs", type=click.IntRange(min=1), help="Repetitions.  [default: 1; 3 with --headline]")
@click.option("--headline", "is_headline", is_flag=True, help="Measure the figures of README.md instead of the matrix.")
@click.option("--long-runs", type=click.IntRange(min=0), default=1, show_default=True,
              help="With --headline: repetitions of the product of size 4000; each takes minutes natively.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=Path("build/bench"),
              show_default=True, help="The folder for programs and results.")
def main(variants: tuple[str, ...], compilers: tuple[str, ...], builds: tuple[str, ...], isas: tuple[str, ...],
         size: int | None, runs: int | None, is_headline: bool, long_runs: int, output: Path) -> None:
    """Measure memopt on this machine."""
    output.mkdir(parents=True, exist_ok=True)
    if is_headline:
        record, text, wrong = _headline(isas[0], runs or 3, long_runs, output)
    else:
        record, text, wrong = _matrix(variants, compilers, builds, isas, size, runs or 1, output)
    name = "headline" if is_headline else "matrix"
    whole = {"version": __version__, "command": sys.argv[1:], "machine": dataclasses.asdict(detect()),
             "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), **record}
    write(str(output / f"{name}.json"), json.dumps(whole, indent=2) + "\n")
    write(str(output / f"{name}.md"), text)
    click.echo(text)
    click.echo(f"written: {output / name}.json, {output / name}.md", err=True)
    sys.exit(1 if wrong else 0)


def _matrix(variants: tuple[str, ...], compilers: tuple[str, ...], builds: tuple[str, ...], isas: tuple[str, ...],
            size: int | None, runs: int, output: Path) -> tuple[dict[str, Any], str, bool]:
    rows: list[Row] = []
    for variant in variants:
        for compiler in compilers:
            for build in builds:
                chosen = isas if build == builds[0] else isas[:1]
                for row in run_cell(VARIANTS[variant], compiler, build, chosen, size, runs, output / "programs"):
                    _progress(row)
                    rows.append(row)
    wrong = any(r.runs and not r.identical for r in rows)
    record = {"rows": [r.to_json() for r in rows], "programs": _programs(output / "programs")}
    return record, tables.matrix_table(rows), wrong


def _programs(folder: Path) -> dict[str, Any]:
    """Properties of the programs that were built: position-independent, stripped, build id."""
    return {path.name: dataclasses.asdict(describe(str(path))) for path in sorted(folder.iterdir())}


def _headline(isa: str, runs: int, long_runs: int, output: Path) -> tuple[dict[str, Any], str, bool]:
    programs = output / "programs"
    inputs = output / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    products = [headline.large_product("a", 2048, isa, runs, programs)]
    _progress(products[-1][0])
    if long_runs:
        products.append(headline.large_product("b", 4000, isa, long_runs, programs))
        _progress(products[-1][0])
    streamed = streaming.jacobi(detect(), isa, runs, programs)
    click.echo("jacobi_2d against the memory's rate", err=True)
    installed = headline.time_to_install(isa, programs)
    again = headline.time_to_install(isa, programs, again=True)
    overheads = list(headline.overheads(runs + 2, inputs))
    text = "\n".join((tables.product_table(products), tables.streaming_table(streamed), tables.install_line(installed),
                      tables.install_line(again, " in a second run"), tables.overhead_table(overheads)))
    record = {
        "products": [headline.product_record(*p) for p in products],
        "streaming": streamed.to_json(),
        "installed_after_seconds": installed,
        "installed_again_after_seconds": again,
        "overheads": [o.to_json() for o in overheads],
        "programs": _programs(programs),
    }
    identical = (*(p.identical for p, _ in products), streamed.identical, *(o.identical for o in overheads))
    return record, text, not all(identical)


def _progress(row: Row) -> None:
    outcome = "replaced" if row.replaced else f"kept: {row.reason}"
    same = "" if row.identical else ", OUTPUT DIFFERS"
    click.echo(f"{row.variant} {row.compiler} {row.build} n={row.size} {row.isa}: {outcome}{same}", err=True)


if __name__ == "__main__":
    main()
