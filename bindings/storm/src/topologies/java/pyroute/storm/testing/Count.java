package pyroute.storm.testing;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;

/**
 * Counts what it gets. With a folder it appends "sequence, class and text of the key, source" to the file of its task before it acks: that survives
 * a kill of the process, and whoever reads it drops what comes twice. With "busy" it works for so many microseconds per record,
 * with "wait" it waits for so many: a task is then a service of its own speed, however many cores there are.
 */
final class Count extends BaseRichBolt {
    private static final long serialVersionUID = 1L;

    private final String id;
    private final String folder;
    private final long busyNanos;
    private final long waitNanos;
    private transient OutputCollector collector;
    private transient LongAdder count;
    private transient FileOutputStream log;
    private transient long owed;

    Count(Map<String, Object> given) {
        id = (String) given.get("id");
        folder = (String) given.get("folder");
        busyNanos = (long) (((Number) given.getOrDefault("busy", 0)).doubleValue() * 1000);
        waitNanos = (long) (((Number) given.getOrDefault("wait", 0)).doubleValue() * 1000);
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
        this.collector = collector;
        count = Counters.of(id);
        if (folder != null) {
            try {
                log = new FileOutputStream(Paths.get(folder, id + "-" + context.getThisTaskIndex()).toFile(), true);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    @Override
    public void execute(Tuple tuple) {
        if (log != null) {
            Object key = tuple.getValue(1);
            String kind = key == null ? "null" : key.getClass().getSimpleName();
            String line = tuple.getValue(0) + "\t" + kind + "\t" + key + "\t" + tuple.getSourceComponent() + "\n";
            try {
                log.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        if (waitNanos > 0) {
            rest(waitNanos);
        }
        if (busyNanos > 0) {
            long until = System.nanoTime() + busyNanos;
            while (System.nanoTime() < until) {
                // busy
            }
        }
        count.increment();
        collector.ack(tuple);
    }

    /** What a wait took too long is taken off the next one. */
    private void rest(long nanos) {
        owed += nanos;
        long from = System.nanoTime();
        while (owed > 0) {
            LockSupport.parkNanos(owed);
            long now = System.nanoTime();
            owed -= now - from;
            from = now;
        }
        owed = Math.max(owed, -10 * nanos);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields("sequence", "key", "padding"));
    }
}
