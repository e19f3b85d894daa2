"""Solving of mixed-integer programs: HiGHS through PuLP, or CBC if HiGHS is missing.

PuLP reports a solve that hit its time limit as optimal, and leaves arbitrary numbers in the
variables if there is no solution, so the outcome is read from the solver itself where possible.
With one thread and a fixed seed the same model has the same solution if it ends by its gap or node
limit. So limits in seconds are limits of work: nodes, by an estimate of their time on an idle core
that depends on the model alone. The clock ends only solves that take many times as long; their
outcome depends on the machine, and says so.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from enum import StrEnum

import pulp

from synthesizer.bounds.edge_orbits import QuietHighs
from tuccl.errors import ScheduleError

_SEED = 1
_NO_SOLVER = "no MILP solver: neither HiGHS nor CBC is installed; run `pip install highspy`"
_HIGHS_OPTIMAL = "Optimal"
_HIGHS_INFEASIBLE = {"Infeasible", "Primal infeasible or unbounded"}
_HIGHS_TIME_LIMIT = "Time limit reached"
_HIGHS_FEASIBLE_POINT = 2
"""`kSolutionStatusFeasible` of HiGHS."""

_MOST_NODES = 200
"""Most nodes of a search tree, however much work is allowed."""

_ITERATIONS_PER_NODE = 9
"""Simplex iterations of a node of the models that are solved here, roughly."""

_ITERATIONS_OF_ROOT = 400
"""Simplex iterations at the root node, roughly, where the solver does not count them."""

_WORK_PER_S = 4e6
"""Simplex iterations times rows and columns of the model that an idle core does in a second."""

_CLOCK_FACTOR = 20.0
_LEAST_CLOCK_S = 60.0
"""The clock ends a solve after the limit of its work times the factor, or after this if longer."""

CUT_BY_CLOCK = "a solve was cut by its time limit; another run may differ"
"""Note on a result whose solves did not all end by their work."""


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
    work_s: float
    """Seconds of an idle core by the solver's count of iterations, the same on every machine."""
    cut_by_clock: bool = False
    """Whether the clock ended the solve, so that another run may give another outcome."""

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
        ScheduleError: No solver is installed.
    """
    if not pulp.HiGHS(msg=False).available() and _cbc(1.0, 0.0, 1) is None:
        raise ScheduleError(_NO_SOLVER)


def solve(problem: pulp.LpProblem, work_limit_s: float, gap: float) -> SolveOutcome:
    """Minimise a problem; on success its variables hold the solution.

    The limit of the search is in estimated seconds of an idle core; less than a node gives no
    solution. The solver may stop at the relative `gap`.

    Raises:
        ScheduleError: No solver is installed, or it failed.
    """
    size = len(problem.variables()) + problem.numConstraints()
    nodes = int(min(_MOST_NODES, work_limit_s * _WORK_PER_S / (_ITERATIONS_PER_NODE * size)))
    if nodes < 1:
        return SolveOutcome(SolveStatus.NO_SOLUTION, float("nan"), float("nan"), 0.0)
    clock_s = max(_LEAST_CLOCK_S, _CLOCK_FACTOR * work_limit_s)
    try:
        if pulp.HiGHS(msg=False).available():
            return _solve_with_highs(problem, clock_s, gap, nodes)
        return _solve_with_cbc(problem, clock_s, gap, nodes)
    except pulp.PulpSolverError as error:
        raise ScheduleError(f"the MILP solver failed on {problem.name}: {error}") from error


def _solve_with_highs(
    problem: pulp.LpProblem, clock_s: float, gap: float, max_nodes: int
) -> SolveOutcome:
    options = {
        "time_limit": clock_s,
        "mip_rel_gap": gap,
        "random_seed": _SEED,
        "mip_max_nodes": max_nodes,
    }
    model = problem.solverModel = QuietHighs()
    for name, value in options.items():
        model.setOptionValue(name, value)
    # The steps of `problem.solve` between the first, whose solver prints, and the last: PuLP does
    # not know the status of a node limit and reports every other limit as optimal.
    solver = pulp.HiGHS(msg=False)
    solver.buildSolverModel(problem)
    solver.callSolver(problem)
    info = model.getInfo()
    ended = model.modelStatusToString(model.getModelStatus())
    size = model.getNumCol() + model.getNumRow()
    work_s = max(0, info.simplex_iteration_count) * size / _WORK_PER_S
    cut = ended == _HIGHS_TIME_LIMIT
    nan = float("nan")
    if ended in _HIGHS_INFEASIBLE:
        return SolveOutcome(SolveStatus.INFEASIBLE, nan, nan, work_s)
    if info.primal_solution_status != _HIGHS_FEASIBLE_POINT:
        return SolveOutcome(SolveStatus.NO_SOLUTION, nan, info.mip_dual_bound, work_s, cut)
    for variable, value in zip(problem.variables(), model.getSolution().col_value, strict=True):
        variable.varValue = value
    status = SolveStatus.OPTIMAL if ended == _HIGHS_OPTIMAL else SolveStatus.FEASIBLE
    objective = info.objective_function_value
    return SolveOutcome(status, objective, info.mip_dual_bound, work_s, cut)


def _solve_with_cbc(
    problem: pulp.LpProblem, clock_s: float, gap: float, max_nodes: int
) -> SolveOutcome:
    solver = _cbc(clock_s, gap, max_nodes)
    if solver is None:
        raise ScheduleError(_NO_SOLVER)
    started = time.perf_counter()
    problem.solve(solver)
    cut = time.perf_counter() - started >= clock_s
    size = len(problem.variables()) + problem.numConstraints()
    work_s = _ITERATIONS_OF_ROOT * size / _WORK_PER_S
    nan = float("nan")
    if problem.sol_status == pulp.LpSolutionOptimal:
        objective = float(pulp.value(problem.objective))
        bound = objective - gap * abs(objective)
        return SolveOutcome(SolveStatus.OPTIMAL, objective, bound, work_s, cut)
    if problem.sol_status == pulp.LpSolutionIntegerFeasible:
        objective = float(pulp.value(problem.objective))
        return SolveOutcome(SolveStatus.FEASIBLE, objective, nan, work_s, cut)
    infeasible = problem.sol_status == pulp.LpSolutionInfeasible
    status = SolveStatus.INFEASIBLE if infeasible else SolveStatus.NO_SOLUTION
    return SolveOutcome(status, nan, nan, work_s, cut)


def _cbc(clock_s: float, gap: float, max_nodes: int) -> pulp.LpSolver | None:
    """Return CBC from the path, else PuLP's own, else None."""
    for kind in (pulp.COIN_CMD, pulp.PULP_CBC_CMD):
        with warnings.catch_warnings():
            # PuLP 3.3 warns that a later release will not include CBC.
            warnings.simplefilter("ignore", DeprecationWarning)
            solver = kind(
                msg=False,
                timeLimit=clock_s,
                gapRel=gap,
                threads=1,
                maxNodes=max_nodes,
                options=[f"randomCbcSeed {_SEED}"],
            )
        if solver.available():
            return solver
    return None
