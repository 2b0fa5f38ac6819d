package pyroute.storm;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.storm.metric.api.IMetric;

/**
 * Sampled durations since the last look: how many, their sum and the longest, in nanoseconds. Recording never waits for
 * anybody; a look that happens between two of its three additions splits one sample between two looks.
 */
final class Times implements IMetric {
    /** One record in so many is timed. */
    static final int EVERY = 64;

    private final AtomicLong count = new AtomicLong();
    private final AtomicLong sum = new AtomicLong();
    private final AtomicLong longest = new AtomicLong();

    void record(long nanoseconds) {
        count.incrementAndGet();
        sum.addAndGet(nanoseconds);
        long before = longest.get();
        if (nanoseconds > before) {
            longest.compareAndSet(before, nanoseconds); // where it fails, somebody recorded another long one
        }
    }

    @Override
    public Object getValueAndReset() {
        long samples = count.getAndSet(0);
        long total = sum.getAndSet(0);
        Map<String, Object> out = new HashMap<>();
        out.put("samples", samples);
        out.put("mean_ms", samples == 0 ? 0.0 : total / 1e6 / samples);
        out.put("max_ms", longest.getAndSet(0) / 1e6);
        return out;
    }
}
