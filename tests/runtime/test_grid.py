"""The nodes that ranks find from their hosts."""

from collections.abc import Callable, Sequence

import pytest

from tests.runtime.builds import EXECUTOR, STAND_INS, compile_native, run

pytestmark = pytest.mark.long

Find = Callable[..., list[str]]
APART = "a node's ranks do not follow one another"
SHARED = "two of its ranks are in one process; across nodes it serves one rank per process"


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """Return what each rank finds; `hosts` has a character for each rank."""
    sources = [STAND_INS / "show_grid.cc", EXECUTOR / "grid.cc"]
    program = compile_native(tmp_path_factory.mktemp("grid") / "show", sources)

    def show(
        hosts: str,
        processes: Sequence[int] | None = None,
        not_blocking: Sequence[int] = (),
        teams: Sequence[int] = (0,),
    ) -> list[str]:
        numbers = range(len(hosts)) if processes is None else processes
        words = [
            f"{ord(host)}:{process}:{int(rank in not_blocking)}:{teams[rank % len(teams)]}"
            for rank, (host, process) in enumerate(zip(hosts, numbers, strict=True))
        ]
        return run(program, *words).splitlines()

    return show


def test_nodes_of_equal_size(find: Find) -> None:
    assert find("aabb") == ["2 2 0 0 0", "2 2 0 1 0", "2 2 1 0 2", "2 2 1 1 2"]
    assert find("aaabbb")[4] == "2 3 1 1 3"
    assert find("abc") == ["3 1 0 0 0", "3 1 1 0 1", "3 1 2 0 2"]
    assert find("a" * 8 + "b" * 8)[15] == "2 8 1 7 8"
    assert find("".join(chr(200 + node) * 8 for node in range(32)))[255] == "32 8 31 7 248"


def test_one_node_may_have_several_ranks_in_a_process_and_need_not_block(find: Find) -> None:
    assert find("aaa", [1, 1, 2], [0, 1, 2]) == ["1 3 0 0 0", "1 3 0 1 0", "1 3 0 2 0"]


def test_nodes_of_different_sizes(find: Find) -> None:
    assert find("aaab") == ["2 3 0 0 0", "2 3 0 1 0", "2 3 0 2 0", "2 1 1 0 3"]
    assert find("abbccc") == [
        *("3 1 0 0 0", "3 2 1 0 1", "3 2 1 1 1"),
        *("3 3 2 0 3", "3 3 2 1 3", "3 3 2 2 3"),
    ]
    assert find("aabb" + "c" * 8)[11] == "3 8 2 7 4"


def test_hosts_of_one_team_are_one_node(find: Find) -> None:
    """Trays of an NVL72; a team smaller than a host changes nothing."""
    assert find("aabb", teams=[4]) == [
        *("1 4 0 0 0 hosts", "1 4 0 1 0 hosts", "1 4 0 2 0 hosts", "1 4 0 3 0 hosts")
    ]
    assert find("aabbccdd", teams=[4])[5] == "2 4 1 1 4 hosts"
    assert find("aabb", teams=[2])[3] == "2 2 1 1 2"
    assert find("aabb", teams=[1])[3] == "2 2 1 1 2"
    # Ranks of a team may take turns between hosts, and share processes as on one host.
    assert find("abab", teams=[4])[3] == "1 4 0 3 0 hosts"
    assert find("aabb", [1, 1, 2, 2], [0], teams=[4])[3] == "1 4 0 3 0 hosts"
    assert find("abab" * 2, teams=[4]) == [APART] * 8


def test_ranks_that_are_told_different_teams_go_by_hosts(find: Find) -> None:
    assert find("aabb", teams=[4, 4, 4, 2])[3] == "2 2 1 1 2"
    assert find("aabb", teams=[4, 4, 4, 0])[3] == "2 2 1 1 2"


@pytest.mark.parametrize("hosts", ["abab", "abba", "aabbaa", "aba", "abcabc", "aabbaabb"])
def test_interleaved_nodes_are_refused_on_every_rank(find: Find, hosts: str) -> None:
    assert find(hosts) == [APART] * len(hosts)


def test_more_ranks_of_a_node_than_the_kernels_serve(find: Find) -> None:
    most = "it serves at most 32 ranks of a node"
    assert find("a" * 33) == [most] * 33
    assert find("a" * 33 + "b" * 33) == [most] * 66
    assert find("aa" + "b" * 33) == [most] * 35
    assert find("a" * 16 + "b" * 16)[31] == "2 16 1 15 16"


def test_two_ranks_in_one_process_are_refused(find: Find) -> None:
    assert find("aabb", [1, 2, 3, 3]) == [SHARED] * 4
    assert find("aabb", [1, 2, 1, 3]) == [SHARED] * 4
    assert find("ab", [5, 5]) == [SHARED] * 2


def test_one_rank_that_does_not_block_suffices(find: Find) -> None:
    for rank in range(4):
        answers = find("aabb", None, [rank])
        assert answers == ["it does not block; across nodes it serves communicators that do"] * 4
