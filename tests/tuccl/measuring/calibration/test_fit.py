"""Fitting recovers the constants behind the times; undetermined constants stay."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import InputFileError
from tuccl.measuring.calibration.fit import fit_constants, median_error
from tuccl.measuring.calibration.model_file import make_model_file
from tuccl.measuring.calibration.observations import Observation, tabulate
from tuccl.models.figures import Fabric, Generation, MachineFigures, figures_of
from tuccl.models.model_constants import SHIPPED, ModelConstants, ProtocolCosts
from tuccl.search.trials.config import STOCK, Config

NVSWITCH_X4 = figures_of(Shape(4, 1, 4), Fabric.NVLINK, Generation.HOPPER, 450.0)
CONFIGS = [
    Config(algorithm, protocol, nchannels, nthreads)
    for algorithm in ("ring", "tree")
    for protocol in ("LL", "LL128", "Simple")
    for nchannels in (1, 4, 24)
    for nthreads in (128, 512)
]
SIZES = [1 << exponent for exponent in range(12, 30, 2)]


def times_of(
    constants: ModelConstants, noise: float = 0.0, machine: MachineFigures = NVSWITCH_X4
) -> list[Observation]:
    seen = [
        Observation("made", machine, Collective.ALL_REDUCE, size_bytes, config, 1.0)
        for config in CONFIGS
        for size_bytes in SIZES
    ]
    rng = np.random.default_rng(0)
    factors = np.exp(noise * rng.standard_normal(len(seen)))
    predicted = tabulate(seen).predicted_us(constants) * factors
    return [
        replace(observation, time_us=float(time))
        for observation, time in zip(seen, predicted, strict=True)
    ]


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(st.floats(0.6, 1.7), st.floats(0.6, 1.7), st.floats(0.7, 1.3))
def test_times_made_with_other_constants_are_told_again(
    latency: float, copying: float, wire: float
) -> None:
    def changed(costs: ProtocolCosts) -> ProtocolCosts:
        return replace(
            costs,
            base_us=costs.base_us * latency,
            ring_gb_per_s=costs.ring_gb_per_s * copying,
            wire_efficiency=costs.wire_efficiency * wire,
        )

    made = replace(SHIPPED, ll=changed(SHIPPED.ll), simple=changed(SHIPPED.simple))
    fit = fit_constants(times_of(made))
    assert fit.error_after <= fit.error_before
    assert fit.error_after < 0.01


def test_constants_that_the_times_say_nothing_of_stay() -> None:
    fitted = fit_constants(times_of(SHIPPED, noise=0.05)).constants
    of_network = ("network_hop_us", "network_latencies", "pci_hop_share", "socket_gb_per_s")
    for name in (*of_network, "launch_us", "phase_launch_us", "memory_efficiency"):
        assert getattr(fitted, name) == pytest.approx(getattr(SHIPPED, name))
    assert fitted.simple.wire_efficiency == pytest.approx(SHIPPED.simple.wire_efficiency, rel=0.05)


def test_the_thread_that_drives_sockets_is_fitted_where_it_limits() -> None:
    def two_nodes(*, sockets: bool) -> MachineFigures:
        nvlink, hopper = Fabric.NVLINK, Generation.HOPPER
        return figures_of(Shape(4, 2, 2), nvlink, hopper, 450.0, 1, 25.0, 5.0, sockets=sockets)

    made = replace(SHIPPED, socket_gb_per_s=1.6)
    for sockets, found in ((True, 1.6), (False, SHIPPED.socket_gb_per_s)):
        fitted = fit_constants(times_of(made, machine=two_nodes(sockets=sockets))).constants
        assert fitted.socket_gb_per_s == pytest.approx(found, rel=0.02)


def test_a_few_wild_times_do_not_bend_the_rest() -> None:
    seen = times_of(SHIPPED)
    wild = [
        replace(observation, time_us=observation.time_us * (20.0 if i % 20 == 0 else 1.0))
        for i, observation in enumerate(seen)
    ]
    fitted = fit_constants(wild).constants
    assert median_error(tabulate(seen), fitted) < 0.03


def test_the_same_observations_give_the_same_constants_to_the_last_digit() -> None:
    seen = times_of(SHIPPED, noise=0.1)
    assert asdict(fit_constants(seen).constants) == asdict(fit_constants(seen).constants)


def test_a_large_record_does_not_drown_a_small_one() -> None:
    small = Observation("small", NVSWITCH_X4, Collective.ALL_REDUCE, 1 << 20, STOCK, 30.0)
    table = tabulate([*times_of(SHIPPED), *[small] * 9])
    assert sum(table.weights[:-9]) == pytest.approx(len(times_of(SHIPPED)) ** 0.5)
    assert sum(table.weights[-9:]) == pytest.approx(3.0)


def test_times_of_something_else_give_constants_that_can_be_written() -> None:
    seen = [
        replace(observation, time_us=observation.time_us * 1e9) for observation in times_of(SHIPPED)
    ]
    fit = fit_constants(seen)
    model = make_model_file(fit.constants, tuccl="0", topology="", source="", observations=1,
                            median_error=fit.error_after)  # fmt: skip
    assert model.constants.launch_us == pytest.approx(SHIPPED.launch_us)


def test_too_few_times_are_refused() -> None:
    with pytest.raises(InputFileError, match="7 measured times are too few"):
        fit_constants(times_of(SHIPPED)[:7])
