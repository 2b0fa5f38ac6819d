package pyroute.storm.testing;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.LongAdder;

/** What the components of this JVM have done so far, by name. */
final class Counters {
    private static final ConcurrentHashMap<String, LongAdder> ALL = new ConcurrentHashMap<>();

    private Counters() {}

    static LongAdder of(String name) {
        return ALL.computeIfAbsent(name, key -> new LongAdder());
    }

    static Map<String, Long> read() {
        Map<String, Long> out = new ConcurrentSkipListMap<>();
        ALL.forEach((name, value) -> out.put(name, value.sum()));
        return out;
    }

    static void clear() {
        ALL.clear();
    }
}
