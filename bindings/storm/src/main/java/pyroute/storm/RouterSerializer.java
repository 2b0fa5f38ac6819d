package pyroute.storm;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.LockSupport;
import org.apache.storm.multilang.BoltMsg;
import org.apache.storm.multilang.ISerializer;
import org.apache.storm.multilang.JsonSerializer;
import org.apache.storm.multilang.NoOutputException;
import org.apache.storm.multilang.ShellMsg;
import org.apache.storm.multilang.SpoutMsg;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.task.TopologyContext;

/**
 * The serializer of {@link RouterShellBolt}: tuples stay here, only (sequence, key) goes to the child and (sequence, task)
 * comes back. docs/storm-frames.md draws the frames.
 *
 * <p>Two threads use it, ShellBolt's writer and its reader, and they share no lock: a slot per record in flight, which the
 * writer fills before the frame is written and the reader empties after the answer was used. The writer may wait in a
 * write or for a slot; the reader waits for input alone, so the child can always write, and then always reads again.
 *
 * <p>Frames are written when ShellBolt's queue is empty or the buffer is full: whatever is executed but not yet written
 * is in that queue, and the writer takes it next.
 */
public final class RouterSerializer implements ISerializer {
    static final String TOKEN = "pyroute.router.token";
    static final String KEY = "pyroute.router.key";
    static final String STREAM = "pyroute.router.stream";

    private static final long serialVersionUID = 1L;
    private static final int IN_FLIGHT = 1 << 16;
    private static final int FULL = 1 << 14;

    private static final int RECORD = 1;
    private static final int MESSAGE = 2;
    private static final int HEARTBEAT = 3;

    private static final int ROUTED = 1;
    private static final int DONE = 3;
    private static final int FAILED = 4;
    private static final int ALIVE = 5;

    private final transient AtomicReferenceArray<BoltMsg> inFlight = new AtomicReferenceArray<>(IN_FLIGHT);
    private transient Traffic traffic;
    private transient String stream;

    // Of the writer.
    private transient OutputStream to;
    private transient JsonSerializer json;
    private transient ByteArrayOutputStream text;
    private transient Map<String, Map<String, int[]>> positions;
    private transient String lastComponent;
    private transient String lastStream;
    private transient int[] lastPositions;
    private transient TopologyContext context;
    private transient String[] key;
    private transient byte[] buffer;
    private transient int used;
    private transient int sequence;
    private transient long taken;
    private volatile int written; // sequences below it were sent

    // Of the reader.
    private transient Input from;
    private transient ShellMsg emit;
    private transient ShellMsg ack;
    private transient List<String> anchors;
    private transient boolean ackNext;

    @Override
    public void initialize(OutputStream processIn, InputStream processOut) {
        to = processIn;
        from = new Input(processOut);
        text = new ByteArrayOutputStream();
        json = new JsonSerializer();
        json.initialize(text, from);
        buffer = new byte[2 * FULL];
        positions = new HashMap<>();
        emit = new ShellMsg();
        emit.setCommand("emit");
        emit.setNeedTaskIds(false);
        anchors = new ArrayList<>();
        anchors.add(null);
        emit.setAnchors(anchors);
        ack = new ShellMsg();
    }

    /** The greeting is the text of multilang, as every child knows it; frames follow. */
    @Override
    public Number connect(Map<String, Object> conf, TopologyContext context) throws IOException, NoOutputException {
        this.context = context;
        traffic = Traffic.of(conf.get(TOKEN));
        List<?> names = (List<?>) conf.get(KEY);
        key = new String[names.size()];
        for (int i = 0; i < key.length; ++i) {
            key[i] = (String) names.get(i);
        }
        stream = (String) conf.get(STREAM);
        emit.setStream(stream);
        OutputStream plain = to;
        JsonSerializer greeting = new JsonSerializer();
        greeting.initialize(plain, from);
        from.text = true;
        try {
            return greeting.connect(conf, context);
        } finally {
            from.text = false;
        }
    }

    // The writer ------------------------------------------------------------------------------------------------

    @Override
    public void writeBoltMsg(BoltMsg message) throws IOException {
        if (ShellBolt.HEARTBEAT_STREAM_ID.equals(message.getStream())) {
            room(1);
            buffer[used++] = HEARTBEAT;
            flush();
            traffic.tell();
            return;
        }
        traffic.leaves(taken++);
        int[] where = positionsOf(message.getComp(), message.getStream());
        if (where == null) {
            text.reset();
            json.writeBoltMsg(message);
            writeText();
        } else {
            record(message, where);
        }
        if (used >= FULL || taken >= traffic.executed.get()) {
            flush();
        }
    }

