package pyroute.storm.testing;

import java.io.Serializable;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.tuple.Fields;

/** Streams of a shell component: the default one, and "streams" beside it. */
final class Streams implements Serializable {
    private static final long serialVersionUID = 1L;

    private final HashMap<String, String[]> fields = new HashMap<>();
    private final HashMap<String, Boolean> direct = new HashMap<>();

    Streams(Map<String, Object> given) {
        fields.put("default", Topologies.texts(given.get("fields")));
        direct.put("default", (Boolean) given.getOrDefault("direct", false));
        Map<?, ?> others = (Map<?, ?>) given.getOrDefault("streams", new HashMap<>());
        others.forEach((name, names) -> {
            fields.put((String) name, Topologies.texts(names));
            direct.put((String) name, ((List<?>) given.getOrDefault("direct_streams", List.of())).contains(name));
        });
    }

    void declare(OutputFieldsDeclarer declarer) {
        fields.forEach((name, names) -> declarer.declareStream(name, direct.get(name), new Fields(names)));
    }
}
