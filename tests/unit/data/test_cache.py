from replay_examples import numbered

from yamame.data.codec import named_arrays
from yamame.data.store import TrajectoryCache


def size_of_one() -> int:
    cache = TrajectoryCache(1 << 20)
    cache.put(0, numbered(4))
    return cache.num_bytes


def test_the_least_recently_used_goes_first() -> None:
    cache = TrajectoryCache(2 * size_of_one())
    cache.put(0, numbered(4))
    cache.put(1, numbered(4))
    assert cache.get(0) is not None
    cache.put(2, numbered(4))
    assert [cache.get(number) is not None for number in range(3)] == [True, False, True]


def test_bytes_are_counted_whatever_comes_and_goes() -> None:
    one = size_of_one()
    assert one >= sum(array.nbytes for array in named_arrays(numbered(4)).values())
    cache = TrajectoryCache(3 * one)
    for number in range(7):
        cache.put(number % 4, numbered(4))
        assert cache.num_bytes == len(cache) * one <= 3 * one
    cache.discard(6 % 4)
    cache.discard(99)
    assert cache.num_bytes == len(cache) * one == 2 * one


def test_what_is_too_large_is_not_held() -> None:
    cache = TrajectoryCache(size_of_one())
    cache.put(0, numbered(4))
    cache.put(1, numbered(5))
    assert cache.get(1) is None
    assert cache.get(0) is not None
