"""Twin of csrc/hash.hpp: Spark's xxhash64 with seed 42, in plain integers modulo 2^64."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

SEED = 42
MASK = 2**64 - 1
P1 = 0x9E3779B185EBCA87
P2 = 0xC2B2AE3D27D4EB4F
P3 = 0x165667B19E3779F9
P4 = 0x85EBCA77C2B2AE63
P5 = 0x27D4EB2F165667C5


def rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def signed(x: int) -> int:
    """Read 64 bits as a bigint."""
    x &= MASK
    return x - 2**64 if x >= 2**63 else x


def words(data: bytes, width: int) -> Iterator[int]:
    for at in range(0, len(data), width):
        yield int.from_bytes(data[at : at + width], "little")


def round_(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def stripes(data: bytes, seed: int) -> int:
    """Mix whole stripes of 32 bytes in four lanes."""
    lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
    for i, word in enumerate(words(data, 8)):
        lanes[i % 4] = round_(lanes[i % 4], word)
    h = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    for lane in lanes:
        h = ((h ^ round_(0, lane)) * P1 + P4) & MASK
    return h


def hash_bytes(data: bytes, seed: int = SEED) -> int:
    whole32, whole8, whole4 = (len(data) // width * width for width in (32, 8, 4))
    h = stripes(data[:whole32], seed) if whole32 else seed + P5
    h = (h + len(data)) & MASK
    for word in words(data[whole32:whole8], 8):
        h = (rotate(h ^ round_(0, word), 27) * P1 + P4) & MASK
    for word in words(data[whole8:whole4], 4):
        h = (rotate(h ^ word * P1 & MASK, 23) * P2 + P3) & MASK
    for byte in data[whole4:]:
        h = rotate(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def hash_int(value: int, seed: int = SEED) -> int:
    return hash_bytes((value & MASK).to_bytes(8, "little"), seed)


def unhash_int(key: int, seed: int = SEED) -> int:
    """Return the bigint whose hash_int under this seed is the key."""
    h = key ^ key >> 32
    h = h * pow(P3, -1, 2**64) & MASK
    h ^= h >> 29 ^ h >> 58
    h = h * pow(P2, -1, 2**64) & MASK
    h ^= h >> 33
    h = rotate((h - P4) * pow(P1, -1, 2**64) & MASK, 64 - 27) ^ (seed + P5 + 8) & MASK
    h = rotate(h * pow(P1, -1, 2**64) & MASK, 64 - 31)
    return signed(h * pow(P2, -1, 2**64))


def number_of(value: object) -> int:
    """Return what a value that is like an integer counts as: days, microseconds, or itself."""
    if isinstance(value, datetime):  # without a zone it is taken as it reads
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    assert isinstance(value, int | Decimal)
    assert value == int(value)
    assert -(2**63) <= value < 2**63
    return int(value)


def hash_value(value: object, seed: int = SEED) -> int:
    if value is None:
        return seed
    if isinstance(value, bytes):
        return hash_bytes(value, seed)
    if isinstance(value, str | UUID):
        return hash_bytes(str(value).encode(), seed)
    return hash_int(number_of(value), seed)


def key(*columns: object) -> int:
    """Return the id of one value, or of several columns that are one key."""
    if len(columns) == 1:
        return hash_value(columns[0])
    h = SEED
    for value in columns:
        h = hash_value(value, h)
        if value is None:
            h = hash_int(1, h)
    return h


def keys(values: list[object]) -> list[int]:
    """Return the ids of a list in which a tuple is a key of several columns."""
    return [key(*value) if isinstance(value, tuple) else key(value) for value in values]
