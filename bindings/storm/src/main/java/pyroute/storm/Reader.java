package pyroute.storm;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Reads what {@code to_bytes} wrote: "PYRT", kernel, version, payload, checksum. Every length is checked before anything
 * is allocated, every number before it is used.
 */
final class Reader {
    private final ByteBuffer from;

    /** Checks frame and checksum of bytes from begin to end. */
    Reader(byte[] data, int begin, int end, int kernel, int newest) {
        ByteBuffer all = ByteBuffer.wrap(data, begin, end - begin).slice().order(ByteOrder.LITTLE_ENDIAN);
        int size = all.remaining();
        check(size >= 16 && all.getInt(0) == 0x54525950, "data", "bytes written by to_bytes");
        check(all.getLong(size - 8) == KeyHash.ofBytes(all, size - 8, KeyHash.SEED), "data", "an intact checksum");
        check(all.get(4) == kernel, "data", "kernel " + kernel);
        check(all.get(5) >= 1 && all.get(5) <= newest, "data", "version 1 to " + newest);
        check(all.getShort(6) == 0, "data", "reserved zero");
        all.position(8).limit(size - 8);
        from = all.slice().order(ByteOrder.LITTLE_ENDIAN);
    }

    static void check(boolean holds, String name, String expected) {
        if (!holds) {
            throw new FormatException(name + ": expected " + expected + ", got other");
        }
    }

    private void need(long bytes) {
        check(bytes <= from.remaining(), "data", "more bytes");
    }

    int u8() {
        need(1);
        return from.get() & 0xFF;
    }

    long u64() {
        need(8);
        return from.getLong();
    }

    /** A number of 63 bits, at most {@code most}. */
    long varint(String name, long most) {
        long value = 0;
        for (int shift = 0; shift < 63; shift += 7) {
            int each = u8();
            value |= (long) (each & 0x7F) << shift;
            if ((each & 0x80) == 0) {
                check(value >= 0 && value <= most, name, "at most " + most);
                return value;
            }
        }
        throw new FormatException(name + ": expected a varint, got other");
    }

    int task(String name) {
        return (int) varint(name, Integer.MAX_VALUE);
    }

    /** A number of items, each of which takes at least so many more bytes. */
    int count(String name, int least) {
        return (int) varint(name, from.remaining() / least);
    }

    byte[] bytes(int size) {
        need(size);
        byte[] out = new byte[size];
        from.get(out);
        return out;
    }

    void skip(int size) {
        need(size);
        from.position(from.position() + size);
    }

    void end() {
        check(from.remaining() == 0, "data", "its end");
    }
}
