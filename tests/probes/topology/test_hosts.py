from dataclasses import replace

import pytest

from probes.topology.graph import LinkKind, PairLimit
from probes.topology.hosts import folded, host_name, hosts_alike, split_hosts
from probes.topology.replicate import Network, replicate
from tests.probes.machines import shipped

CLUSTER = replicate(shipped(), 4, Network(1.7))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["node01", "node02", "node03"], "node[01-03]"),
        (["node01", "node03", "node04", "node07"], "node[01,03-04,07]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n09", "n010"], "n[09,010]"),
        (["n9", "n010"], "n[9,010]"),
        (["a1-ib", "a2-ib", "login"], "a[1-2]-ib, login"),
        (["only"], "only"),
        ([], ""),
    ],
)
def test_names_are_folded_as_slurm_writes_them(names: list[str], text: str) -> None:
    assert folded(names) == text


def test_a_host_keeps_what_is_inside_it() -> None:
    limit = PairLimit("n2/gpu0", "n2/gpu1", 20.0)
    hosts = split_hosts(replace(CLUSTER, limits=(limit,), hosts=("a", "", "c", "d")))
    assert list(hosts) == [0, 1, 2, 3]
    assert [host.name for host in hosts.values()] == ["a", "n1", "c", "d"]
    assert [len(host.limits) for host in hosts.values()] == [0, 0, 1, 0]
    assert all(len(host.links) == len(shipped().links) for host in hosts.values())
    assert host_name(CLUSTER, 3) == "n3"


def test_hosts_are_alike_by_fingerprint_not_by_figures_or_order() -> None:
    (all_alike,) = hosts_alike(CLUSTER)
    assert all_alike.nodes == (0, 1, 2, 3)
    noisy = tuple(
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s * 0.98)
        if link.src.startswith("n1/")
        else link
        for link in reversed(CLUSTER.links)
    )
    assert len(hosts_alike(replace(CLUSTER, links=noisy))) == 1
    lost = tuple(
        link
        for link in CLUSTER.links
        if not (link.kind is LinkKind.NVLINK and "n2/gpu5" in (link.src, link.dst))
    )
    groups = hosts_alike(replace(CLUSTER, links=lost))
    assert [group.nodes for group in groups] == [(0, 1, 3), (2,)]
