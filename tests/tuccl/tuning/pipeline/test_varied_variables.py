import re
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from probes.topology.graph import Topology
from tests.sketches.machines import cluster
from tuccl.errors import InputFileError, UsageError
from tuccl.measuring.backends.backend_choice import BackendRequest, builtins_of
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.figures import communicator_shape
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.options.run_options import RunOptions
from tuccl.search.trials.catalogue import Place
from tuccl.search.trials.config import Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.tuning.pipeline.varied_variables import (
    asked_variables,
    base_of,
    not_modelled_note,
    places_of,
    set_variables,
    varied_knobs,
)

NCCL = RunOptions(backend="nccl")
PEERS = "NCCL_NCHANNELS_PER_NET_PEER"
FILE = """
format = "tuccl-nccl-variables"
version = 1
[[variable]]
name = "NCCL_SITES_OWN"
values = ["low", "high"]
where = [{where}]
"""


def two_nodes(os_name: str) -> Topology:
    two = load_machine(MachineOptions("shipped:a100-8gpu-8nic", nodes=2))
    named = [replace(d, os_name=os_name) if d in two.nics else d for d in two.devices]
    return replace(two, devices=tuple(named))


def varied_names(
    options: RunOptions, topology: Topology, laboratory: Laboratory, nccl: str = "2.28.9"
) -> list[str]:
    base = base_of(options, {}) or ()
    knobs = varied_knobs(options, base, places_of(topology, laboratory), nccl)
    return [min(knob.variables) for knob in knobs]


@pytest.mark.parametrize(
    ("os_name", "faked", "place"),
    [
        ("eth0", 1, Place.TCP),
        ("mlx5_0", 1, Place.ROCE),
        ("", 1, Place.INFINIBAND),
        ("mlx5_0", 2, Place.TCP),
    ],
)
def test_a_network_has_the_variables_that_can_matter_on_it(
    os_name: str, faked: int, place: Place
) -> None:
    topology, laboratory = two_nodes(os_name), Laboratory(faked)
    found = places_of(topology, laboratory)
    assert place in found
    assert (Place.TCP in found) != (Place.ROCE in found)
    assert (Place.NICS in found) == (faked == 1)
    names = varied_names(NCCL, topology, laboratory)
    assert (min("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS") in names) == (place is Place.TCP)
    assert ("NCCL_IB_QPS_PER_CONNECTION" in names) == (place is not Place.TCP)
    assert ("NCCL_CROSS_NIC" in names) == (faked == 1)
    assert PEERS in names
    assert "NCCL_P2P_LEVEL" not in names, "NVLink connects the GPUs"


def test_one_node_has_no_variables_of_networks() -> None:
    names = varied_names(NCCL, cluster(1, 4, 1), Laboratory())
    assert names[:3] == ["NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_MIN_CTAS"]
    assert not {PEERS, "NCCL_NSOCKS_PERTHREAD", "NCCL_CROSS_NIC"} & set(names)


def test_an_older_nccl_has_fewer() -> None:
    def names(nccl: str) -> set[str]:
        return set(varied_names(NCCL, two_nodes("mlx5_0"), Laboratory(), nccl))

    assert names("2.28.9") == names("")
    assert names("2.28.9") - names("2.17.1") == {"NCCL_IB_SPLIT_DATA_ON_QPS"}


def test_no_variables_are_tried_on_a_model_that_does_not_know_them() -> None:
    for nodes in (1, 2):
        topology = load_machine(MachineOptions("shipped:a100-8gpu-8nic", nodes=nodes))
        knobs = varied_knobs(RunOptions(), (), places_of(topology, Laboratory()), "")
        assert len(knobs) == 3
        shape = communicator_shape(topology)
        request = BackendRequest(topology, shape, knobs=knobs)
        assert builtins_of(request, Task(Collective.ALL_REDUCE, 4096, shape)).knobs == ()


