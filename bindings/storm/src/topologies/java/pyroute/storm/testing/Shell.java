package pyroute.storm.testing;

import java.util.Map;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;

/** Storm's shell bolt as it is. */
final class Shell extends ShellBolt implements IRichBolt {
    private static final long serialVersionUID = 1L;

    private final Streams streams;

    Shell(Map<String, Object> given) {
        super(Topologies.texts(given.get("command")));
        changeChildCWD((Boolean) given.getOrDefault("resources", false));
        streams = new Streams(given);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        streams.declare(declarer);
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
        return null;
    }
}
