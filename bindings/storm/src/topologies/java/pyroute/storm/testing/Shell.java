package pyroute.storm.testing;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.tuple.Fields;

/** Storm's shell bolt as it is; "streams" names those beside the default one. */
final class Shell extends ShellBolt implements IRichBolt {
    private static final long serialVersionUID = 1L;

    private final HashMap<String, String[]> streams = new HashMap<>();
    private final HashMap<String, Boolean> direct = new HashMap<>();

    Shell(Map<String, Object> given) {
        super(Topologies.texts(given.get("command")));
        changeChildCWD((Boolean) given.getOrDefault("resources", false));
        streams.put("default", Topologies.texts(given.get("fields")));
        direct.put("default", (Boolean) given.getOrDefault("direct", false));
        Map<?, ?> others = (Map<?, ?>) given.getOrDefault("streams", new HashMap<>());
        others.forEach((name, fields) -> {
            streams.put((String) name, Topologies.texts(fields));
            direct.put((String) name, ((List<?>) given.getOrDefault("direct_streams", List.of())).contains(name));
        });
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        streams.forEach((name, fields) -> declarer.declareStream(name, direct.get(name), new Fields(fields)));
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
        return null;
    }
}
