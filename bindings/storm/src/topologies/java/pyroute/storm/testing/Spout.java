package pyroute.storm.testing;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/**
 * Records (sequence, key, padding), each with its sequence as its id; what fails is sent again. Task i of n sends the sequences i,
 * i + n, and so on. With a "file" of tab-separated lines, key and padding are those of line sequence modulo lines. With a folder it
 * remembers how far everything was acked, and starts there again; a file "stop" there ends it, and ID-i.times has a line per second:
 * milliseconds since 1970, records acked, and p50, p99, most and mean of their times in microseconds. "again": false, and what fails is
 * counted alone. "gentle": so many records at first go one by one, each when the one before is acked, so that what a rate sends does
 * not pile up before bolts that are still starting.
 */
final class Spout extends BaseRichSpout {
    private static final long serialVersionUID = 1L;

    private final String id;
    private final long records;
    private final double rate;
    private final int gentle;
    private final int keys;
    private final String type;
    private final String padding;
    private final String folder;
    private final String file;
    private final boolean replays;

    private transient SpoutOutputCollector collector;
    private transient LongAdder emitted;
    private transient LongAdder acked;
    private transient LongAdder failed;
    private transient ArrayDeque<Long> again;
    private transient TreeSet<Long> open;
    private transient long next;
    private transient int step;
    private transient int index;
    private transient long started;
    private transient long sent;
    private transient long savedAt;
    private transient long end;
    private transient HashMap<Long, Long> sentAt;
    private transient ArrayList<Long> times;
    private transient long timedAt;
    private transient List<String[]> lines;

    Spout(Map<String, Object> given) {
        id = (String) given.get("id");
        records = ((Number) given.getOrDefault("records", Long.MAX_VALUE)).longValue();
        rate = ((Number) given.getOrDefault("rate", 0)).doubleValue();
        gentle = ((Number) given.getOrDefault("gentle", 0)).intValue();
        keys = ((Number) given.getOrDefault("keys", 1000)).intValue();
        type = (String) given.getOrDefault("type", "text");
        char[] fill = new char[((Number) given.getOrDefault("padding", 20)).intValue()];
        Arrays.fill(fill, 'x');
        padding = new String(fill);
        folder = (String) given.get("folder");
        file = (String) given.get("file");
        replays = (Boolean) given.getOrDefault("again", true);
    }

    /** The key of a sequence: the same in every run, and in bench/storm/workload.py. */
    static Object key(long sequence, int keys, String type) {
        long mixed = sequence * 0x9E3779B97F4A7C15L;
        mixed ^= mixed >>> 32;
        long number = Math.floorMod(mixed, (long) keys);
        switch (type) {
            case "text":
                return "key-" + number;
            case "long":
                return number;
            case "int":
                return (int) number;
            case "mixed":
                return new Object[] {"k\u00e9y/" + number, number, (int) number, number % 2 == 0, null}[(int) (number % 5)];
            default:
                throw new IllegalArgumentException("type: expected text, long, int or mixed, got " + type);
        }
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
        this.collector = collector;
        emitted = Counters.of(id + ".emitted");
        acked = Counters.of(id + ".acked");
        failed = Counters.of(id + ".failed");
        again = new ArrayDeque<>();
        open = new TreeSet<>();
        index = context.getThisTaskIndex();
        step = context.getComponentTasks(id).size();
        next = index;
        end = records;
        sentAt = new HashMap<>();
        times = new ArrayList<>();
        if (file != null) {
            try (Stream<String> all = Files.lines(Paths.get(file))) {
                lines = all.map(line -> line.split("\t", 2)).collect(Collectors.toList());
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        if (folder != null) {
            try {
                Path path = state();
                if (Files.exists(path)) {
                    next = Long.parseLong(new String(Files.readAllBytes(path), StandardCharsets.UTF_8).split(" ")[0]);
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        started = System.nanoTime();
    }

    private Path state() {
        return Paths.get(folder, id + "-" + index);
    }

    @Override
    public void nextTuple() {
        save();
        Long sequence = again.poll();
        if (sequence == null) {
            if (next >= end || early() || rate > 0 && sent > (System.nanoTime() - started) * 1e-9 * rate) {
                return;
            }
            sequence = next;
            next += step;
            ++sent;
        }
        if (folder != null) {
            open.add(sequence);
            sentAt.put(sequence, System.nanoTime());
        }
        emitted.increment();
        collector.emit(values(sequence), sequence);
    }

    /** While the first records go one by one: the clock of the rate begins after them. */
    private boolean early() {
        if (sent > gentle || gentle == 0) {
            return false;
        }
        started = System.nanoTime() - (long) (rate > 0 ? sent / rate * 1e9 : 0);
        return !open.isEmpty();
    }

    private Values values(long sequence) {
        if (lines == null) {
            return new Values(sequence, key(sequence, keys, type), padding);
        }
        String[] line = lines.get((int) (sequence % lines.size()));
        return new Values(sequence, line[0], line.length > 1 ? line[1] : padding);
    }

    @Override
    public void ack(Object sequence) {
        acked.increment();
        if (folder != null) {
            open.remove(sequence);
            Long at = sentAt.remove(sequence);
            if (at != null) {
                times.add((System.nanoTime() - at) / 1000);
            }
        }
    }

    @Override
    public void fail(Object sequence) {
        failed.increment();
        if (replays) {
            again.add((Long) sequence);
        } else if (folder != null) {
            open.remove(sequence);
            sentAt.remove(sequence);
        }
    }

    /** The lowest sequence that is not acked, and whether all are. */
    private void save() {
        long now = System.nanoTime();
        if (folder == null || now - savedAt < 50_000_000L) {
            return;
        }
        savedAt = now;
        if (end == records && Files.exists(Paths.get(folder, "stop"))) {
            end = next;
        }
        saveTimes(now);
        long lowest = open.isEmpty() ? next : open.first();
        String text = lowest + " " + (lowest >= end ? "done" : "open") + " " + emitted.sum() + " " + failed.sum();
        try {
            Path fresh = Paths.get(folder, ".new-" + id + "-" + index);
            Files.write(fresh, text.getBytes(StandardCharsets.UTF_8));
            Files.move(fresh, state(), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void saveTimes(long now) {
        if (now - timedAt < 1_000_000_000L) {
            return;
        }
        timedAt = now;
        Collections.sort(times);
        int size = times.size();
        String line = System.currentTimeMillis() + " " + size;
        for (double part : new double[] {0.5, 0.99, 1.0}) {
            line += " " + (size == 0 ? 0 : times.get(Math.min(size - 1, (int) (part * size))));
        }
        line += " " + Math.round(times.stream().mapToLong(Long::longValue).average().orElse(0));
        times.clear();
        try {
            byte[] text = (line + "\n").getBytes(StandardCharsets.UTF_8);
            Path path = Paths.get(folder, id + "-" + index + ".times");
            Files.write(path, text, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields("sequence", "key", "padding"));
    }
}
