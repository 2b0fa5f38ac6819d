package pyroute.storm.testing;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;

/**
 * One of two stages: counts by a field, sends the record on where it is not the last, and writes a few times a second how many came, how
 * many of them from a task of the same worker, and when.
 */
final class Stage extends BaseRichBolt {
    private static final long serialVersionUID = 1L;

    private final String id;
    private final String folder;
    private final String field;
    private final boolean last;
    private transient OutputCollector collector;
    private transient TopologyContext context;
    private transient Map<String, Long> counts;
    private transient long count;
    private transient long local;
    private transient long saved;

    Stage(Map<String, Object> given) {
        id = (String) given.get("id");
        folder = (String) given.get("folder");
        field = (String) given.get("field");
        last = (Boolean) given.getOrDefault("last", false);
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
        this.collector = collector;
        this.context = context;
        counts = new HashMap<>();
    }

    @Override
    public void execute(Tuple tuple) {
        counts.merge(tuple.getStringByField(field), 1L, Long::sum);
        ++count;
        if (context.getThisWorkerTasks().contains(tuple.getSourceTask())) {
            ++local;
        }
        if (!last) {
            collector.emit(tuple, tuple.getValues());
        }
        collector.ack(tuple);
        long now = System.nanoTime();
        if (now - saved > 200_000_000L) {
            saved = now;
            save();
        }
    }

    private void save() {
        String text = count + " " + local + " " + System.currentTimeMillis();
        try {
            Path fresh = Paths.get(folder, ".new-" + id + "-" + context.getThisTaskIndex());
            Files.write(fresh, text.getBytes(StandardCharsets.UTF_8));
            Files.move(fresh, Paths.get(folder, id + "-" + context.getThisTaskIndex()), StandardCopyOption.REPLACE_EXISTING,
                    StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields("sequence", "in", "out", "padding"));
    }
}
