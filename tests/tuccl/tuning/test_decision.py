import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tuccl.errors import ConfigurationFailedError, MeasurementError
from tuccl.search.trials.config import DEFAULT_ALGORITHM, STOCK, Config
from tuccl.tuning import decision as decision_module
from tuccl.tuning.decision import FEW_PAIRS, PAIRS, Decision, decide

RING = Config("ring", "LL", 4)
TREE = Config("tree", "LL", 4)
SCHEDULE = Config("schedule:00", "LL", 1, 128, 1 << 16)
MAJORITY = PAIRS // 2 + 1
PROFILE_DEFAULT = Config(DEFAULT_ALGORITHM, nthreads=256)


class Times:
    """Fixed times with a little noise, and the order in which samples were taken."""

    def __init__(self, times_us: dict[Config, float], spread: float = 0.001) -> None:
        self.times_us = times_us
        self.spread = spread
        self.order: list[tuple[Config, int]] = []

    def __call__(self, config: Config, repeats: int) -> tuple[float, ...]:
        self.order.append((config, repeats))
        rng = np.random.default_rng(sorted(self.times_us).index(config))
        return tuple(self.times_us[config] * np.exp(rng.normal(0.0, self.spread, repeats)))


def none_taken(_: Config) -> int:
    return 0


def test_a_faster_built_in_and_a_faster_schedule_are_both_kept() -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 90.0, SCHEDULE: 60.0})
    decision = decide([RING, TREE], [SCHEDULE], STOCK, times, taken=none_taken)
    assert decision.builtin is not None
    assert decision.builtin.config == RING
    assert decision.schedule is not None
    assert decision.schedule.config == SCHEDULE
    assert abs(decision.schedule.ratio - 80.0 / 60.0) < 0.01, "against the built-in, not stock"
    assert abs(decision.profile_default_us - 100.0) < 1.0


def test_a_call_that_trainings_hide_takes_few_channels_that_keep_nine_tenths_of_the_gain() -> None:
    """Logarithms of gains: 0.693, 0.654 (0.94 of it) and 0.511 (0.74)."""
    wide, half, quarter = (Config("schedule:00", "LL", n, 128, 1 << 16) for n in (32, 16, 8))
    many, few = Config("ring", "LL", 32), Config("ring", "LL", 4)
    unknown = Config("nvls", "Simple")  # As many channels as NCCL likes.
    nccls_us = {unknown: 98.02, many: 98.00, few: 98.05}
    times = Times(
        {STOCK: 100.0, wide: 50.0, half: 52.0, quarter: 60.0, **nccls_us},
        spread=0.0001,
    )
    schedules, builtins = [wide, half, quarter], list(nccls_us)
    alone, hidden = (
        decide(builtins, schedules, STOCK, times, taken=none_taken, is_hidden=is_hidden)
        for is_hidden in (False, True)
    )
    assert [comparison.config for comparison in alone.proved] == [many, wide]
    assert [comparison.config for comparison in hidden.proved] == [few, half]


def test_a_gain_within_the_noise_is_no_entry() -> None:
    times = Times({STOCK: 100.0, RING: 99.0}, spread=0.05)
    decision = decide([RING], [], STOCK, times, taken=none_taken)
    assert decision.builtin is None
    assert decision.rejected[0].config == RING


def test_a_gain_below_the_least_is_no_entry() -> None:
    times = Times({STOCK: 100.0, RING: 99.9}, spread=0.0)
    assert decide([RING], [], STOCK, times, taken=none_taken).builtin is None


def test_under_a_profile_the_reference_is_nccls_own_choice_under_it() -> None:
    times = Times({STOCK: 100.0, PROFILE_DEFAULT: 120.0, RING: 105.0})
    decision = decide([RING], [], PROFILE_DEFAULT, times, taken=none_taken)
    assert decision.builtin is not None, "it makes up for the loss by the profile"
    assert abs(decision.builtin.ratio - 120.0 / 105.0) < 0.01


def test_samples_are_fresh_and_taken_in_turn() -> None:
    times = Times({STOCK: 100.0, RING: 80.0})
    decide([RING], [], STOCK, times, taken=lambda _: 27)
    taken = [(config, repeats) for config, repeats in times.order if repeats > 27]
    assert {repeats for _, repeats in taken} == set(range(28, 28 + PAIRS))
    rounds = [{config for config, repeats in taken if repeats == n} for n in range(28, 28 + PAIRS)]
    assert all(configs == {STOCK, RING} for configs in rounds)
    assert taken == sorted(taken, key=lambda pair: pair[1])


@pytest.mark.parametrize("slow", [0, 1])
def test_an_effect_on_every_second_launch_proves_nothing(slow: int) -> None:
    launches: list[Config] = []
    samples: dict[Config, list[float]] = {STOCK: [], RING: []}

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        while len(samples[config]) < repeats:
            samples[config].append(200.0 if len(launches) % 2 == slow else 100.0)
            launches.append(config)
        return tuple(samples[config])

    decision = decide([RING], [], STOCK, measure, taken=lambda _: 0)
    assert decision.builtin is None
    (rejected,) = decision.rejected
    assert rejected.lower_bound < 1.0
    assert [launches.count(config) for config in (STOCK, RING)] == [PAIRS, PAIRS]