    private void record(BoltMsg message, int[] where) throws IOException {
        int slot = sequence & IN_FLIGHT - 1;
        if (inFlight.get(slot) != null) {
            flush();
            while (inFlight.get(slot) != null) {
                LockSupport.parkNanos(50_000);
                if (Thread.interrupted()) {
                    throw new IOException("interrupted while the child was behind");
                }
            }
        }
        int start = used;
        try {
            room(5);
            buffer[used++] = RECORD;
            putInt(sequence);
            List<Object> values = message.getTuple();
            if (where.length == 1) {
                putKey(values.get(where[0]));
            } else {
                room(2);
                buffer[used++] = 6;
                buffer[used++] = (byte) where.length;
                for (int each : where) {
                    putKey(values.get(each));
                }
            }
        } catch (RuntimeException error) {
            used = start; // no half of a frame
            throw error;
        }
        inFlight.set(slot, message);
        written = ++sequence;
    }

    private void putKey(Object value) {
        if (value instanceof String) {
            putText((String) value);
        } else if (value == null) {
            room(1);
            buffer[used++] = 0;
        } else if (value instanceof byte[]) {
            putBytes(3, (byte[]) value);
        } else if (value instanceof java.util.UUID) {
            putText(value.toString());
        } else {
            boolean truth = value instanceof Boolean;
            long number = KeyHash.asLong(value);
            room(9);
            if (truth) {
                buffer[used++] = (byte) (4 + number);
            } else {
                buffer[used++] = 1;
                putInt((int) number);
                putInt((int) (number >>> 32));
            }
        }
    }

    private void putText(String value) {
        int size = value.length();
        room(5 + size);
        byte[] out = buffer;
        int at = used + 5;
        for (int i = 0; i < size; ++i) {
            char c = value.charAt(i);
            if (c >= 0x80) {
                putBytes(2, value.getBytes(StandardCharsets.UTF_8));
                return;
            }
            out[at + i] = (byte) c;
        }
        buffer[used++] = 2;
        putInt(size);
        used += size;
    }

    private void putBytes(int kind, byte[] data) {
        room(5 + data.length);
        buffer[used++] = (byte) kind;
        putInt(data.length);
        System.arraycopy(data, 0, buffer, used, data.length);
        used += data.length;
    }

    private void putInt(int value) {
        buffer[used] = (byte) value;
        buffer[used + 1] = (byte) (value >>> 8);
        buffer[used + 2] = (byte) (value >>> 16);
        buffer[used + 3] = (byte) (value >>> 24);
        used += 4;
    }

    private void room(int size) {
        if (buffer.length - used < size) {
            buffer = java.util.Arrays.copyOf(buffer, Math.max(2 * buffer.length, used + size));
        }
    }

    /** What the JSON serializer wrote, as a frame: without the line that ends a message. */
    private void writeText() {
        byte[] data = text.toByteArray();
        int size = data.length - 5;
        room(5 + size);
        buffer[used++] = MESSAGE;
        putInt(size);
        System.arraycopy(data, 0, buffer, used, size);
        used += size;
    }

    private void flush() throws IOException {
        int size = used;
        used = 0;
        to.write(buffer, 0, size);
        to.flush();
        if (buffer.length > 64 * FULL) {
            buffer = new byte[2 * FULL];
        }
    }

    /** Where the key is in the tuples of a stream; null where it has none: control streams, ticks. */
    private int[] positionsOf(String component, String name) {
        if (component == lastComponent && name == lastStream) { // the same objects, nearly always
            return lastPositions;
        }
        Map<String, int[]> streams = positions.get(component);
        if (streams == null) {
            streams = new HashMap<>();
            positions.put(component, streams);
        }
        if (!streams.containsKey(name)) {
            streams.put(name, find(component, name));
        }
        lastComponent = component;
        lastStream = name;
        lastPositions = streams.get(name);
        return lastPositions;
    }

    private int[] find(String component, String name) {
        if (component == null || name.startsWith("__") || component.startsWith("__")) {
            return null;
        }
        List<String> declared = context.getComponentOutputFields(component, name).toList();
        int[] out = new int[key.length];
        for (int i = 0; i < key.length; ++i) {
            out[i] = declared.indexOf(key[i]);
            if (out[i] < 0) {
                return null;
            }
        }
        return out;
    }