def test_collnet_is_tried_where_the_network_sums() -> None:
    two = two_nodes("mlx5_0")
    sums = replace(two, devices=tuple(replace(d, network_sums=d in two.nics) for d in two.devices))

    def tried(options: RunOptions, topology: Topology) -> bool:
        places = places_of(topology, Laboratory(), options.backend_name)
        knobs = varied_knobs(options, base_of(options, {}) or (), places, "2.28.9")
        return {"NCCL_COLLNET_ENABLE"} in [knob.variables for knob in knobs]

    for options in (NCCL, RunOptions()):
        assert tried(options, sums)
        assert not tried(options, two)
        assert not tried(replace(options, set_variables=("NCCL_COLLNET_ENABLE=1",)), sums)
    # On GPUs with multicast NCCL has NVLS across nodes, too, which the model does not know.
    hgx = load_machine(MachineOptions("shipped:h100-8gpu-8nic", nodes=2))
    sums = replace(hgx, devices=tuple(replace(d, network_sums=d in hgx.nics) for d in hgx.devices))
    assert tried(NCCL, sums)
    assert not tried(RunOptions(), sums)


def test_the_model_has_the_variables_of_set_that_it_knows() -> None:
    options = RunOptions(set_variables=("NCCL_COLLNET_ENABLE=1",))
    assert base_of(options, {"NCCL_IB_TC": "106"}) == (("NCCL_COLLNET_ENABLE", "1"),)
    assert base_of(RunOptions(), {"NCCL_IB_TC": "106"}) is None


def test_the_switch_of_nvls_is_tried_where_nccl_allows_nvls() -> None:
    """On a model, too, which knows it; elsewhere only where it was asked for."""
    switch = {"NCCL_NVLS_ENABLE"}

    def tried(options: RunOptions, allowed: str, machine: str = "h100-8gpu-8nic") -> bool:
        topology = load_machine(MachineOptions(f"shipped:{machine}"))
        shape = communicator_shape(topology)
        knobs = varied_knobs(options, (), places_of(topology, Laboratory()), "2.28.9")
        request = BackendRequest(topology, shape, options=options, knobs=knobs)
        table = CostTable.parse(allowed)
        space = builtins_of(request, Task(Collective.ALL_REDUCE, 4096, shape), lambda _: table)
        return switch in [knob.variables for knob in space.knobs]

    for options in (NCCL, RunOptions()):
        assert tried(options, "ring/LL=1.0 nvls/Simple=1.0")
        assert tried(options, "ring/LL=1.0 nvls_tree/Simple=1.0")
        assert not tried(options, "ring/LL=1.0")
        assert not tried(options, "ring/LL=1.0 nvls/Simple=1.0", "a100-8gpu-8nic")
        assert not tried(options, "ring/LL=1.0 nvls/Simple=1.0", "h200-4gpu")
    asked = replace(NCCL, vary=("NCCL_NVLS_ENABLE=0",))
    assert tried(asked, "ring/LL=1.0")


