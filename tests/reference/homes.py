"""Twin of csrc/table/engine_home.hpp: the task each engine itself gives a key."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from reference.keys import number_of

MASK = 2**32 - 1
SPARK_INTS = ("boolean", "tinyint", "smallint", "int", "date")
KAFKA_WIDTHS = {"long": 8, "integer": 4, "short": 2}


def rotate(x: int, by: int) -> int:
    x &= MASK
    return (x << by | x >> (32 - by)) & MASK


def signed(x: int) -> int:
    """Read 32 bits as a Java int."""
    x &= MASK
    return x - 2**32 if x >= 2**31 else x


def blocks(data: bytes) -> Iterator[int]:
    for at in range(0, len(data) // 4 * 4, 4):
        yield int.from_bytes(data[at : at + 4], "little")


def murmur3_words(words: Sequence[int], size: int, seed: int) -> int:
    h = seed
    for word in words:
        h ^= rotate(word * 0xCC9E2D51, 15) * 0x1B873593 & MASK
        h = (rotate(h, 13) * 5 + 0xE6546B64) & MASK
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def murmur3(value: object, type_: str, seed: int) -> int:
    """Return Spark's variant: each byte after the last whole word is a word of its own, signed."""
    if value is None:
        return seed
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        tail = data[len(data) // 4 * 4 :]
        ends = [byte - 256 if byte > 127 else byte for byte in tail]
        return murmur3_words([*blocks(data), *ends], len(data), seed)
    number = number_of(value)
    if type_ in SPARK_INTS:
        return murmur3_words([number], 4, seed)
    return murmur3_words([number & MASK, number >> 32 & MASK], 8, seed)


def spark(values: Sequence[object], types: Sequence[str], tasks: int) -> int:
    h = 42
    for value, type_ in zip(values, types, strict=True):
        h = murmur3(value, type_, h)
    return signed(h) % tasks


def polynomial(numbers: Sequence[int], start: int) -> int:
    h = start
    for number in numbers:
        h = (31 * h + number) & MASK
    return h


def java_hash(value: object, type_: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, str):
        data = value.encode("utf-16-le")
        return polynomial([data[i] | data[i + 1] << 8 for i in range(0, len(data), 2)], 0)
    if isinstance(value, bytes):
        return polynomial([byte - 256 if byte > 127 else byte for byte in value], 1)
    assert isinstance(value, int)
    return (value ^ value >> 32 if type_ == "long" else value) & MASK


def storm(values: Sequence[object], types: Sequence[str], tasks: int) -> int:
    hashes = [java_hash(value, type_) for value, type_ in zip(values, types, strict=True)]
    return signed(polynomial(hashes, 1)) % tasks


def murmur2(data: bytes) -> int:
    m = 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for word in blocks(data):
        word = word * m & MASK
        h = h * m & MASK ^ (word ^ word >> 24) * m & MASK
    tail = data[len(data) // 4 * 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & MASK
    h = (h ^ h >> 13) * m & MASK
    return h ^ h >> 15


def kafka(value: object, serializer: str, tasks: int) -> int:
    if serializer in KAFKA_WIDTHS:
        assert isinstance(value, int)
        data = value.to_bytes(KAFKA_WIDTHS[serializer], "big", signed=True)
    elif isinstance(value, bytes):
        data = value
    else:
        assert isinstance(value, str | UUID)
        data = str(value).encode()
    return (murmur2(data) & 0x7FFFFFFF) % tasks


def flink(
    values: Sequence[object], types: Sequence[str], tasks: int, max_parallelism: int = 128
) -> int:
    hashes = [java_hash(value, type_) for value, type_ in zip(values, types, strict=True)]
    code = signed(murmur3_words([polynomial(hashes, 0)], 4, 0))
    group = (0 if code == -(2**31) else abs(code)) % max_parallelism
    return group * tasks // max_parallelism
