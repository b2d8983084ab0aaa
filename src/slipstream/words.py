"""Words of what people read."""


def count_of(count: int, noun: str) -> str:
    """A number with its noun.

    >>> count_of(1, "shard"), count_of(1200, "shard")
    ('1 shard', '1,200 shards')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
