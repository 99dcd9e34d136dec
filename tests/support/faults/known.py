"""Programs that are known not to pass: to be emptied as the faults are mended."""

from __future__ import annotations

KNOWN = frozenset({
    "avx-predicates", "bound-lowered-by-handler", "branch-passes-over-freed", "branch-passes-over-read-only",
    "callee-patched", "code-made-at-run-time-changes", "conversion-raises-denormal", "descriptors-held-by-copies",
    "dirty-pages-by-handler", "dlclose-and-reload", "gain-lost-after-longjmp", "jump-table-into-a-loop",
    "largest-gap-reserved", "many-mappings", "plug-in-exchanged", "profile-clone-untraced", "profile-many-threads",
    "profile-seccomp", "progress-read-by-handler", "rank-k-inlined", "release-store-publishes-rows",
    "row-table-made-shorter", "seccomp-later", "seccomp-strict-later", "shortest-paths-read-only-rows",
    "static-program-starts-threads", "stop-flag-by-process", "stop-flag-by-signal", "stop-flag-by-thread",
    "text-patched-by-the-program", "threads-share-a-frame", "time-stamp-counter-forbidden", "two-counters",
    "undo-under-a-large-signal-frame", "undo-under-a-suspended-context",
})
