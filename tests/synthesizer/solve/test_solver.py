"""Status, objective and bound of solves."""

import math

import highspy
import pulp
import pytest

from synthesizer.bounds.edge_orbits import QuietHighs
from synthesizer.solve import solver
from synthesizer.solve.solver import (
    _ITERATIONS_PER_NODE,
    _WORK_PER_S,
    SolveStatus,
    add_binary,
    add_variable,
    solve,
)


def _cover(sets: int) -> pulp.LpProblem:
    """Return the vertex cover of a cycle of odd length, which needs (sets + 1) / 2 vertices."""
    problem = pulp.LpProblem("cover", pulp.LpMinimize)
    chosen = [add_binary(problem, f"x{i}") for i in range(sets)]
    problem.setObjective(pulp.lpSum(chosen))
    for i in range(sets):
        problem += chosen[i] + chosen[(i + 1) % sets] >= 1
    return problem


def test_an_optimum_is_reported_with_its_bound() -> None:
    outcome = solve(_cover(7), 10.0, 1e-6)
    assert outcome.status is SolveStatus.OPTIMAL
    assert outcome.objective == pytest.approx(4.0)
    assert outcome.bound == pytest.approx(4.0)


def test_a_contradiction_is_infeasible() -> None:
    problem = pulp.LpProblem("contradiction", pulp.LpMinimize)
    x = add_variable(problem, "x", 0.0, 1.0)
    problem.setObjective(x + 0)
    problem += x >= 2
    outcome = solve(problem, 10.0, 1e-6)
    assert outcome.status is SolveStatus.INFEASIBLE
    assert not outcome.solved
    assert math.isnan(outcome.objective)


def _pigeons() -> pulp.LpProblem:
    problem = pulp.LpProblem("pigeons", pulp.LpMinimize)
    sits = {(p, h): add_binary(problem, f"x{p}_{h}") for p in range(30) for h in range(29)}
    worst = add_variable(problem, "worst", 0.0)
    problem.setObjective(worst + 0)
    for p in range(30):
        problem += pulp.lpSum(sits[p, h] for h in range(29)) == 1
    for h in range(29):
        problem += pulp.lpSum((1 + p * h % 7) * sits[p, h] for p in range(30)) <= worst
    return problem


def test_without_work_there_is_no_claim_of_optimality() -> None:
    outcome = solve(_pigeons(), 0.0, 0.0)
    assert outcome.status is SolveStatus.NO_SOLUTION
    assert not outcome.cut_by_clock


def test_a_solve_that_the_clock_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_LEAST_CLOCK_S", 0.0)
    monkeypatch.setattr(solver, "_CLOCK_FACTOR", 1e-3)
    outcome = solve(_pigeons(), 1.0, 0.0)
    assert outcome.cut_by_clock
    assert outcome.status in {SolveStatus.NO_SOLUTION, SolveStatus.FEASIBLE}


def test_work_is_counted_alike_in_every_run() -> None:
    once, again = (solve(_pigeons(), 0.5, 0.0) for _ in range(2))
    assert once == again
    assert once.work_s > 0
    assert not once.cut_by_clock


def test_cbc_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    if solver._cbc(1.0, 0.0, 1) is None:
        pytest.skip("CBC is not installed")
    monkeypatch.setattr(pulp.HiGHS, "available", lambda _self: False)
    outcome = solve(_cover(7), 10.0, 1e-6)
    assert outcome.status is SolveStatus.OPTIMAL
    assert outcome.objective == pytest.approx(4.0)


def test_a_node_limit_gives_what_was_found_and_no_claim_of_optimality() -> None:
    """A knapsack that is not solved at the root node."""
    weights = [7, 13, 29, 37, 59, 71, 97, 101, 127, 149, 173, 181, 211, 223, 239]
    problem = pulp.LpProblem("knapsack", pulp.LpMinimize)
    taken = [add_binary(problem, f"x{i}") for i in range(len(weights))]
    problem += -pulp.lpSum(
        (w + i % 3) * x for i, (w, x) in enumerate(zip(weights, taken, strict=True))
    )
    problem += (
        pulp.lpSum(w * x for w, x in zip(weights, taken, strict=True)) <= sum(weights) / 2 + 0.5
    )
    a_node_s = _ITERATIONS_PER_NODE * (len(weights) + 1) / _WORK_PER_S
    outcome = solve(problem, 1.5 * a_node_s, gap=0.0)
    assert outcome.status in {SolveStatus.FEASIBLE, SolveStatus.OPTIMAL}
    assert outcome.bound <= outcome.objective
    assert all(x.varValue is not None for x in taken)


def test_the_bound_of_cbc_is_below_a_negative_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    if solver._cbc(1.0, 0.0, 1) is None:
        pytest.skip("CBC is not installed")
    monkeypatch.setattr(pulp.HiGHS, "available", lambda _self: False)
    problem = pulp.LpProblem("most", pulp.LpMinimize)
    x = add_binary(problem, "x")
    problem.setObjective(-10 * x)
    outcome = solve(problem, 10.0, 0.1)
    assert outcome.objective == pytest.approx(-10.0)
    assert outcome.bound == pytest.approx(-11.0)


def test_nothing_is_written_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    solver = QuietHighs()
    solver.addVar(1.0, 2.0)
    solver.changeColCost(0, 1.0)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    assert solver.getInfo().objective_function_value == pytest.approx(1.0)
    problem = pulp.LpProblem("quiet", pulp.LpMinimize)
    taken = add_binary(problem, "x")
    problem.setObjective(taken + 0)
    problem += taken >= 1
    assert solve(problem, 1.0, 0.0).solved
    assert capfd.readouterr().out == ""
