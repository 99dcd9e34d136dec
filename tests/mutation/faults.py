"""Faults seeded in the engine, each with what must notice it: the substitution of one piece of source text.

A check is a test by its pytest id, or chosen nests (tests.support.random_nests.chosen) of which at least one must come
out wrong, or must make a part of the engine fail that checks another one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Nests:
    """``names`` of chosen nests, run with replaced loops."""

    names: tuple[str, ...]
    prefer: str = "loops"
    kind: str = "double"


Check = str | Nests


@dataclass(frozen=True, slots=True)
class Fault:
    """In the source of ``module`` the text ``old``, which is there exactly once, becomes ``new``. ``masks``: only code
    with mask registers (AVX-512) comes by there."""

    name: str
    module: str
    old: str
    new: str
    check: Check
    masks: bool = False


_UNIT = "tests/unit"
_LOOPS = Nests(("triangle", "jacobi", "columns"))
_PRODUCT = Nests(("product",), "contractions")


FAULTS: tuple[Fault, ...] = (
    # which iterations depend on which
    Fault("dropped anti-dependences", "memopt.polyhedral.dependence_pieces",
          "if first.array == second.array and (first == earlier.write or second == later.write):",
          "if first.array == second.array and first == earlier.write:",
          f"{_UNIT}/memopt/polyhedral/test_dependence_pieces.py::test_conflicts_are_the_pairs_that_share_a_cell"),
    Fault("dropped dependences within an iteration", "memopt.polyhedral.dependence_pieces",
          "if earlier.position[common] < later.position[common]:", "if False:",
          f"{_UNIT}/memopt/polyhedral/test_dependence_pieces.py::test_conflicts_are_the_pairs_that_share_a_cell"),
    Fault("last iteration left out of the dependences", "memopt.polyhedral.dependence_pieces",
          "yield dimension.trips - Linear.symbol(dimension.name) - 1",
          "yield dimension.trips - Linear.symbol(dimension.name) - 2",
          f"{_UNIT}/memopt/polyhedral/test_dependence_pieces.py::test_conflicts_are_the_pairs_that_share_a_cell"),
    Fault("numbers by which branches go are not held", "memopt.lifting.scop.region_builder",
          "    _hold_numbers(evidence)\n", "",
          f"{_UNIT}/memopt/lifting/test_lift.py::test_a_comparison_of_registers_that_never_change_is_guarded"),
    Fault("dropped output dependences", "memopt.polyhedral.dependences",
          "output=writes.then(writes.inverse) & order,", "output=no_pairs(),",
          f"{_UNIT}/memopt/polyhedral/test_dependences.py::test_a_product_depends_along_its_reduction_only"),
    # the order of loop plans
    Fault("a date may turn a dependence round", "passes.loop_schedule.carried_dependences",
          "if least is None or least < 0:\n            return None", "if least is None:\n            return None",
          f"{_UNIT}/passes/loop_schedule/test_candidates.py::test_every_family_has_a_legal_plan"),
    Fault("no dependence is violated", "passes.legality.loops",
          "if not meeting.is_empty and not _runs_before(first, second, meeting):", "if False:",
          f"{_UNIT}/passes/legality/test_loops.py::test_a_register_tile_over_a_triangle"),
    Fault("lanes may depend on each other", "passes.legality.loops",
          "    for name in (leaf.rows, leaf.vector):\n        if name is not None:\n            apart",
          "    for name in ():\n        if name is not None:\n            apart",
          f"{_UNIT}/passes/legality/test_loops.py::test_lanes_do_not_depend_on_each_other_along_the_sequence"),
    Fault("a promoted cell may be read", "passes.legality.loops",
          "if read != write and read.array == write.array and not together", "if False and not together",
          f"{_UNIT}/passes/legality/test_loops.py::test_an_operand_that_is_written_may_not_be_promoted_over"),
    Fault("pieces of a statement may leave instances out", "passes.legality.loops",
          "if not left.is_empty:", "if False:", f"{_UNIT}/passes/legality/test_loops.py"
          "::test_pieces_are_the_whole_statement"),
    Fault("a contraction may break dependences", "passes.legality.contractions",
          "if _exists(statement, (_same_cell(statement, first, second), earlier, late), operations):", "if False:",
          f"{_UNIT}/passes/legality/test_contractions.py::test_a_reversed_reduction_is_caught"),
    Fault("a written operand may be packed", "passes.legality.contractions",
          "if access.array in written:", "if False:", f"{_UNIT}/passes/legality/test_contractions.py"
          "::test_an_operand_that_is_written_is_caught"),
    # bounds
    Fault("the last lane is left out", "passes.loop_code.ranges",
          "highs.append((value - factor, -factor))", "highs.append((value, -factor))", _LOOPS),
    Fault("a bound is not rounded up", "passes.loop_code.ranges",
          "lows.append((-value + (factor - 1), factor))", "lows.append((-value, factor))",
          "tests/property/test_loop_code.py::test_random_plans_are_bit_exact[7]"),
    Fault("what some lanes have is taken for what all have", "passes.loop_code.ranges",
          "worst = min(0, spread) if common else max(0, spread)", "worst = max(0, spread)",
          f"{_UNIT}/passes/loop_code/test_nest_code.py::test_bands_narrower_than_a_block_of_rows"),
    Fault("steps that only some lanes have are dropped", "passes.loop_code.leaf_code",
          "self._uneven.call(kind, end, (common_steps[1], some_steps[1]), names)", "pass",
          f"{_UNIT}/passes/loop_code/test_nest_code.py::test_triangles_in_every_direction[outer0-tile1-sse2]"),
    Fault("the rest of an unrolled loop is one short", "passes.loop_code.tile_run",
          'emitter.op("add", "rcx", steps * one)', 'emitter.op("add", "rcx", steps * one - one)', _LOOPS),
    Fault("the last iteration of a scan is left out", "passes.loop_code.leaf_shape",
          "trips = dimension.trips if number else Linear.symbol(LIMIT)",
          "trips = dimension.trips if number else Linear.symbol(LIMIT) - 1", _LOOPS),
    Fault("dropped conditions", "passes.loop_code.leaf_shape", "    yield from statement.conditions\n", "    return\n",
          f"{_UNIT}/passes/loop_code/test_nest_code.py::test_bands_narrower_than_a_block_of_rows"),
    Fault("a mask with one lane too few", "passes.vector.masks",
          'emitter.op("mov", low, -1)', 'emitter.op("mov", low, -2)',
          _LOOPS, masks=True),
    # values in a register tile
    Fault("a promoted result keeps its old value", "passes.loop_code.value_numbering",
          '("accumulator", point.row, point.vector, point.step)', '("accumulator", point.row, point.vector)',
          Nests(("same operand again",))),
    Fault("all rows are stored to the first", "passes.loop_code.tile_body",
          "self._store(register, Point(row, vector, 0))", "self._store(register, Point(0, vector, 0))",
          f"{_UNIT}/passes/loop_code/test_nest_code.py::test_triangles_in_every_direction"),
    Fault("what is written counts as unchanged", "passes.loop_code.value_numbering",
          "written = stream.array == self._shape.write.array and not self.promoted", "written = False",
          f"{_UNIT}/passes/loop_code/test_nest_code.py::test_an_operand_that_stays_is_overwritten_in_one_of_the_steps"),
    # operations
    Fault("swapped operands", "passes.vector.lowering",
          "return floating.binary(code, name, element, first, second, target)",
          "return floating.binary(code, name, element, second, first, target)",
          Nests(("reversed difference",))),
    Fault("swapped alternatives", "passes.vector.lowering", "chosen, other = self._values(operands[1:])",
          "other, chosen = self._values(operands[1:])",
          f"{_UNIT}/passes/vector/test_lowering.py::test_one_of_each_kind_run"),
    # contractions
    Fault("the rest of the reduction is dropped", "passes.contraction_code.micro_kernel",
          'emitter.op("and", DEPTH, _UNROLL - 1)',
          'emitter.op("and", DEPTH, 0)', _PRODUCT),
    Fault("computing runs past a packed panel", "passes.contraction_code.packing_code",
          'emitter.op("cmp", "rax", self.unit.bytes)', 'emitter.op("cmp", "rax", 1)',
          f"{_UNIT}/passes/contraction_code/test_contraction_kernel.py"
          "::test_lanes_the_original_never_computes_raise_no_flags"),
    Fault("a ragged row is not copied back", "passes.contraction_code.ragged",
          '        emitter.op("sub", ROWS, 1)\n        emitter.jump(row, "ne")',
          '        emitter.op("sub", ROWS, 2)\n        emitter.jump(row, "g")', _PRODUCT),
    # guards and rejoin
    Fault("missing guard against overlap", "passes.version.guards",
          '            yield instruction("test", overlaps, "al")\n            yield jump(FAIL, "ne")', "",
          f"{_UNIT}/passes/version/test_guards_memory.py::test_disjoint"),
    Fault("missing guard against other values", "passes.version.guards",
          'yield jump(FAIL, "ne" if equal else "s")', 'yield jump(FAIL, "o")', f"{_UNIT}/passes/version/test_guards.py"
          "::test_equality"),
    Fault("a register need not hold what its cell holds", "passes.version.guards",
          '    yield instruction("cmp", value, held)\n    yield jump(FAIL, "ne")', "",
          f"{_UNIT}/passes/version/test_rejoin.py"
          "::test_a_lane_is_compared_with_its_cell_and_loaded_from_it"),
    Fault("a cell is read that the original may not read", "passes.version.guards",
          '            yield instruction("and", "rcx", -_SMALLEST_PAGE)\n            yield jump(FAIL, "ne")', "",
          f"{_UNIT}/passes/version/test_guards_memory.py"
          "::test_a_cell_is_only_read_in_the_page_of_one_that_the_original_touches"),
    Fault("a NaN may be anywhere", "passes.version.guards",
          '    yield instruction("cmp", value, limit)\n    yield jump(FAIL, "a")', "",
          f"{_UNIT}/passes/version/test_guards_memory.py"
          "::test_a_nan_in_a_lane_keeps_the_version_out"),
    Fault("a NaN may be in an array", "passes.version.cell_checks",
          '    emitter.op("cmp", value, limit)\n    emitter.jump(fail, "a")\n', "",
          f"{_UNIT}/passes/version/test_guards_memory.py::test_a_nan_that_is_read_keeps_the_version_out"),
    Fault("a mirrored register keeps its value", "passes.version.rejoin",
          "        *(item for m in region.memory_backed for item in _load(m, layout)),\n", "",
          f"{_UNIT}/passes/version/test_rejoin.py"
          "::test_a_register_is_compared_with_its_cell_and_loaded_from_it"),
    Fault("a value that was passed on is not taken over", "passes.version.rejoin",
          "        *(item for p in region.register_carried for item in _take_over(p, layout)),\n", "",
          f"{_UNIT}/passes/version/test_rejoin.py"
          "::test_what_the_kernel_leaves_in_the_slot_of_a_passed_value_is_taken_over"),
    Fault("a value that was passed on lives elsewhere", "passes.loop_code.nest_code",
          "homes |= {p.array: frame + symbols[p.symbol].displacement for p in region.register_carried}", "pass",

          f"{_UNIT}/passes/loop_code/test_nest_code.py::test_a_value_that_registers_pass_on_starts_and_ends_in_its_slot"),
    Fault("the version runs the last iteration too", "passes.version.guards",
          'yield instruction("sub", "rax", left)', 'yield instruction("sub", "rax", left - 1)',
          f"{_UNIT}/passes/version/test_guards.py::test_trips"),
    Fault("the limit is read twice", "passes.version.guards",
          'yield instruction("cmovg", "rax", "rcx")\n    if most',
          'yield instruction("cmovg", "rax", Mem("rbp", displacement=layout.limit))\n    if most',
          f"{_UNIT}/passes/version/test_entry.py::test_the_limit_changes_at_every_instruction"),
    Fault("exceptions need not be masked", "passes.version.guards",
          '    yield instruction("cmp", "eax", _MASKED)\n    yield jump(FAIL, "ne")', "",
          f"{_UNIT}/passes/version/test_guards.py::test_an_unmasked_exception_keeps_the_version_out"),
    Fault("denormals may be zeros where a minimum is taken", "passes.version.guards",
          "_MASKED | (_DENORMALS_ARE_ZEROS if extremes else 0)", "_MASKED",
          f"{_UNIT}/passes/version/test_guards.py::test_denormals_that_are_zeros_keep_a_minimum_out"),
    Fault("the guard's arithmetic wraps around", "passes.version.linear_code", '[jump(overflow, "o")])', "[])",
          f"{_UNIT}/passes/version/test_guards.py::test_at_least"),
    Fault("exception flags of the version are lost", "passes.version.rejoin",
          '    yield instruction("ldmxcsr", control)', "    return", _LOOPS),
    Fault("a counter rejoins one step too far", "memopt.lifting.scop.region_builder",
          "value = Linear.symbol(location) + times(Linear.symbol(LIMIT), step)",
          "value = Linear.symbol(location) + times(Linear.symbol(LIMIT) + 1, step)", _LOOPS),
    # what surrounds a nest
    Fault("code is not compared when the patch is written", "runtime.patching.install",
          "if tracee.memory.read_some(address, len(lifted)) != lifted:", "if False:",
          "tests/live/test_install.py::test_code_that_is_not_what_was_lifted_gets_no_patch"),
    Fault("code is not compared at an entry", "passes.version.entry", "        unchanged(region),\n", "",
          f"{_UNIT}/passes/version/test_code_guards.py::test_each_byte_counts"),
    Fault("the processor is not asked", "passes.version.file_entry",
          "yield from self._check_processor()", "yield from ()",
          f"{_UNIT}/passes/version/test_file_entry.py::test_a_processor_that_does_not_fit_gets_the_original_for_good"),
    Fault("several threads are like one", "passes.version.file_entry",
          '        yield jump("fail", "ne")\n', "",
          f"{_UNIT}/passes/version/test_file_entry.py::test_a_version_for_one_thread_does_not_run_beside_another"),
    Fault("any function goes by its name", "memopt.session.replacing.callees",
          "None if self.by_name and name in (*COPIES, *FILLS) else slot", "None if self.by_name else slot",
          f"{_UNIT}/memopt/session/replacing/test_callees.py"
          "::test_in_a_file_the_names_of_copies_and_fills_are_enough"),
    Fault("versions in a file never rest", "passes.version.file_entry", 'yield jump("entry_resting", "g")', "return",
          f"{_UNIT}/passes/version/test_file_entry.py::test_a_nest_that_never_fits_rests_longer_and_longer"),
    Fault("addresses get into files", "memopt.session.rewriting.movable", "if at >= _LEAST_ADDRESS and any(",
          "if False and any(",
          f"{_UNIT}/memopt/session/rewriting/test_movable.py::test_an_address_of_a_file_at_a_fixed_place"),
    Fault("everybody gets the frame", "passes.version.entry",
          'yield jump("entry_own", "ae")', 'yield jump("entry_own")',
          f"{_UNIT}/passes/version/test_entry.py::test_a_handler_enters_the_nest_at_every_instruction"),
    Fault("any stack pointer takes the frame over", "passes.version.entry",
          '        yield jump("displaced", "ne")\n', "",
          f"{_UNIT}/passes/version/test_entry.py::test_a_holder_that_left_by_longjmp_gives_way"),
    Fault("versions never come back to their guards", "passes.version.rejoin",
          'yield jump("exit_last_chunk", "ge")', 'yield jump("exit_last_chunk")',
          f"{_UNIT}/passes/version/test_entry.py::test_a_version_goes_through_its_guards_after_each_chunk"),
    Fault("no cell is waited for", "memopt.session.replacing.others",
          "returns_often=read or told", "returns_often=False",
          f"{_UNIT}/memopt/session/replacing/test_others.py::test_a_cell_that_decides_may_be_changed_by_others"),
    Fault("code in memory is like code of a file", "memopt.session.replacing.site",
          'if not site.path.startswith("/") or site.path.startswith("/memfd:"):', "if False:",
          f"{_UNIT}/memopt/session/replacing/test_site.py::test_code_in_memory_without_a_file_is_left_alone"),
    Fault("a program may always move its loops", "memopt.session.replacing.constant_text",
          "not names or not _MEANS.isdisjoint(names)", "not names",
          f"{_UNIT}/memopt/session/replacing/test_constant_text.py::test_who_may_change_its_code"),
    Fault("a progress counter is one step ahead", "memopt.lifting.scop.progress_cells",
          "Linear.symbol(LIMIT) - 1", "Linear.symbol(LIMIT)",
          f"{_UNIT}/memopt/lifting/scop/test_progress_cells.py::test_a_counter_is_stored_last"),
    Fault("the order of stores says nothing", "memopt.ir.region",
          "return len({s.write.array for s in stores} | cells) > 1 or any(", "return any(",
          f"{_UNIT}/memopt/ir/test_region.py::test_a_nest_whose_order_of_stores_may_say_something"),
    Fault("calls are made in a confined program", "runtime.target.remote_calls", "    check_callable(tracee)\n", "",
          "tests/live/test_confined.py::test_no_call_is_made_in_it"),
    Fault("a store on a condition is always made", "memopt.lifting.execution.if_conversion",
          'return replace(item, value=Node("when", (truth, value), value.width))', "return item",
          f"{_UNIT}/memopt/lifting/execution/test_if_conversion.py::test_a_store_that_is_passed_over_stays_one"),
    # lifting
    Fault("no guard for what was specialised", "memopt.lifting.scop.region_builder",
          'evidence.guards.append(Relation(linear - value, True, "specialised"))', "pass", _LOOPS),
    Fault("no guard that arrays are apart", "memopt.lifting.scop.evidence",
          "self.guards.append(Disjoint(one, two, why))", "pass", _LOOPS),
    Fault("obligations are ignored", "memopt.lifting.scop.obligations",
          "        if bound.is_constant and bound.constant >= 0:\n            continue", "        continue",
          f"{_UNIT}/memopt/lifting/test_lift.py::test_a_32_bit_counter_is_guarded_against_wrapping"),
    Fault("branches are taken to go one way", "memopt.lifting.execution.branches",
          'self.algebra.require(linear, f"the branch at {address:#x} goes one way", branch=address)', "pass",

          f"{_UNIT}/memopt/lifting/execution/test_executor.py::test_an_inner_loop_that_does_not_run_in_the_last_iteration"),
    Fault("an inner loop that runs once more", "memopt.lifting.execution.branches",
          "return Linear.of(distance.constant // step)", "return Linear.of(distance.constant // step + 1)",
          f"{_UNIT}/memopt/lifting/execution/test_executor.py::test_the_trip_count_of_an_inner_loop"),
    Fault("dead values need not be dead", "memopt.lifting.scop.liveness",
          "        if not found:\n            return max(left, 1)", "        return max(left, 1)",
          f"{_UNIT}/memopt/lifting/scop/test_liveness.py::test_a_header_value_seen_after_the_loop_is_refused"),
    Fault("a store does not change what cells hold", "memopt.lifting.demotion.available",
          "if not self.overlap(place.cell, place.bits, pointer, width, given):", "if True:",

          f"{_UNIT}/memopt/lifting/demotion/test_statements.py::test_a_value_whose_cell_is_overwritten_is_copied_when_it_is_loaded"),
    Fault("cells that meet do not overlap", "memopt.lifting.demotion.aliasing",
          "(difference.constant - low) % step <= high)", "(difference.constant - low) % step < high)",
          f"{_UNIT}/memopt/lifting/demotion/test_aliasing.py::test_a_cell_against_all_of_a_row"),
    Fault("rolled copies may be out of order", "memopt.lifting.reroll.reroll",
          "if templates is not None and self.prover.keeps_order(items, templates):", "if templates is not None:",
          f"{_UNIT}/memopt/lifting/reroll/test_reroll.py::test_unrolled_copies_in_another_order_stay"),
    Fault("copies may use other numbers", "memopt.lifting.reroll.proofs",
          "self.captured.equate(one, two)", "pass", f"{_UNIT}/memopt/lifting/reroll/test_reroll.py"
          "::test_lanes_multiplied_by_lanes_of_a_register"),
    Fault("rows may be longer than their stride", "memopt.lifting.scop.delinearisation",
          "if need.evaluate(sample) < 0:", "if False:",

          f"{_UNIT}/memopt/lifting/scop/test_delinearisation.py::test_rows_that_run_into_each_other_stay_one_dimensional"),
    Fault("rows of any length may be longer than their stride", "memopt.lifting.scop.symbolic_rows",
          "if not need.is_constant:", "if False:",
          f"{_UNIT}/memopt/lifting/scop/test_symbolic_rows.py::test_cells_are_one_only_where_subscripts_are_equal"),
    Fault("rows of any length may wrap around", "memopt.lifting.scop.symbolic_rows",
          "guards += (Relation(extent, False, \"the array is smaller than the address space\"),)", "pass",
          f"{_UNIT}/memopt/lifting/scop/test_symbolic_rows.py::test_the_array_is_smaller_than_the_address_space"),
    Fault("products in guards may overflow", "passes.version.linear_code",
          "Mem(\"rbp\", displacement=layout.symbols[other])), *after]",
          "Mem(\"rbp\", displacement=layout.symbols[other]))]",
          f"{_UNIT}/passes/version/test_guards.py::test_products_are_exact_or_keep_the_version_out"),
    Fault("tile loops may have no iterations", "passes.version.overflow_guards",
          "for expression in (trips - least, -trips + MOST))", "for expression in (-trips + MOST,))",
          f"{_UNIT}/passes/version/test_guards.py::test_extents_of_a_contraction_that_are_known_at_entry_only"),
    Fault("a row counts as long as it was seen", "passes.contraction_schedule.contraction",
          "zip(map(bytes_of, array.strides), access.subscripts, strict=True)",
          "zip(map(Linear.of, array.seen_strides), access.subscripts, strict=True)",
          f"{_UNIT}/passes/contraction_code/test_contraction_kernel.py::test_strides_and_extents_known_at_entry_only"),
)
