from tuccl.search.trials.backend import RunningProfiles
from tuccl.search.trials.config import Config, ProcessProfile

A, B = (ProcessProfile(nthreads=count) for count in (64, 128))


def test_one_profile_is_up_at_a_time() -> None:
    running = RunningProfiles()
    starts = [running.use(profile) for profile in (A, A, B, A, ProcessProfile(), A)]
    assert starts == [True, False, True, True, True, True]
    running.end()
    assert [running.use(A), running.use(A)] == [True, False]


def test_a_schedule_across_hosts_needs_workers_of_its_profile_others_do_not() -> None:
    running = RunningProfiles()
    inside = Config("schedule:a", "LL", 8, 256)
    across = Config("phases:b", "LL", 8, 256, 1 << 20, settings=A.variables)
    calls = (A.default, inside, across, B.default, inside, across)
    assert [running.run(call) for call in calls] == [True, False, False, True, False, True]