    @Override
    public void writeSpoutMsg(SpoutMsg message) {
        throw new UnsupportedOperationException("RouterSerializer: expected a bolt, got a spout");
    }

    @Override
    public void writeTaskIds(List<Integer> taskIds) throws IOException {
        text.reset();
        json.writeTaskIds(taskIds);
        writeText();
        flush();
    }

    // The reader ------------------------------------------------------------------------------------------------

    @Override
    public ShellMsg readShellMsg() throws IOException, NoOutputException {
        if (ackNext) {
            ackNext = false;
            return ack;
        }
        int kind;
        try {
            kind = from.u8();
        } catch (EOFException error) {
            throw new NoOutputException("Pipe to subprocess seems to be broken! No output read.\nSerializer Exception:\n");
        }
        switch (kind) {
            case ROUTED: {
                BoltMsg message = take(from.i32());
                emit.setTask(from.i32());
                emit.setTuple(message.getTuple());
                anchors.set(0, message.getId());
                settle("ack", message);
                ackNext = true;
                return emit;
            }
            case DONE:
                return settle("ack", take(from.i32()));
            case FAILED:
                return settle("fail", take(from.i32()));
            case ALIVE: {
                ShellMsg sync = new ShellMsg();
                sync.setCommand("sync");
                return sync;
            }
            case MESSAGE:
                from.message(from.i32());
                return json.readShellMsg();
            default:
                throw new IOException("frame: expected kind 1 to 5, got " + kind);
        }
    }

    private ShellMsg settle(String command, BoltMsg message) {
        ack.setCommand(command);
        ack.setId(message.getId());
        return ack;
    }

    private BoltMsg take(int number) throws IOException {
        int slot = number & IN_FLIGHT - 1;
        int age = written - number; // 1: the last one
        BoltMsg message = age > 0 && age <= IN_FLIGHT ? inFlight.get(slot) : null;
        if (message == null) {
            throw new IOException("sequence: expected one in flight, got " + (number & 0xFFFFFFFFL));
        }
        inFlight.set(slot, null);
        return message;
    }

    /** The child's output: numbers of frames, and the text of messages for the JSON serializer, which reads no further. */
    private static final class Input extends InputStream {
        private static final byte[] END = "\nend\n".getBytes(StandardCharsets.US_ASCII);
        private static final int LONGEST = 1 << 28;

        private final InputStream from;
        private final byte[] block = new byte[1 << 16];
        private int at;
        private int end;
        private byte[] given = new byte[0]; // of the message that is being read
        private int givenAt;
        boolean text; // the greeting: messages have no frame

        Input(InputStream from) {
            this.from = from;
        }

        int u8() throws IOException {
            if (at == end) {
                int size = from.read(block, 0, block.length);
                if (size <= 0) {
                    throw new EOFException("the child closed its output");
                }
                at = 0;
                end = size;
            }
            return block[at++] & 0xFF;
        }

        int i32() throws IOException {
            if (end - at >= 4) {
                int value = (block[at] & 0xFF) | (block[at + 1] & 0xFF) << 8 | (block[at + 2] & 0xFF) << 16 | block[at + 3] << 24;
                at += 4;
                return value;
            }
            return u8() | u8() << 8 | u8() << 16 | u8() << 24;
        }

        void message(int size) throws IOException {
            if (size < 0 || size > LONGEST) {
                throw new IOException("frame: expected at most " + LONGEST + " bytes, got " + (size & 0xFFFFFFFFL));
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream(Math.min(size, 1 << 20) + END.length);
            for (int left = size; left > 0; ) {
                out.write(u8());
                --left;
                int more = Math.min(left, end - at);
                out.write(block, at, more);
                at += more;
                left -= more;
            }
            out.write(END, 0, END.length);
            given = out.toByteArray();
            givenAt = 0;
        }

        /** Up to the end of the next message of the greeting. */
        private void line() throws IOException {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            int matched = 0;
            while (matched < END.length) {
                int c = u8();
                out.write(c);
                matched = c == END[matched] ? matched + 1 : c == END[0] ? 1 : 0;
            }
            given = out.toByteArray();
            givenAt = 0;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
        }

        @Override
        public int read(byte[] to, int offset, int length) throws IOException {
            if (givenAt == given.length && text) {
                try {
                    line();
                } catch (EOFException error) {
                    return -1;
                }
            }
            int size = Math.min(length, given.length - givenAt);
            if (size <= 0) {
                return -1;
            }
            System.arraycopy(given, givenAt, to, offset, size);
            givenAt += size;
            return size;
        }
    }
}
