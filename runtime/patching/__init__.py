"""Code cache and the five bytes.

In: ``CompiledRegion``. Out: a recorded patch. May be touched: the only writer of program text.

Modules: ``code_cache``, ``install``, ``perf_map``.
"""
