package pyroute.storm;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
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
import org.apache.storm.tuple.Tuple;

/**
 * The serializer of {@link RouterShellBolt}: tuples stay here, only (sequence, key) goes to the child and (sequence, task)
 * comes back. docs/storm-frames.md draws the frames.
 *
 * <p>Threads. The executor's (records) and ShellBolt's writer (heartbeats, other messages) append frames to a buffer, under its
 * lock and never for longer than it takes to copy them. A thread of our own swaps the buffer and writes it, with no lock: while a write waits, frames
 * gather for the next. ShellBolt's reader takes no lock at all: a slot per record in flight, filled before its frame is in the
 * buffer, emptied when its answer came. It emits and acks records itself; only other messages go through ShellBolt. So whatever waits, the child's output is read,
 * the child reads on, and the write ends.
 */
public final class RouterSerializer implements ISerializer {
    static final String TOKEN = "pyroute.router.token";
    static final String KEY = "pyroute.router.key";
    static final String STREAM = "pyroute.router.stream";

    private static final long serialVersionUID = 1L;
    private static final int IN_FLIGHT = 1 << 16;
    private static final int MOST = 1 << 20; // bytes that wait to be written
    private static final long LINGER = 60_000; // nanoseconds in which frames gather
    private static final int PATIENCE = 20; // rounds without a frame before the writer sleeps

    private static final int RECORD = 1;
    private static final int MESSAGE = 2;
    private static final int HEARTBEAT = 3;

    private static final int ROUTED = 1;
    private static final int DONE = 3;
    private static final int FAILED = 4;
    private static final int ALIVE = 5;

    private final transient AtomicReferenceArray<Tuple> inFlight = new AtomicReferenceArray<>(IN_FLIGHT);
    private transient Traffic traffic;
    private transient String stream;
    private transient OutputStream to;

    // Of the buffer's lock.
    private final transient Object lock = new Object();
    private transient byte[] buffer;
    private transient int used;
    private transient boolean asleep;
    private transient long stamp; // when a record was put into the buffer; 0: none is timed
    private volatile boolean closed;
    private volatile IOException failure;
    private volatile int written; // sequences below it are in the buffer, or sent
    private volatile long messages; // tuples that went as messages

    // Of the executor.
    private transient Map<String, Map<String, int[]>> positions;
    private transient String lastComponent;
    private transient String lastStream;
    private transient int[] lastPositions;
    private transient TopologyContext context;
    private transient String[] key;
    private transient int sequence;
    private transient long records;

    // Of ShellBolt's writer.
    private transient JsonSerializer json;
    private transient ByteArrayOutputStream text;

    // Of ShellBolt's reader.
    private transient Input from;
    private transient ShellMsg sync;
    private transient int emitted;

    @Override
    public void initialize(OutputStream processIn, InputStream processOut) {
        to = processIn;
        from = new Input(processOut);
        text = new ByteArrayOutputStream();
        json = new JsonSerializer();
        json.initialize(text, from);
        buffer = new byte[1 << 15];
        positions = new HashMap<>();
        sync = new ShellMsg();
        sync.setCommand("sync");
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
        JsonSerializer greeting = new JsonSerializer();
        greeting.initialize(to, from);
        from.text = true;
        Number pid = greeting.connect(conf, context);
        from.text = false;
        Thread writer = new Thread(this::write, "pyroute-frames");
        writer.setDaemon(true);
        writer.start();
        traffic.serializer = this;
        return pid;
    }

    void close() {
        closed = true;
        synchronized (lock) {
            lock.notifyAll();
        }
    }

    // Frames for the child -----------------------------------------------------------------------------------------

