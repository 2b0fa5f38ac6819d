package golden;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;

/** The keys that are put to the engines. */
final class Keys {

    private static final List<Long> LONGS =
            List.of(
                    Long.MIN_VALUE,
                    Long.MIN_VALUE + 1,
                    -(1L << 53) - 1,
                    -(1L << 32) - 1,
                    -(1L << 32),
                    -(1L << 31) - 1,
                    -(1L << 31),
                    -1000L,
                    -2L,
                    -1L,
                    0L,
                    1L,
                    2L,
                    5L,
                    42L,
                    127L,
                    128L,
                    1000L,
                    1_000_000_000L,
                    (1L << 31) - 1,
                    1L << 31,
                    (1L << 32) - 1,
                    1L << 32,
                    (1L << 32) + 1,
                    (1L << 53) + 1,
                    (1L << 60) + 1,
                    0x0123456789ABCDEFL,
                    Long.MAX_VALUE);
    private static final List<Integer> INTS =
            List.of(
                    Integer.MIN_VALUE,
                    -65537,
                    -1000,
                    -2,
                    -1,
                    0,
                    1,
                    2,
                    5,
                    42,
                    127,
                    128,
                    1000,
                    65536,
                    16_777_217,
                    1_000_000_000,
                    Integer.MAX_VALUE);
    private static final List<Integer> SHORTS =
            List.of(-32768, -129, -1, 0, 1, 5, 128, 255, 256, 32767);
    private static final List<Integer> BYTES = List.of(-128, -127, -1, 0, 1, 5, 126, 127);

    /**
     * Text in one to four bytes of UTF-8 a character, composed and decomposed, with NUL and beyond
     * the BMP.
     */
    private static final List<String> TEXTS =
            List.of(
                    "a",
                    "A",
                    "5",
                    "-1",
                    "null",
                    "true",
                    "user-1",
                    "user-2",
                    " ",
                    "a ",
                    "\n",
                    "\"\\/",
                    "\u007f",
                    "\u0080",
                    "\0",
                    "a\0b",
                    "\0a",
                    "\u00e9",
                    "e\u0301",
                    "\u00df",
                    "\u03a9\u03bc\u03ad\u03b3\u03b1",
                    "\u041f\u0440\u0438\u0432\u0435\u0442",
                    "\u05e9\u05dc\u05d5\u05dd",
                    "\u65e5\u672c\u8a9e",
                    "\ud55c\uad6d\uc5b4",
                    "\u20ac",
                    "\u2028",
                    "\ufeff",
                    "\uffff",
                    "\ud83d\ude00",
                    "a\ud83d\ude00",
                    "\ud83d\ude00\ud83d\ude00",
                    "\ud835\udd18\ud835\udd2b",
                    "\ud83d\udc69\u200d\ud83d\udc67",
                    "\udbff\udfff",
                    "the quick brown fox jumps over the lazy dog");

    private Keys() {}

    static List<Value> strings() {
        List<Value> keys = new ArrayList<>();
        IntStream.rangeClosed(0, 24).forEach(n -> keys.add(Value.of(ascii(n))));
        keys.add(Value.of(ascii(100)));
        TEXTS.forEach(text -> keys.add(Value.of(text)));
        return keys;
    }

    static List<Value> longs() {
        return LONGS.stream().map(Value::of).toList();
    }

    static List<Value> ints() {
        return INTS.stream().map(Value::of).toList();
    }

    static List<Value> shorts() {
        return SHORTS.stream().map(v -> Value.of(v.shortValue())).toList();
    }

    static List<Value> bytes() {
        return BYTES.stream().map(v -> Value.of(v.byteValue())).toList();
    }

    static List<Value> booleans() {
        return List.of(Value.of(false), Value.of(true));
    }

    /** Byte arrays of every length to 24, most bytes negative; invalid UTF-8; single bytes. */
    static List<Value> byteArrays() {
        List<Value> keys = new ArrayList<>();
        IntStream.rangeClosed(0, 24).forEach(n -> keys.add(Value.of(highBytes(n))));
        for (int b : new int[] {0x00, 0x61, 0x7f, 0x80, 0xff}) {
            keys.add(Value.of(new byte[] {(byte) b}));
        }
        keys.add(Value.of(new byte[] {(byte) 0xc3, 0x28}));
        keys.add(Value.of(new byte[] {(byte) 0xed, (byte) 0xa0, (byte) 0x80}));
        return keys;
    }

    static List<Value> uuids() {
        return List.of(
                Value.of(new UUID(0, 0)),
                Value.of(new UUID(-1, -1)),
                Value.of(new UUID(0x0123456789ABCDEFL, 0xFEDCBA9876543210L)),
                Value.of(UUID.fromString("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
                Value.of(UUID.fromString("f47ac10b-58cc-4372-a567-0e02b2c3d479")),
                Value.of(UUID.fromString("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")));
    }

    /** Keys of two and three fields, without nulls. */
    static List<List<Value>> composites() {
        String fox = "the quick brown fox";
        String grin = "\ud83d\ude00";
        return List.of(
                row("a", 5L),
                row(5L, "a"),
                row("a", 5),
                row(5, "a"),
                row("x", "y"),
                row("y", "x"),
                row("", ""),
                row("xy", ""),
                row("", "xy"),
                row(0L, 0L),
                row(1L, -1L),
                row(-1L, 1L),
                row(Long.MIN_VALUE, 1),
                row(1, 2),
                row(2, 1),
                row(-1, -1),
                row(true, false),
                row(false, true),
                row(true, "t"),
                row((short) -1, (byte) -1),
                row((byte) 127, (short) -32768),
                row(grin, 1L << 60),
                row("\u65e5", grin),
                row("x", "y", "z"),
                row("z", "y", "x"),
                row("", "", ""),
                row(1, 2, 3),
                row(1L, 2L, 3L),
                row("a", 1L, true),
                row(false, (byte) -128, (short) 7),
                row(fox, -1, Long.MAX_VALUE),
                row(grin, (short) 300, fox),
                row((byte) 0, 0, 0L));
    }

    private static List<Value> row(Object... fields) {
        return List.of(fields).stream().map(Value::of).toList();
    }

    private static String ascii(int length) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < length; i++) {
            text.append((char) (33 + (7 * i + length) % 94));
        }
        return text.toString();
    }

    private static byte[] highBytes(int length) {
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) {
            bytes[i] = (byte) (128 + (37 * i + 11 * length) % 144);
        }
        return bytes;
    }
}