def test_a_beaten_finalist_is_measured_no_further() -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 101.0, SCHEDULE: 90.0}, spread=0.0)
    decision = decide([RING, TREE], [SCHEDULE], STOCK, times, none_taken)
    counts = {c: max(n for d, n in times.order if d == c) for c in times.times_us}
    assert counts == {STOCK: PAIRS, RING: PAIRS, TREE: MAJORITY, SCHEDULE: PAIRS}
    assert decision.winner == RING
    assert counts[STOCK] == PAIRS
    by_config = {each.config: each for each in decision.rejected}
    assert by_config[TREE].samples == MAJORITY
    assert by_config[TREE].ratio == pytest.approx(100.0 / 101.0)
    assert by_config[SCHEDULE].reference == RING


def test_a_schedule_that_nccls_own_choice_beats_is_held_against_that_alone() -> None:
    times = Times({STOCK: 100.0, RING: 80.0, SCHEDULE: 101.0}, spread=0.0)
    (rejected,) = decide([RING], [SCHEDULE], STOCK, times, none_taken).rejected
    assert (rejected.config, rejected.reference, rejected.samples) == (SCHEDULE, STOCK, MAJORITY)


def test_where_all_finalists_are_beaten_nccls_own_choice_is_measured_no_further() -> None:
    times = Times({STOCK: 100.0, RING: 110.0, TREE: 120.0}, spread=0.0)
    decision = decide([RING, TREE], [], STOCK, times, none_taken)
    assert not decision.has_entry
    assert decision.profile_default_us == 100.0
    assert {n for config, n in times.order if config == STOCK} == set(range(1, MAJORITY + 1))


@pytest.mark.long
@given(
    samples=st.lists(
        st.lists(st.floats(90.0, 110.0), min_size=PAIRS, max_size=PAIRS), min_size=4, max_size=4
    ),
    gain=st.floats(0.8, 1.0),
)
def test_what_is_proved_does_not_depend_on_the_samples_that_are_saved(
    samples: list[list[float]], gain: float
) -> None:
    all_us = dict(zip((STOCK, RING, TREE, SCHEDULE), samples, strict=True))
    all_us[RING] = [gain * us for us in all_us[RING]]
    all_us[SCHEDULE] = [gain * gain * us for us in all_us[SCHEDULE]]

    def decided() -> Decision:
        def measure(config: Config, repeats: int) -> tuple[float, ...]:
            return tuple(all_us[config][:repeats])

        return decide([RING, TREE], [SCHEDULE], STOCK, measure, none_taken)

    saving = decided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision_module, "_settled", lambda *_, **__: set())
        whole = decided()
    assert saving.builtin == whole.builtin
    if saving.schedule != whole.schedule:
        # It beats a built-in of which NCCL's own choice, in turn, beats it: no entry then.
        assert saving.schedule is None
        assert whole.schedule is not None
        assert whole.schedule.reference != STOCK


def test_few_samples_prove_nothing_and_show_which_calls_are_likely() -> None:
    """Of 5 signed ranks all have the same sign by chance once in 32: too often for 1 % of 2."""
    times = Times({STOCK: 100.0, RING: 50.0, TREE: 110.0})
    decision = decide([RING, TREE], [], STOCK, times, none_taken, FEW_PAIRS)
    assert not decision.has_entry
    ring, tree = decision.rejected
    assert (ring.config, ring.samples, ring.lower_bound) == (RING, FEW_PAIRS, 0.0)
    assert ring.ratio == pytest.approx(2.0, rel=0.1)
    assert tree.samples == FEW_PAIRS // 2 + 1


@pytest.mark.parametrize("failing", [RING, STOCK])
def test_a_finalist_that_fails_is_left_out_and_a_reference_that_fails_is_an_error(
    failing: Config,
) -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 90.0})

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        if config == failing and repeats > 7:
            raise ConfigurationFailedError("it hung")
        return times(config, repeats)

    if failing == STOCK:
        with pytest.raises(MeasurementError, match="default stopped running: it hung"):
            decide([RING, TREE], [], STOCK, measure, none_taken)
    else:
        decision = decide([RING, TREE], [], STOCK, measure, none_taken)
        assert decision.builtin is not None
        assert decision.builtin.config == TREE


def test_a_finalist_that_the_backend_stops_is_left_out() -> None:
    times = Times({STOCK: 100.0, RING: 80.0, TREE: 900.0})

    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        return times(config, 1 if config == TREE else repeats)

    decision = decide([TREE, RING], [], STOCK, measure, taken=lambda _: 27)
    assert decision.builtin is not None
    assert decision.builtin.config == RING
    assert decision.rejected == ()
