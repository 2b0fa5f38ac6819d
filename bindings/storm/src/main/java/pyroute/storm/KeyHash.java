package pyroute.storm;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.util.List;
import java.util.UUID;

/**
 * The identity of a key, as {@code pr.keys} computes it: Spark's xxhash64 with seed 42.
 *
 * <p>Integers of every width, booleans, dates and timestamps are hashed as the eight bytes of a long; text and bytes as
 * their bytes; null leaves the seed as it is. In a key of several fields each hash is the seed of the next, and a null
 * is followed by the hash of the integer 1. Floating point and nested values are refused.
 *
 * <p>Allocates nothing for the usual types. Not for several threads: each takes its own.
 */
public final class KeyHash {
    /** The seed of every key. */
    public static final long SEED = 42;

    private static final long P1 = 0x9E3779B185EBCA87L;
    private static final long P2 = 0xC2B2AE3D27D4EB4FL;
    private static final long P3 = 0x165667B19E3779F9L;
    private static final long P4 = 0x85EBCA77C2B2AE63L;
    private static final long P5 = 0x27D4EB2F165667C5L;

    private byte[] bytes = new byte[256];
    private ByteBuffer words = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);

    /** The identity of the fields of a tuple at these positions. */
    public long key(List<Object> values, int[] positions) {
        if (positions.length == 1) {
            return value(values.get(positions[0]), SEED);
        }
        long hash = SEED;
        for (int position : positions) {
            Object each = values.get(position);
            hash = value(each, hash);
            if (each == null) {
                hash = ofLong(1, hash);
            }
        }
        return hash;
    }

    /** The hash of one value. */
    public long value(Object value, long seed) {
        if (value instanceof String) {
            return text((String) value, seed);
        }
        if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte) {
            return ofLong(((Number) value).longValue(), seed);
        }
        if (value == null) {
            return seed;
        }
        if (value instanceof byte[]) {
            byte[] data = (byte[]) value;
            return ofBytes(ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN), data.length, seed);
        }
        return seldom(value, seed);
    }

    private long seldom(Object value, long seed) {
        if (value instanceof UUID) {
            return text(value.toString(), seed);
        }
        return ofLong(asLong(value), seed);
    }

    /** The long that an integer-like value is hashed as. */
    static long asLong(Object value) {
        if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte) {
            return ((Number) value).longValue();
        }
        if (value instanceof Boolean) {
            return (Boolean) value ? 1 : 0;
        }
        try {
            if (value instanceof BigInteger) {
                return ((BigInteger) value).longValueExact();
            }
            if (value instanceof BigDecimal) {
                return ((BigDecimal) value).longValueExact();
            }
            if (value instanceof LocalDate) {
                return ((LocalDate) value).toEpochDay();
            }
            if (value instanceof Instant) {
                return microseconds((Instant) value);
            }
        } catch (ArithmeticException error) {
            throw new IllegalArgumentException("key: expected a whole number of 64 bits, got " + value, error);
        }
        throw new IllegalArgumentException(
                "key: expected an integer, text, bytes, a boolean, a date or null, got " + value.getClass().getName());
    }

    private static long microseconds(Instant value) {
        if (value.getNano() % 1000 != 0) {
            throw new IllegalArgumentException("key: expected whole microseconds, got " + value);
        }
        return Math.addExact(Math.multiplyExact(value.getEpochSecond(), 1_000_000L), value.getNano() / 1000);
    }

    /** The hash of a text's UTF-8; a lone surrogate counts as a question mark, as in Java's own encoder. */
    public long text(String text, long seed) {
        int size = text.length();
        if (size > bytes.length) {
            bytes = new byte[Math.max(size, 2 * bytes.length)];
            words = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        }
        byte[] to = bytes;
        for (int i = 0; i < size; ++i) {
            char c = text.charAt(i);
            if (c >= 0x80) {
                byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
                return ofBytes(ByteBuffer.wrap(encoded).order(ByteOrder.LITTLE_ENDIAN), encoded.length, seed);
            }
            to[i] = (byte) c;
        }
        return ofBytes(words, size, seed);
    }

    /** XXH64 of the eight bytes of a long. */
    public static long ofLong(long value, long seed) {
        return finish(word(seed + P5 + 8, value));
    }

    /** XXH64 of the first bytes of a little-endian buffer. */
    static long ofBytes(ByteBuffer data, int size, long seed) {
        long hash;
        int at = 0;
        if (size >= 32) {
            long a = seed + P1 + P2;
            long b = seed + P2;
            long c = seed;
            long d = seed - P1;
            for (; at <= size - 32; at += 32) {
                a = Long.rotateLeft(a + data.getLong(at) * P2, 31) * P1;
                b = Long.rotateLeft(b + data.getLong(at + 8) * P2, 31) * P1;
                c = Long.rotateLeft(c + data.getLong(at + 16) * P2, 31) * P1;
                d = Long.rotateLeft(d + data.getLong(at + 24) * P2, 31) * P1;
            }
            hash = Long.rotateLeft(a, 1) + Long.rotateLeft(b, 7) + Long.rotateLeft(c, 12) + Long.rotateLeft(d, 18);
            hash = merge(merge(merge(merge(hash, a), b), c), d);
        } else {
            hash = seed + P5;
        }
        hash += size;
        for (; at <= size - 8; at += 8) {
            hash = word(hash, data.getLong(at));
        }
        if (at <= size - 4) {
            hash ^= (data.getInt(at) & 0xFFFFFFFFL) * P1;
            hash = Long.rotateLeft(hash, 23) * P2 + P3;
            at += 4;
        }
        for (; at < size; ++at) {
            hash ^= (data.get(at) & 0xFFL) * P5;
            hash = Long.rotateLeft(hash, 11) * P1;
        }
        return finish(hash);
    }

    private static long merge(long hash, long lane) {
        return (hash ^ (Long.rotateLeft(lane * P2, 31) * P1)) * P1 + P4;
    }

    private static long word(long hash, long word) {
        return Long.rotateLeft(hash ^ (Long.rotateLeft(word * P2, 31) * P1), 27) * P1 + P4;
    }

    private static long finish(long hash) {
        hash ^= hash >>> 33;
        hash *= P2;
        hash ^= hash >>> 29;
        hash *= P3;
        return hash ^ (hash >>> 32);
    }
}
