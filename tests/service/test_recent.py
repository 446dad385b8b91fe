"""The cache drops what was not used for longest, by number and by size."""

from everlearn.service.recent import RecentlyUsed


def test_least_recently_used_leaves():
    cache = RecentlyUsed(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_sizes_count():
    cache = RecentlyUsed(10, most_bytes=100)
    for name, size in (("a", 60), ("b", 30), ("c", 30)):
        cache.put(name, name, size)
    assert (len(cache), cache.bytes, cache.get("a")) == (2, 60, None)
    cache.put("b", "b", 5)
    assert cache.bytes == 35
    cache.put("huge", "h", 1000)
    assert (len(cache), cache.get("huge")) == (1, "h")
    cache.pop("huge")
    cache.pop("huge")
    assert (len(cache), cache.bytes) == (0, 0)
