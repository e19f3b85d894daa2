"""Solving of mixed-integer programs: HiGHS through PuLP, or CBC if HiGHS is missing.

PuLP reports a solve that hit its time limit as optimal, and leaves arbitrary numbers in the
variables if there is no solution, so the outcome is read from the solver itself where possible.
With one thread and a fixed seed the same model has the same solution if it ends by its gap or node
limit; a solve that ends by the time limit depends on the machine, and its status says so.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from enum import StrEnum

import pulp

from tuccl.synthesizer.errors import SolverError

_SEED = 1
_NO_SOLVER = "no MILP solver: neither HiGHS nor CBC is installed; run `pip install highspy`"
_HIGHS_OPTIMAL = "Optimal"
_HIGHS_INFEASIBLE = {"Infeasible", "Primal infeasible or unbounded"}
_HIGHS_FEASIBLE_POINT = 2
"""`kSolutionStatusFeasible` of HiGHS."""


class SolveStatus(StrEnum):
    """The outcome of a solve."""

    OPTIMAL = "optimal"
    """A solution within the requested gap."""
    FEASIBLE = "feasible"
    """A solution at a limit, outside the requested gap."""
    INFEASIBLE = "infeasible"
    NO_SOLUTION = "no_solution"
    """No solution before a limit was hit."""


@dataclass(frozen=True, slots=True)
class SolveOutcome:
    """Status and figures of a solve; the variables have values only if `solved`."""

    status: SolveStatus
    objective: float
    """Objective of the solution; NaN without one."""
    bound: float
    """Proved bound on the objective; NaN if the solver reports none."""
    seconds: float

    @property
    def solved(self) -> bool:
        """Whether there is a solution."""
        return self.status in {SolveStatus.OPTIMAL, SolveStatus.FEASIBLE}


def add_variable(
    problem: pulp.LpProblem, name: str, low: float = 0.0, high: float | None = None
) -> pulp.LpVariable:
    """Add a continuous variable."""
    return _variable(problem, name, low, high, pulp.LpContinuous)


def add_binary(problem: pulp.LpProblem, name: str) -> pulp.LpVariable:
    """Add a binary variable."""
    return add_integer(problem, name, 1)


def add_integer(problem: pulp.LpProblem, name: str, high: int) -> pulp.LpVariable:
    """Add an integer variable from 0 to `high`."""
    return _variable(problem, name, 0, high, pulp.LpInteger)


def _variable(
    problem: pulp.LpProblem, name: str, low: float, high: float | None, category: str
) -> pulp.LpVariable:
    # PuLP 3.3 deprecates the creation of variables outside a problem; earlier releases require it.
    if hasattr(problem, "add_variable"):
        return problem.add_variable(name, low, high, category)
    return pulp.LpVariable(name, low, high, category)


def require_solver() -> None:
    """Check before long work that `solve` has a solver.

    Raises:
        SolverError: No solver is installed.
    """
    if not pulp.HiGHS(msg=False).available() and _cbc(1.0, 0.0, 1) is None:
        raise SolverError(_NO_SOLVER)


def solve(
    problem: pulp.LpProblem, time_limit_s: float, gap: float, max_nodes: int = 200
) -> SolveOutcome:
    """Minimise a problem; on success its variables hold the solution.

    Raises:
        SolverError: No solver is installed, or it failed.
    """
    started = time.perf_counter()
    try:
        if pulp.HiGHS(msg=False).available():
            outcome = _solve_with_highs(problem, time_limit_s, gap, max_nodes)
        else:
            outcome = _solve_with_cbc(problem, time_limit_s, gap, max_nodes)
    except pulp.PulpSolverError as error:
        raise SolverError(f"the MILP solver failed on {problem.name}: {error}") from error
    status, objective, bound = outcome
    return SolveOutcome(status, objective, bound, time.perf_counter() - started)


def _solve_with_highs(
    problem: pulp.LpProblem, time_limit_s: float, gap: float, max_nodes: int
) -> tuple[SolveStatus, float, float]:
    solver = pulp.HiGHS(
        msg=False,
        timeLimit=time_limit_s,
        gapRel=gap,
        threads=1,
        random_seed=_SEED,
        mip_max_nodes=max_nodes,
    )
    # The steps of `problem.solve` without the last: PuLP does not know the status of a node limit
    # and reports every other limit as optimal.
    solver.createAndConfigureSolver(problem)
    solver.buildSolverModel(problem)
    solver.callSolver(problem)
    model = problem.solverModel
    info = model.getInfo()
    ended = model.modelStatusToString(model.getModelStatus())
    if ended in _HIGHS_INFEASIBLE:
        return SolveStatus.INFEASIBLE, float("nan"), float("nan")
    if info.primal_solution_status != _HIGHS_FEASIBLE_POINT:
        return SolveStatus.NO_SOLUTION, float("nan"), info.mip_dual_bound
    for variable, value in zip(problem.variables(), model.getSolution().col_value, strict=True):
        variable.varValue = value
    status = SolveStatus.OPTIMAL if ended == _HIGHS_OPTIMAL else SolveStatus.FEASIBLE
    return status, info.objective_function_value, info.mip_dual_bound


def _solve_with_cbc(
    problem: pulp.LpProblem, time_limit_s: float, gap: float, max_nodes: int
) -> tuple[SolveStatus, float, float]:
    solver = _cbc(time_limit_s, gap, max_nodes)
    if solver is None:
        raise SolverError(_NO_SOLVER)
    problem.solve(solver)
    nan = float("nan")
    if problem.sol_status == pulp.LpSolutionOptimal:
        objective = float(pulp.value(problem.objective))
        return SolveStatus.OPTIMAL, objective, objective - gap * abs(objective)
    if problem.sol_status == pulp.LpSolutionIntegerFeasible:
        return SolveStatus.FEASIBLE, float(pulp.value(problem.objective)), nan
    infeasible = problem.sol_status == pulp.LpSolutionInfeasible
    return (SolveStatus.INFEASIBLE if infeasible else SolveStatus.NO_SOLUTION), nan, nan


def _cbc(time_limit_s: float, gap: float, max_nodes: int) -> pulp.LpSolver | None:
    """Return CBC from the path, else PuLP's own, else None."""
    for kind in (pulp.COIN_CMD, pulp.PULP_CBC_CMD):
        with warnings.catch_warnings():
            # PuLP 3.3 warns that a later release will not include CBC.
            warnings.simplefilter("ignore", DeprecationWarning)
            solver = kind(
                msg=False,
                timeLimit=time_limit_s,
                gapRel=gap,
                threads=1,
                maxNodes=max_nodes,
                options=[f"randomCbcSeed {_SEED}"],
            )
        if solver.available():
            return solver
    return None
