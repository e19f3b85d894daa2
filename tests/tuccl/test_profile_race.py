import math

from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.table import Operation, Shape
from tuccl.backends.protocol import Measured
from tuccl.errors import ConfigurationFailedError
from tuccl.profile_race import profile_axes, race
from tuccl.search.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.space import Family, Space, space_of

SHAPE = Shape(4, 1, 4)
SMALL = Task(Operation.ALL_REDUCE, 1 << 14, SHAPE)
LARGE = Task(Operation.ALL_REDUCE, 1 << 28, SHAPE)
TASKS = (SMALL, LARGE)
AXES = ((64, 128, 256, 0), (1 << 20, 0, 16 << 20), (0, 16))
SPACE = Space(
    "test",
    (Family("default", "", (0,), *AXES), Family("ring", "LL", (1, 2, 4, 8), *AXES)),
)
SPACES = dict.fromkeys(TASKS, SPACE)
STOCK_US = {SMALL: 10.0, LARGE: 100.0}


class Machine:
    """Times are a key's own, times what each variable does; counts restarts."""

    def __init__(self, effects: dict[tuple[Task, str, int], float]) -> None:
        self.effects = effects
        self.restarts = 0
        self.profile = ProcessProfile()
        self.tried: set[tuple[Task, Config]] = set()

    def __call__(self, task: Task, config: Config, repeats: int) -> Measured:
        self.restarts += config.profile != self.profile
        self.profile = config.profile
        self.tried.add((task, config))
        factor = math.prod(
            self.effects.get((task, name, getattr(config, name)), 1.0)
            for name in ("nthreads", "buffer_bytes", "min_nchannels", "nchannels")
        )
        return Measured((STOCK_US[task] * factor,) * repeats, 0.0)


def test_axes_are_those_of_the_spaces_and_begin_at_nccls_own_values() -> None:
    axes = profile_axes([SPACE])
    assert (axes.nthreads, axes.buffer_bytes, axes.min_nchannels) == AXES
    assert axes.start == ProcessProfile()
    recorded = [Config("ring", "LL", 4, threads, 4 << 20, 32) for threads in (64, 512)]
    axes = profile_axes([space_of("record", [STOCK, *recorded])])
    assert (axes.nthreads, axes.buffer_bytes, axes.min_nchannels) == ((64, 512), (4 << 20,), (32,))
    assert axes.start == ProcessProfile(512, 4 << 20, 32)


def on_all(name: str, value: int, factor: float) -> dict[tuple[Task, str, int], float]:
    return {(task, name, value): factor for task in TASKS}


def test_a_variable_that_helps_is_followed_as_far_as_it_helps() -> None:
    machine = Machine(on_all("nthreads", 256, 0.9) | on_all("nthreads", 128, 0.8))
    result = race(SPACES, STOCK_US, machine)
    assert result.winner == ProcessProfile(nthreads=128)
    assert not result.out_of_budget
    assert math.isclose(result.visits[0].gain, 0.0)


def test_two_variables_that_help_are_combined() -> None:
    machine = Machine(on_all("nthreads", 256, 0.9) | on_all("min_nchannels", 16, 0.8))
    result = race(SPACES, STOCK_US, machine)
    assert result.winner == ProcessProfile(nthreads=256, min_nchannels=16)


def test_a_profile_that_costs_one_key_more_than_it_gives_the_other_is_refused() -> None:
    machine = Machine({(SMALL, "nthreads", 256): 0.8, (LARGE, "nthreads", 256): 1.1})
    assert race(SPACES, STOCK_US, machine).winner == ProcessProfile()


def test_weights_say_which_keys_count() -> None:
    effects = {(SMALL, "nthreads", 256): 0.95, (LARGE, "nthreads", 256): 1.004}
    machine = Machine(effects)
    weights = {SMALL: 1.0, LARGE: 99.0}
    assert race(SPACES, STOCK_US, machine).winner.nthreads == 256
    weighted = race(SPACES, STOCK_US, machine, weights=weights)
    assert weighted.winner == ProcessProfile()


def test_a_call_may_change_its_channels_under_another_profile() -> None:
    effects = on_all("nthreads", 256, 1.3) | on_all("nchannels", 4, 0.5)
    result = race(SPACES, STOCK_US, Machine(effects))
    assert result.calls[SMALL][0] == Config("ring", "LL", 4)


def test_what_is_not_paid_for_is_not_visited() -> None:
    paid = iter([True, True, False])
    machine = Machine(on_all("nthreads", 256, 0.9))
    result = race(SPACES, STOCK_US, machine, affords=lambda: next(paid))
    assert result.out_of_budget
    assert len(result.visits) == 3
    assert result.winner == ProcessProfile(nthreads=256)


def test_a_profile_under_which_a_key_cannot_run_does_not_win() -> None:
    class Refusing(Machine):
        def __call__(self, task: Task, config: Config, repeats: int) -> Measured:
            if task is LARGE and config.nthreads == 256:
                raise ConfigurationFailedError("it hung")
            return super().__call__(task, config, repeats)

    result = race(SPACES, STOCK_US, Refusing(on_all("nthreads", 256, 0.5)))
    assert result.winner == ProcessProfile()


@given(
    st.dictionaries(
        st.tuples(
            st.sampled_from(TASKS),
            st.sampled_from(["nthreads", "buffer_bytes", "min_nchannels", "nchannels"]),
            st.sampled_from([0, 1, 2, 4, 8, 16, 64, 128, 256, 1 << 20, 16 << 20]),
        ),
        st.floats(0.5, 2.0),
    )
)
def test_the_winner_never_gains_less_than_the_start_and_each_profile_is_visited_once(
    effects: dict[tuple[Task, str, int], float],
) -> None:
    machine = Machine(effects)
    result = race(SPACES, STOCK_US, machine)
    gains = {visit.profile: visit.gain for visit in result.visits}
    assert len(gains) == len(result.visits)
    assert gains[result.winner] >= result.visits[0].gain
    assert machine.restarts <= len(result.visits)
