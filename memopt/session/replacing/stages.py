"""The stages that a loop goes through: find, capture, lift, schedule, reserve, generate, validate, install.

Where an earlier run has left a plan for the same region (memopt.plans), the plan is proved again instead of schedule,
and code that is the same as the code of an earlier trial is not tried again.

Example: the loop nest of ``c[i][j] += a[i][k] * b[k][j]`` in a running program. In: the process, a loop of it. Out:
the version that was installed at the loop's header, or Rejected, which says why not. A stage that fails leaves nothing
in the process. A version is installed only after it was proved, guarded and (unless the user forbids it) tried in
shadows.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.session.replacing.capture import capture
from memopt.session.replacing.compilation import generate_versions, schedule
from memopt.session.replacing.decision import AT_ONCE, TRANSIENT, Installed
from memopt.session.replacing.history import History
from memopt.session.replacing.installation import install, watched
from memopt.session.replacing.others import chunk
from memopt.session.replacing.process import Process
from memopt.session.replacing.reservation import make_room, reserved
from memopt.session.replacing.stored_plan import Nest, keep, known_plan, prove
from memopt.session.replacing.validation import validate

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.session.replacing.known import Known
    from memopt.session.replacing.site import Site
    from passes.planning import Candidate


# What the stages import where they use it, for a nest with a stored plan.
_NEEDED = ("memopt.ir.parse", "memopt.lifting.lift", "memopt.models.work", "memopt.session.replacing.site",
           "memopt.x86.displacement", "memopt.x86.semantics", "passes.planning", "passes.version.generate",
           "passes.version.kernel", "runtime.patching.code_cache", "runtime.patching.install", "runtime.trial.trial")


def get_ready() -> None:
    """Import what the stages need, while the program has not come to the nest yet."""
    for name in _NEEDED:
        importlib.import_module(name)


def replace_loop(process: Process, site: Site, loop: Loop, history: History) -> Installed:
    """Replace ``loop``, a candidate of ``site``, in the process by a faster version.

    ``history.findings`` tells how far it came, also where a stage raises Rejected. Raises Rejected(DRY_RUN) before the
    last stage where the user asked for no more.
    """
    from memopt.session.replacing.site import loop_code

    findings = history.findings
    findings.entry, findings.guards = None, ()
    code = loop_code(process, site, loop)
    lifted, trips = capture(process, code, history)
    findings.entry, findings.guards = lifted.entry, lifted.region.guards
    lifted, displaced = make_room(process, code, lifted)
    nest = Nest(site, loop, code, lifted, displaced, trips)
    known = known_plan(process, nest, history)
    if known is not None:
        try:
            return _replaced(process, nest, history, (prove(process, lifted.region, known),), known)
        except (Rejected, VerifyError) as error:  # a plan from a file may make nonsense
            reason = error.reason if isinstance(error, Rejected) else Reason.NO_SCHEDULE
            if reason in TRANSIENT | AT_ONCE:
                raise
            history.known.failed(site.path, known.entry, reason)
            findings.plan = findings.measurement = None
    return _replaced(process, nest, history, schedule(process, lifted.region, trips, code.vector_bytes, lifted.entry),
                     None)


def _replaced(process: Process, nest: Nest, history: History, candidates: tuple[Candidate, ...],
              known: Known | None) -> Installed:
    """The last stages, from reserve to install. ``known``: the stored plan that the only candidate is."""
    code, lifted, displaced = nest.code, nest.lifted, nest.displaced
    options, findings = process.options, history.findings
    with reserved(process, lifted.region, candidates) as cache:
        versions = generate_versions(process, lifted.region, candidates, cache.placement, displaced.code)
        findings.measurement = known.measured(versions[0]) if known is not None and options.shadow else None
        compiled = versions[0]
        if options.shadow and findings.measurement is None:
            compiled, findings.measurement = validate(process, code, versions, history)
        findings.plan = compiled.plan
        if options.dry_run:
            raise Rejected(Reason.DRY_RUN)
        behind = history.behind(code.loop.header)
        pace = None if findings.measurement is None else findings.measurement.version
        install(process, compiled, cache, displaced, behind, chunk(compiled.region, lifted.entry, pace))
    moved = bool(displaced.places(cache.placement.code))
    _, ranges = nest.site.decided(nest.loop)
    after = time.monotonic() - process.started
    return Installed(code.loop.header, ranges, nest.site, nest.loop, cache, compiled, displaced, moved,
                     lifted.entry, findings.measurement, after, watched(compiled, history), behind,
                     stored=keep(process, nest, history, compiled), planned_before=known is not None)
