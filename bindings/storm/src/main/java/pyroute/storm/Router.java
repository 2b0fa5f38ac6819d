package pyroute.storm;

import java.util.Arrays;
import java.util.List;

/**
 * Which task gets a record: a table over a home, at one version; equal to {@code pr.Router} for every key.
 *
 * <p>Reads what {@code Router.to_bytes} wrote. The home is a ring (one array lookup by the top bits of the key's
 * identity) or Storm's own fields grouping ({@code pr.StormHash}). The table is open addressing on the 64-bit identity,
 * at most half full. Immutable; a lookup allocates nothing.
 */
public final class Router {
    private static final int RING = 6;
    private static final int ENGINE_HOME = 8;
    private static final int ROUTER = 9;
    private static final int STORM = 1;
    private static final int MOST_BITS = 22;

    private final long version;
    private final int[] tasks; // ascending; all that follows has places in it
    private final int[] owners; // null: the home is fields grouping over homeTasks
    private final int shift;
    private final int homeTasks;
    private final long[] slotIds;
    private final int[] slotTargets; // a place; -1 - position for a split key; FREE
    private final int tabled;
    private final int[][] splitTasks;

    private static final int FREE = Integer.MIN_VALUE;

    private Router(Reader from) {
        version = from.varint("version", Long.MAX_VALUE);
        int kind = from.u8();
        Reader.check(kind <= 1, "home", "0 or 1");
        byte[] home = from.bytes(from.count("home", 1));
        if (kind == 0) {
            Reader ring = new Reader(home, 0, home.length, RING, 1);
            int bits = ring.u8();
            Reader.check(bits >= 3 && bits <= MOST_BITS, "bits", "3 to 22");
            ring.varint("replicas", 65536);
            ring.u64(); // the salt made the owners, which are here
            tasks = readTasks(ring);
            owners = readOwners(ring, 1 << bits);
            ring.end();
            shift = 64 - bits;
            homeTasks = 0;
        } else {
            Reader engine = new Reader(home, 0, home.length, ENGINE_HOME, 1);
            Reader.check(engine.u8() == STORM, "home", "a Ring or a StormHash");
            homeTasks = engine.task("tasks");
            Reader.check(homeTasks > 0 && homeTasks <= 1 << MOST_BITS, "tasks", "1 to 2^22");
            tasks = new int[homeTasks];
            for (int i = 0; i < homeTasks; ++i) {
                tasks[i] = i;
            }
            owners = null;
            shift = 0;
        }

        long[] ids = new long[from.count("table", 9)];
        for (int i = 0; i < ids.length; ++i) {
            ids[i] = from.u64();
            Reader.check(i == 0 || Long.compareUnsigned(ids[i - 1], ids[i]) < 0, "table", "ids that ascend");
        }
        int[] targets = new int[ids.length];
        for (int i = 0; i < ids.length; ++i) {
            targets[i] = readTarget(from);
        }
        skipNames(from, ids.length);
        long[] splits = new long[from.count("splits", 10)];
        splitTasks = new int[splits.length][];
        for (int i = 0; i < splits.length; ++i) {
            splits[i] = from.u64();
            splitTasks[i] = new int[from.count("tasks", 1)];
            Reader.check(splitTasks[i].length > 0, "splits", "at least one task");
            for (int j = 0; j < splitTasks[i].length; ++j) {
                splitTasks[i][j] = readTarget(from);
            }
        }
        skipNames(from, splits.length);
        from.end();

        tabled = ids.length;
        int size = 1;
        while (size < 2 * (ids.length + splits.length)) {
            size *= 2;
        }
        slotIds = new long[size];
        slotTargets = new int[size];
        Arrays.fill(slotTargets, FREE);
        for (int i = 0; i < ids.length; ++i) {
            put(ids[i], targets[i]);
        }
        for (int i = 0; i < splits.length; ++i) {
            put(splits[i], -1 - i);
        }
    }

    /** Reads what {@code pr.Router.to_bytes} wrote. Throws {@link FormatException} for anything else. */
    public static Router fromBytes(byte[] data) {
        return new Router(new Reader(data, 0, data.length, ROUTER, 1));
    }

    private int readTarget(Reader from) {
        int place = Arrays.binarySearch(tasks, from.task("target"));
        Reader.check(place >= 0, "target", "a task of the home");
        return place;
    }

    private static int[] readTasks(Reader from) {
        int[] tasks = new int[from.count("tasks", 9)];
        Reader.check(tasks.length > 0, "tasks", "at least one");
        for (int i = 0; i < tasks.length; ++i) {
            tasks[i] = from.task("task");
            Reader.check(i == 0 || tasks[i - 1] < tasks[i], "tasks", "ascending order");
            from.u64(); // its weight
        }
        return tasks;
    }

