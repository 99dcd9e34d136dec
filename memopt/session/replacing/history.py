"""The history of the loops of a process: decisions, refusals, and live-in values of earlier entries, kept between
attempts.

Example: a matrix product is replaced for n = 512 and later called with n = 640. The live-in values of the first entry
are kept in ``earlier``, so that the next lifting sees two entries, and n becomes a parameter.

Written by the improver, its stages and the watch over versions in service, one after the other in one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memopt.session.replacing.decision import Decision, Findings, Installed, Refused
from memopt.session.replacing.kept_shadow import KeptShadow
from memopt.session.replacing.known import KnownLoops

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.ir.reasons import Rejected
    from memopt.ir.region import Sample

LOOKS = 8  # attempts at one loop whose sizes differ from entry to entry


@dataclass
class History:
    """``decisions``: one for each loop that was settled, in order. ``refused``: loops that are not tried again.
    ``reopened``: loops that were taken out, until a loop inside one is decided."""

    copies: KeptShadow = field(default_factory=KeptShadow)
    given_up: Callable[[], bool] = lambda: False  # whether the program seems to have left the loop that is worked on
    decisions: list[Decision] = field(default_factory=list)
    refused: dict[Loop, Rejected] = field(default_factory=dict)
    reopened: list[Refused] = field(default_factory=list)
    earlier: dict[int, list[Sample]] = field(default_factory=dict)  # by header: live-in values of other entries
    findings: Findings = field(default_factory=Findings)  # about the loop that is worked on
    aside: Installed | None = None  # set aside while another version is made for its loop
    ahead: dict[int, list[Sample]] = field(default_factory=dict)  # by header: of entries that a copy came to
    new_sizes: set[int] = field(default_factory=set)  # headers of loops whose sizes do not come again
    left: int = 0  # bytes of versions that were taken out, which stay in the process
    known: KnownLoops = field(default_factory=KnownLoops)  # by earlier runs
    named: bool = False  # whether profilers were told names for new code

    def entries(self, header: int) -> tuple[Sample, ...]:
        """The live-in values of other entries of the loop at ``header``: those it was lifted for, and later ones."""
        return (*self.earlier.get(header, ()), *self.ahead.get(header, ()))

    def look_again(self, header: int, entry: Sample | None) -> bool:
        """Note ``entry``. Returns whether its loop is to be lifted once more, with all noted entries known: not if its
        sizes were found not to come again."""
        earlier = self.earlier.setdefault(header, [])
        if entry is not None:
            earlier.append(entry)
        return entry is not None and len(earlier) < LOOKS and header not in self.new_sizes

    def behind(self, header: int) -> Installed | None:
        """The version that a new one for the loop at ``header`` falls back on where its guard fails."""
        return self.aside if self.aside is not None and self.aside.address == header else None

    @property
    def installed(self) -> list[Installed]:
        """The versions that are in the process, those behind others included."""
        return [d for d in self.decisions if isinstance(d, Installed)]

    def replace(self, old: Decision, new: Decision) -> None:
        """Put ``new`` in the place of ``old``."""
        self.decisions[self.decisions.index(old)] = new
