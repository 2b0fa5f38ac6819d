package pyroute.storm.testing;

import java.util.Map;
import org.apache.storm.spout.ShellSpout;
import org.apache.storm.topology.IRichSpout;
import org.apache.storm.topology.OutputFieldsDeclarer;

/** Storm's shell spout as it is. */
final class ShellSource extends ShellSpout implements IRichSpout {
    private static final long serialVersionUID = 1L;

    private final Streams streams;

    ShellSource(Map<String, Object> given) {
        super(Topologies.texts(given.get("command")));
        changeChildCWD(false);
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