    private int[] readOwners(Reader from, int identifiers) {
        int[] ids = new int[from.count("owners", 1)];
        Reader.check(ids.length > 0 && ids.length <= identifiers, "owners", "one for each identifier");
        long last = 0;
        for (int i = 0; i < ids.length; ++i) {
            long step = from.varint("owner", Integer.MAX_VALUE - last);
            Reader.check(i == 0 || step > 0, "owners", "distinct ids");
            last += step;
            ids[i] = Arrays.binarySearch(tasks, (int) last);
            Reader.check(ids[i] >= 0, "owners", "tasks");
        }
        int[] out = new int[identifiers];
        int form = from.u8();
        Reader.check(form <= 1, "form", "0 or 1");
        if (form == 0) {
            for (int at = 0; at < identifiers; ) {
                int owner = ids[(int) from.varint("owner", ids.length - 1)];
                int length = (int) from.varint("run", identifiers - at);
                Reader.check(length > 0, "run", "at least 1");
                Arrays.fill(out, at, at + length, owner);
                at += length;
            }
            return out;
        }
        int width = 32 - Integer.numberOfLeadingZeros(ids.length - 1);
        byte[] packed = from.bytes((int) (((long) identifiers * width + 7) / 8));
        long pending = 0;
        int bits = 0;
        int next = 0;
        for (int i = 0; i < identifiers; ++i) {
            for (; bits < width; bits += 8) {
                pending |= (packed[next++] & 0xFFL) << bits;
            }
            int index = (int) (pending & ((1L << width) - 1));
            Reader.check(index < ids.length, "owner", "one of the owners");
            out[i] = ids[index];
            pending >>>= width;
            bits -= width;
        }
        return out;
    }

    /** Names of keys are not needed to route. */
    private static void skipNames(Reader from, int count) {
        int kinds = from.u8();
        int only = 0;
        for (int i = 0; i < kinds; ++i) {
            only = from.u8();
        }
        boolean itself = kinds == 1 && only != 5 && only != 6; // neither text nor bytes: the identity names the value
        if (kinds > 0 && !itself) {
            for (int i = 0; i < count; ++i) {
                from.skip(from.count("value", 1));
            }
        }
    }

    private int slot(long id) {
        // Low bits: the top ones choose the home, so keys of one task would crowd together.
        return (int) (id ^ (id >>> 20)) & (slotIds.length - 1);
    }

    private void put(long id, int target) {
        int at = slot(id);
        while (slotTargets[at] != FREE) {
            Reader.check(slotIds[at] != id, "splits", "keys that are not tabled");
            at = (at + 1) & (slotIds.length - 1);
        }
        slotIds[at] = id;
        slotTargets[at] = target;
    }

    /** The task of a record with this identity; the salt chooses among the tasks of a split key. */
    public int route(long id, long salt) {
        return tasks[place(id, salt, owners == null ? -1 : owners[(int) (id >>> shift)])];
    }

    /** The task of a tuple by the fields at these positions. */
    public int route(KeyHash hash, List<Object> values, int[] positions, long salt) {
        return tasks[place(hash, values, positions, salt)];
    }

    /** The place of that task among the tasks. */
    int place(KeyHash hash, List<Object> values, int[] positions, long salt) {
        long id = hash.key(values, positions);
        return place(id, salt, owners == null ? fieldsHome(values, positions) : owners[(int) (id >>> shift)]);
    }

    private int place(long id, long salt, int home) {
        for (int at = slot(id); slotTargets[at] != FREE; at = (at + 1) & (slotIds.length - 1)) {
            if (slotIds[at] == id) {
                int target = slotTargets[at];
                return target >= 0 ? target : pick(id, salt, splitTasks[-1 - target]);
            }
        }
        if (home < 0) {
            throw new IllegalArgumentException("home: expected the values of the key, because it is a StormHash, got an id");
        }
        return home;
    }

    /** As {@code TupleUtils.chooseTaskIndex} computes it. */
    private int fieldsHome(List<Object> values, int[] positions) {
        Object[] fields = new Object[positions.length];
        for (int i = 0; i < fields.length; ++i) {
            fields[i] = values.get(positions[i]);
        }
        return Math.floorMod(Arrays.deepHashCode(fields), homeTasks);
    }

    private static int pick(long id, long salt, int[] among) {
        long hash = KeyHash.ofLong(salt, KeyHash.ofLong(id, KeyHash.SEED));
        return among[(int) Math.floorMod(hash, (long) among.length)];
    }

    /** Number of this state of the routing. */
    public long version() {
        return version;
    }

    /** Task ids, ascending. */
    public int[] tasks() {
        return tasks.clone();
    }

    @Override
    public String toString() {
        return "Router(" + tasks.length + " tasks, " + tabled + " tabled, " + splitTasks.length + " split, version " + version + ")";
    }
}
