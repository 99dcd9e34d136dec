"""The stages that a loop goes through: find, capture, lift, schedule, reserve, generate, validate, install.

Example: the loop nest of ``c[i][j] += a[i][k] * b[k][j]`` in a running program. In: the process, a loop of it. Out:
the version that was installed at the loop's header, or Rejected, which says why not. A stage that fails leaves nothing
in the process. A version is installed only after it was proved, guarded and (unless the user forbids it) tried in
shadows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.capture import capture
from memopt.session.replacing.compilation import generate_versions, schedule
from memopt.session.replacing.decision import Installed
from memopt.session.replacing.history import History
from memopt.session.replacing.installation import install, watched
from memopt.session.replacing.others import chunk
from memopt.session.replacing.process import Process
from memopt.session.replacing.reservation import make_room, reserved
from memopt.session.replacing.validation import validate

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.session.replacing.site import Site


def replace_loop(process: Process, site: Site, loop: Loop, history: History) -> Installed:
    """Replace ``loop``, a candidate of ``site``, in the process by a faster version.

    ``history.findings`` tells how far it came, also where a stage raises Rejected. Raises Rejected(DRY_RUN) before the
    last stage where the user asked for no more.
    """
    from memopt.session.replacing.site import loop_code

    findings, options = history.findings, process.options
    findings.entry, findings.guards = None, ()
    code = loop_code(process, site, loop)
    lifted, trips = capture(process, code, history)
    findings.entry, findings.guards = lifted.entry, lifted.region.guards
    lifted, displaced = make_room(process, code, lifted)
    candidates = schedule(process, lifted.region, trips, code.vector_bytes, lifted.entry)
    with reserved(process, lifted.region, candidates) as cache:
        versions = generate_versions(process, lifted.region, candidates, cache.placement, displaced.code)
        compiled, findings.measurement = (validate(process, code, versions, history) if options.shadow
                                          else (versions[0], None))
        findings.plan = compiled.plan
        if options.dry_run:
            raise Rejected(Reason.DRY_RUN)
        behind = history.behind(code.loop.header)
        pace = None if findings.measurement is None else findings.measurement.version
        install(process, compiled, cache, displaced, behind, chunk(compiled.region, lifted.entry, pace))
    moved = bool(displaced.places(cache.placement.code))
    _, ranges = site.decided(loop)
    after = time.monotonic() - process.started
    return Installed(code.loop.header, ranges, site, loop, cache, compiled, moved, lifted.entry, findings.measurement,
                     after, watched(compiled, history), behind)
