from tuccl.backends.running_profiles import RunningProfiles
from tuccl.search.config import ProcessProfile

STOCK = ProcessProfile()
A, B, C = (ProcessProfile(nthreads=count) for count in (64, 128, 256))


def test_two_profiles_stay_up_and_the_one_used_longest_ago_goes() -> None:
    running = RunningProfiles()
    starts = [running.use(profile) for profile in (A, A, B, A, C, A, B)]
    assert starts == [True, False, True, False, True, False, True]


def test_stock_stays_up_once_it_was_started() -> None:
    running = RunningProfiles()
    assert [running.use(profile) for profile in (STOCK, A, B, C, STOCK)] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_who_has_to_go_is_known_before() -> None:
    running = RunningProfiles()
    assert running.displaced(A) is None
    running.use(A)
    assert running.displaced(B) is None
    running.use(B)
    running.use(A)
    assert running.displaced(C) == B
    assert running.displaced(A) is None
    assert running.displaced(STOCK) is None
