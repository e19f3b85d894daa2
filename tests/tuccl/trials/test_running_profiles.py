from tuccl.trials.config import ProcessProfile
from tuccl.trials.running_profiles import RunningProfiles

A, B = (ProcessProfile(nthreads=count) for count in (64, 128))


def test_one_profile_is_up_at_a_time() -> None:
    running = RunningProfiles()
    starts = [running.use(profile) for profile in (A, A, B, A, ProcessProfile(), A)]
    assert starts == [True, False, True, True, True, True]
