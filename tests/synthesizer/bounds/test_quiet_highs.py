"""HiGHS writes nothing: neither a banner when it is made nor a log when it runs."""

from __future__ import annotations

import highspy
import pulp
import pytest

from synthesizer.bounds.edge_orbits import QuietHighs
from synthesizer.solve.solver import add_binary, solve


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