def test_what_is_asked_for_comes_first_and_replaces_the_catalogues(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(FILE.format(where=""))
    options = replace(NCCL, vary=(f"{PEERS}=1,16", "NCCL_NTHREADS=128"), knobs=str(file))
    knobs = varied_knobs(options, (), places_of(two_nodes("eth0"), Laboratory()), "2.28.9")
    assert knobs[0].values == ((), ((PEERS, "1"),), ((PEERS, "16"),))
    assert knobs[1].values == ((("NCCL_NTHREADS", "128"),), ()), "512 is NCCL's own"
    assert knobs[2].variables == {"NCCL_SITES_OWN"}
    assert [knob.is_asked for knob in knobs[:4]] == [True, False, True, False]
    everything = [name for knob in knobs for name in knob.variables]
    assert everything.count(PEERS) == everything.count("NCCL_NTHREADS") == 1


def test_a_file_is_for_several_machines(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(FILE.format(where='"roce"'))
    options = replace(NCCL, knobs=str(file))
    assert "NCCL_SITES_OWN" in varied_names(options, two_nodes("mlx5_0"), Laboratory())
    assert "NCCL_SITES_OWN" not in varied_names(options, two_nodes("eth0"), Laboratory())


def test_what_a_site_sets_is_not_varied() -> None:
    options = replace(NCCL, set_variables=(f"{PEERS}=4", "NCCL_MIN_CTAS=16"))
    base = base_of(
        options, {"NCCL_NTHREADS": "256", PEERS: "8", "NCCL_DEBUG": "INFO", "HOME": "/x"}
    )
    assert base == (("NCCL_MIN_CTAS", "16"), (PEERS, "4"), ("NCCL_NTHREADS", "256"))
    sourced = {"NCCL_CROSS_NIC": "1", "NCCL_IB_TC": "3", "TUCCL_PROFILE": "NCCL_CROSS_NIC"}
    assert base_of(NCCL, sourced) == (("NCCL_IB_TC", "3"),), "a table has set the other"
    assert set_variables(options) == (("NCCL_MIN_CTAS", "16"), (PEERS, "4"))
    names = varied_names(options, two_nodes("eth0"), Laboratory())
    assert not {PEERS, "NCCL_MIN_CTAS"} & set(names)
    request = BackendRequest(
        cluster(1, 4, 1),
        communicator_shape(cluster(1, 4, 1)),
        NCCL,
        knobs=varied_knobs(options, base, (), ""),
    )
    space = builtins_of(request, Task(Collective.ALL_REDUCE, 4096, request.shape))
    assert {config.min_nchannels for config in space} == {0}
    assert {config.nthreads for config in space} == {0}
    assert space.between_min_nchannels == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vary": ("NCCL_ALGO=ring,tree",)}, "--vary: NCCL_ALGO is not varied, because it over"),
        (
            {"vary": ("NCCL_IB_HCA=a,b",)},
            "NCCL_IB_HCA is not varied, because it says which NICs there are; --set NCCL_IB_HCA=VA",
        ),
        (
            {"vary": ("LD_PRELOAD=x",)},
            "--vary 'LD_PRELOAD=x': 'LD_PRELOAD' is not a variable of NCCL",
        ),
        ({"vary": ("NCCL_X",)}, "--vary 'NCCL_X': value ''"),
        ({"vary": ("NCCL_X=1,,2",)}, "--vary 'NCCL_X=1,,2': value ''"),
        ({"vary": ("NCCL_X=1,1",)}, "NCCL_X: a value stands twice"),
        ({"vary": ("NCCL_X=$(id)",)}, "use letters, digits and"),
        ({"vary": ("NCCL_NTHREADS=many",)}, "only whole numbers have their place"),
        ({"vary": ("NCCL_NTHREADS=0,64",)}, "it takes numbers above 0"),
        ({"vary": ("NCCL_X=1", "NCCL_X=2")}, "NCCL_X is varied twice by --vary and --knobs"),
        (
            {"vary": ("NCCL_SOCKET_NTHREADS=1,4", "NCCL_NSOCKS_PERTHREAD=4")},
            "NCCL_SOCKET_NTHREADS is varied twice",
        ),
        (
            {"vary": ("NCCL_X=1",), "set_variables": ("NCCL_X=2",)},
            "NCCL_X is set by --set, so it is not varied",
        ),
        (
            {"set_variables": ("NCCL_TUNER_PLUGIN=/x.so",)},
            "--set: NCCL_TUNER_PLUGIN cannot be set, because TuCCL sets it",
        ),
        ({"set_variables": ("NCCL_X=1", "NCCL_X=1")}, "--set 'NCCL_X=1': NCCL_X is set twice"),
        ({"set_variables": ("NCCL_X=",)}, "--set 'NCCL_X=': value ''"),
        (
            {"backend": "simulated", "vary": ("NCCL_X=1",)},
            "--vary is for a backend that measures; --backend simulated knows no variables",
        ),
        ({"backend": "replay", "set_variables": ("NCCL_X=1",)}, "--set is for a backend that"),
        (
            {"backend": "simulated", "set_variables": ("NCCL_COLLNET_ENABLE=0",)},
            "knows no variables of NCCL but NCCL_COLLNET_ENABLE=1 and NCCL_NVLS_ENABLE=0",
        ),
        (
            {"backend": "executor", "vary": ("NCCL_X=1",)},
            "--backend executor searches schedules al",
        ),
        (
            {"backend": "simulated", "set_variables": ("NCCL_ALGO=Ring",)},
            "--set: NCCL_ALGO cannot be set, because it overrules every table",
        ),
        (
            {"backend": "simulated", "vary": ("NCCL_IB_DISABLE=0,1",)},
            "--vary: NCCL_IB_DISABLE is not varied, because it says what the network is; --set",
        ),
    ],
)
def test_a_refusal_names_variable_and_reason(given: dict[str, object], said: str) -> None:
    options = RunOptions(**{"backend": "nccl"} | given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        asked_variables(options)
    assert "\n" not in str(refused.value)


def test_a_file_is_read_before_the_backend_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    options = RunOptions(backend="simulated", knobs=str(file), set_variables=("NCCL_X=1",))
    with pytest.raises(InputFileError, match=r"cannot read .*site\.toml: No such file"):
        asked_variables(options)
    file.write_text("[[variable]]")
    with pytest.raises(InputFileError, match=r"site\.toml: format: Field required"):
        asked_variables(options)
    file.write_text(FILE.format(where=""))
    with pytest.raises(UsageError, match="--set 'NCCL_X=1': --backend simulated knows no var"):
        asked_variables(options)
    with pytest.raises(UsageError, match="--knobs is for a backend that measures"):
        asked_variables(replace(options, set_variables=()))


def test_a_model_has_no_base() -> None:
    assert base_of(RunOptions(backend="simulated"), {"NCCL_MAX_CTAS": "8"}) is None
    assert base_of(RunOptions(backend="sockets"), {"NCCL_MAX_CTAS": "8"}) == ()


def test_variables_that_the_model_does_not_know_are_named_once() -> None:
    site = {"NCCL_MAX_CTAS": "16", "NCCL_IB_TC": "106", "NCCL_DEBUG": "INFO", "HOME": "/x"}
    said = not_modelled_note(RunOptions(), site)
    assert said == (
        "set here, and not in the model: NCCL_IB_TC, NCCL_MAX_CTAS; the table says nothing of jobs "
        "with them"
    )
    assert not_modelled_note(RunOptions(), {"NCCL_DEBUG": "INFO", "HOME": "/x"}) == ""
    assert not_modelled_note(NCCL, site) == "", "they are the base of a run that measures"


def test_ranks_that_share_a_gpu_open_no_more_channels() -> None:
    names = {min(k.variables) for k in varied_knobs(NCCL, (), (), "", shares_gpus=True)}
    assert "NCCL_MIN_CTAS" not in names
    assert "NCCL_NTHREADS" in names


def test_a_variable_that_this_nccl_lacks_is_refused() -> None:
    options = replace(NCCL, vary=("NCCL_IB_SPLIT_DATA_ON_QPS=0,1",))
    said = "NCCL 2.17.1 has no NCCL_IB_SPLIT_DATA_ON_QPS, which came with 2.18"
    with pytest.raises(UsageError, match=re.escape(said)):
        varied_knobs(options, (), (), "2.17.1")
    assert varied_knobs(options, (), (), "2.18.3")
    options = replace(NCCL, vary=("NCCL_SHM_USE_CUDA_MEMCPY=1",))
    said = "NCCL 2.30.7 has no NCCL_SHM_USE_CUDA_MEMCPY, which went with 2.30.7"
    with pytest.raises(UsageError, match=re.escape(said)):
        varied_knobs(options, (), (), "2.30.7")


def test_a_file_does_not_refuse_nor_vary_what_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    options = replace(NCCL, knobs=str(file))
    file.write_text(FILE.format(where="") + '[[refused]]\nnames = ["NCCL_A"]\nwhy = "I say so"\n')
    with pytest.raises(InputFileError, match="only the catalogue itself refuses"):
        asked_variables(options)
    file.write_text(FILE.format(where="") + "with = { NCCL_PROTO = 'LL' }\n")
    with pytest.raises(UsageError, match="NCCL_PROTO is not varied, because it overrules"):
        asked_variables(options)
