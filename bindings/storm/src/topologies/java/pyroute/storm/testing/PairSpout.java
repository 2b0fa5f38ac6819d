package pyroute.storm.testing;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/**
 * Records (sequence, in, out, padding) of pairs of keys, over and over: those of the file "pairs-I" where I is the number of the task of the
 * component "near" that runs in the same worker, so that no record crosses the network on its way there. Once there is a file "next-I", those of
 * that one.
 */
final class PairSpout extends BaseRichSpout {
    private static final long serialVersionUID = 1L;

    private final String folder;
    private final String near;
    private final String padding;
    private transient SpoutOutputCollector collector;
    private transient String[][] pairs;
    private transient Path next; // null: it was read
    private transient long looked;
    private transient long sequence;

    PairSpout(Map<String, Object> given) {
        folder = (String) given.get("pairs");
        near = (String) given.get("near");
        char[] fill = new char[((Number) given.getOrDefault("padding", 20)).intValue()];
        Arrays.fill(fill, 'x');
        padding = new String(fill);
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
        this.collector = collector;
        List<Integer> tasks = context.getComponentTasks(near);
        int mine = -1;
        for (int i = 0; i < tasks.size(); ++i) {
            if (context.getThisWorkerTasks().contains(tasks.get(i))) {
                mine = i;
            }
        }
        if (mine < 0) {
            throw new IllegalStateException("near: expected a task of " + near + " in this worker, got none");
        }
        pairs = read(Paths.get(folder, "pairs-" + mine));
        next = Paths.get(folder, "next-" + mine);
    }

    private static String[][] read(Path path) {
        try {
            return Files.readAllLines(path).stream().map(line -> line.split("\t")).toArray(String[][]::new);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void look() {
        long now = System.nanoTime();
        if (next != null && now - looked > 100_000_000L) {
            looked = now;
            if (Files.exists(next)) {
                pairs = read(next);
                next = null;
            }
        }
    }

    @Override
    public void nextTuple() {
        look();
        String[] pair = pairs[(int) (sequence % pairs.length)];
        collector.emit(new Values(sequence, pair[0], pair[1], padding), sequence);
        ++sequence;
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields("sequence", "in", "out", "padding"));
    }
}
