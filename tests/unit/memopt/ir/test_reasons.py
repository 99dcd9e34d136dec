"""Reasons for refusals: each has a name of its own for JSON and a clause of its own for the report."""

from __future__ import annotations

from memopt.ir.reasons import Reason, Rejected


def test_every_reason_is_explained_in_words_of_its_own() -> None:
    clauses = [reason.explain for reason in Reason]
    assert len(set(clauses)) == len(clauses)
    assert all(clause[0].islower() and not clause.endswith(".") for clause in clauses)


def test_a_refusal_says_why_and_where() -> None:
    refusal = Rejected(Reason.CALL, "0x11a0")
    assert str(refusal) == "the loop calls a function (0x11a0)"
    assert refusal.args == ("call-in-nest: 0x11a0",)
    assert str(Rejected(Reason.CALL)) == "the loop calls a function"