    /** Sends a record to the child; false where the tuple is none. By the executor. */
    boolean offer(Tuple tuple) {
        int[] where = positionsOf(tuple.getSourceComponent(), tuple.getSourceStreamId());
        if (where == null) {
            return false;
        }
        int slot = sequence & IN_FLIGHT - 1;
        while (inFlight.get(slot) != null) {
            pause();
        }
        List<Object> values = tuple.getValues();
        inFlight.set(slot, tuple);
        synchronized (lock) {
            gather();
            int start = used;
            try {
                room(7);
                buffer[used++] = RECORD;
                putInt(sequence);
                if (where.length == 1) {
                    putKey(values.get(where[0]));
                } else {
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
            if (stamp == 0 && sequence % Times.EVERY == 0) {
                stamp = System.nanoTime();
            }
            written = ++sequence;
            wake();
        }
        ++records;
        return true;
    }

    /** Waits while too much waits to be written; the lock is held, and let go meanwhile. */
    private void gather() {
        while (used > MOST) {
            try {
                lock.wait(100);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted while the child was behind", error);
            }
            alive();
        }
        alive();
    }

    private void alive() {
        IOException why = failure;
        if (why != null) {
            throw new IllegalStateException("child: expected it to read, got a closed pipe", why);
        }
    }

    private void pause() {
        alive();
        LockSupport.parkNanos(50_000);
        if (Thread.interrupted()) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while the child was behind");
        }
    }

    private void wake() {
        if (asleep) {
            asleep = false;
            lock.notifyAll();
        }
    }

    /** How many tuples that are no records went to the child; heartbeats and ids of tasks are no tuples. */
    long messages() {
        return messages;
    }

    /** Until so many have: what came later must not overtake them. By the executor. */
    void await(long count) {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (messages < count && !closed && System.nanoTime() < deadline) {
            pause();
        }
    }

    @Override
    public void writeBoltMsg(BoltMsg message) throws IOException {
        if (ShellBolt.HEARTBEAT_STREAM_ID.equals(message.getStream())) {
            synchronized (lock) {
                gather();
                room(1);
                buffer[used++] = HEARTBEAT;
                wake();
            }
            traffic.tell(records);
            return;
        }
        text.reset();
        json.writeBoltMsg(message);
        writeText();
        messages = messages + 1; // of this thread alone, and after the frame
    }

    /** Swaps the buffer and writes it, until the end. By a thread of its own. */
    private void write() {
        byte[] mine = new byte[buffer.length];
        int idle = 0;
        try {
            while (!closed) {
                int size;
                long since;
                synchronized (lock) {
                    while (used == 0 && idle > PATIENCE && !closed) {
                        asleep = true;
                        lock.wait();
                        idle = 0;
                    }
                    size = used;
                    since = stamp;
                    if (size > 0) {
                        byte[] full = buffer;
                        buffer = mine.length > 4 * MOST ? new byte[1 << 15] : mine;
                        mine = full;
                        used = 0;
                        stamp = 0;
                        lock.notifyAll();
                    }
                }
                if (size == 0) {
                    ++idle;
                } else {
                    idle = 0;
                    to.write(mine, 0, size);
                    to.flush();
                    if (since != 0) {
                        traffic.queued(System.nanoTime() - since);
                    }
                }
                LockSupport.parkNanos(LINGER);
            }
        } catch (IOException error) {
            failure = error;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
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
        synchronized (lock) {
            gather();
            room(5 + size);
            buffer[used++] = MESSAGE;
            putInt(size);
            System.arraycopy(data, 0, buffer, used, size);
            used += size;
            wake();
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
    }

    // Frames of the child ------------------------------------------------------------------------------------------

    /** Does what the child says of records, and gives back what ShellBolt has to see. */
    @Override
    public ShellMsg readShellMsg() throws IOException, NoOutputException {
        while (true) {
            int kind;
            try {
                kind = from.u8();
            } catch (EOFException error) {
                throw new NoOutputException("Pipe to subprocess seems to be broken! No output read.\nSerializer Exception:\n");
            }
            switch (kind) {
                case ROUTED:
                    emit(take(from.i32()), from.i32());
                    break;
                case DONE:
                    traffic.collector.ack(take(from.i32()));
                    break;
                case FAILED:
                    traffic.collector.fail(take(from.i32()));
                    break;
                case ALIVE:
                    return sync;
                case MESSAGE:
                    from.message(from.i32());
                    return json.readShellMsg();
                default:
                    throw new IOException("frame: expected kind 1 to 5, got " + kind);
            }
        }
    }

    private void emit(Tuple tuple, int task) {
        boolean timed = emitted++ % Times.EVERY == 0;
        long before = timed ? System.nanoTime() : 0;
        traffic.collector.emitDirect(task, stream, tuple, tuple.getValues());
        if (timed) {
            traffic.emitted(System.nanoTime() - before);
        }
        traffic.collector.ack(tuple);
    }

    private Tuple take(int number) throws IOException {
        int slot = number & IN_FLIGHT - 1;
        int age = written - number; // 1: the last one
        Tuple tuple = age > 0 && age <= IN_FLIGHT ? inFlight.get(slot) : null;
        if (tuple == null) {
            throw new IOException("sequence: expected one in flight, got " + (number & 0xFFFFFFFFL));
        }
        inFlight.set(slot, null);
        return tuple;
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
