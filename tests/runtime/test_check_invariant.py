"""The random calls of scripts/check/check_invariant.py, which needs GPUs to make them."""

from check_invariant import DRAWN, MOST_SHIFT, TYPES, Found, is_kept, random_calls

LARGEST = 1 << 16


def test_calls_stay_within_the_largest_and_are_the_same_on_all_ranks() -> None:
    calls = list(random_calls(1, 4000, 4, LARGEST))
    assert calls == list(random_calls(1, 4000, 4, LARGEST))
    assert calls != list(random_calls(2, 4000, 4, LARGEST))
    for call in calls:
        size = 4 if call.data_type == "float32" else 2
        assert 1 <= call.count * size * (4 if call.scatters else 1) <= LARGEST
        assert 0 <= call.phase < DRAWN
        assert max(call.send_shift, call.receive_shift) < MOST_SHIFT


def test_calls_are_of_all_kinds() -> None:
    calls = list(random_calls(1, 2000, 4, LARGEST))
    assert {call.data_type for call in calls} == set(TYPES)
    assert any(call.count == 1 for call in calls)
    assert any(call.count > 16000 for call in calls)
    for member in ("scatters", "in_place", "from_graph"):
        assert {getattr(call, member) for call in calls} == {False, True}
    assert {call.send_shift for call in calls} == set(range(MOST_SHIFT))


def test_a_moved_sum_or_a_call_of_nccls_is_no_kept_table() -> None:
    good = Found(calls=8, elements=100, made=8, executor_calls=8)
    assert is_kept(good)
    assert not is_kept(Found(calls=8, elements=100, made=8, executor_calls=7))
    assert not is_kept(Found(calls=8, elements=100, made=8, executor_calls=8, wrong_elements=1))
    assert not is_kept(Found())
    total = Found(first_wrong="rank 1")
    total.add(good)
    total.add(good)
    assert (total.calls, total.elements, total.executor_calls) == (16, 200, 16)
    assert total.first_wrong == "rank 1"
