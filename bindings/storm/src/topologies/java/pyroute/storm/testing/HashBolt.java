package pyroute.storm.testing;

import java.util.List;
import java.util.Map;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;

/** A router in Java: sends each record on to the task that the hash of its key names. What a RouterShellBolt is compared with. */
final class HashBolt extends BaseRichBolt {
    private static final long serialVersionUID = 1L;

    private final String target;
    private transient OutputCollector collector;
    private transient List<Integer> tasks;

    HashBolt(Map<String, Object> given) {
        target = (String) given.get("target");
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
        this.collector = collector;
        tasks = context.getComponentTasks(target);
    }

    @Override
    public void execute(Tuple tuple) {
        int task = tasks.get(Math.floorMod(tuple.getValue(1).hashCode(), tasks.size()));
        collector.emitDirect(task, tuple, tuple.getValues());
        collector.ack(tuple);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(true, new Fields("sequence", "key", "padding"));
    }
}
