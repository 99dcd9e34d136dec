"""Installed versions without a process, for tests of the decisions about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.linear import Linear
from memopt.ir.plan import NestPlan
from memopt.ir.region import Region, Trips
from memopt.ir.scop import Scop
from memopt.session.measuring.verdict import Service
from memopt.session.replacing.decision import Installed
from runtime.patching.code_cache import Statistics
from tests.support.sites import NESTS, site_of

HEADER = 0x401000
SITE = site_of(NESTS)


@dataclass
class Cache:
    """A code cache that has nothing but statistics."""

    statistics: Statistics = field(default=Statistics(0, 0, 0))

    def read_statistics(self) -> Statistics:
        return self.statistics


def installed(behind: Installed | None = None) -> Installed:
    """An installed version; ``behind``: the one that runs where its guard fails."""
    region = Region(HEADER, b"\x90" * 5, (), Trips(Linear.symbol("rdi"), 1), (), (), (), Scop((), ()))
    compiled = CompiledRegion(region, NestPlan(()), Placement(0, 4096, 0, 0, 0, 0, 0), b"", 0, 0, "")
    return Installed(HEADER, ((HEADER, HEADER + 16),), SITE, SITE.loops[-1], Cache(), compiled, None, False, {}, None,
                     1.0, Service(None, speedup=2.0, again=True), behind)
