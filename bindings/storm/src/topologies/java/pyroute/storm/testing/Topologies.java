package pyroute.storm.testing;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.topology.BoltDeclarer;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.tuple.Fields;
import pyroute.storm.RoutedGrouping;
import pyroute.storm.RouterShellBolt;

/**
 * A topology from a description in JSON: {"name", "conf", "components": [{"id", "kind", "parallelism", "inputs": [{"from",
 * "stream", "grouping", ...}], ...}]}. Kinds: spout, pairs, count, stage, hash, shell, source, router; groupings: shuffle, local_or_shuffle, fields,
 * partial_key, direct, all, global, none, routed. bench/storm/topology.py writes it.
 */
final class Topologies {
    private Topologies() {}

    static String[] texts(Object list) {
        return ((List<?>) list).stream().map(String::valueOf).toArray(String[]::new);
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object given) {
        return (Map<String, Object>) given;
    }

    static Config conf(Map<String, Object> description) {
        Config conf = new Config();
        conf.putAll(map(description.getOrDefault("conf", new HashMap<>())));
        return conf;
    }

    static StormTopology build(Map<String, Object> description) {
        TopologyBuilder builder = new TopologyBuilder();
        for (Object each : (List<?>) description.get("components")) {
            Map<String, Object> given = map(each);
            String id = (String) given.get("id");
            Number parallelism = (Number) given.getOrDefault("parallelism", 1);
            if ("spout".equals(given.get("kind"))) {
                builder.setSpout(id, new Spout(given), parallelism);
                continue;
            }
            if ("pairs".equals(given.get("kind"))) {
                builder.setSpout(id, new PairSpout(given), parallelism);
                continue;
            }
            if ("source".equals(given.get("kind"))) {
                ShellSource source = new ShellSource(given);
                source.setEnv(environment(given));
                builder.setSpout(id, source, parallelism);
                continue;
            }
            BoltDeclarer bolt = builder.setBolt(id, bolt(given), parallelism);
            if (given.containsKey("tick")) {
                bolt.addConfiguration(Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, given.get("tick"));
            }
            for (Object input : (List<?>) given.getOrDefault("inputs", List.of())) {
                group(bolt, map(input));
            }
        }
        return builder.createTopology();
    }

    private static IRichBolt bolt(Map<String, Object> given) {
        switch ((String) given.get("kind")) {
            case "count":
                return new Count(given);
            case "stage":
                return new Stage(given);
            case "hash":
                return new HashBolt(given);
            case "shell": {
                Shell shell = new Shell(given);
                shell.setEnv(environment(given));
                return shell;
            }
            case "router": {
                RouterShellBolt router = new RouterShellBolt(texts(given.get("command")));
                router.key(texts(given.get("key"))).output(texts(given.get("fields")));
                router.hook(((Number) given.getOrDefault("hook", 0)).intValue());
                router.changeChildCWD(false);
                router.setEnv(environment(given));
                return router;
            }
            default:
                throw new IllegalArgumentException("kind: got " + given.get("kind"));
        }
    }

    private static Map<String, String> environment(Map<String, Object> given) {
        Map<String, String> out = new HashMap<>();
        map(given.getOrDefault("environment", new HashMap<>())).forEach((name, value) -> out.put(name, (String) value));
        return out;
    }

    private static void group(BoltDeclarer bolt, Map<String, Object> input) {
        String from = (String) input.get("from");
        String stream = (String) input.getOrDefault("stream", "default");
        switch ((String) input.getOrDefault("grouping", "shuffle")) {
            case "shuffle":
                bolt.shuffleGrouping(from, stream);
                break;
            case "local_or_shuffle":
                bolt.localOrShuffleGrouping(from, stream);
                break;
            case "fields":
                bolt.fieldsGrouping(from, stream, new Fields(texts(input.get("fields"))));
                break;
            case "partial_key":
                bolt.partialKeyGrouping(from, stream, new Fields(texts(input.get("fields"))));
                break;
            case "direct":
                bolt.directGrouping(from, stream);
                break;
            case "all":
                bolt.allGrouping(from, stream);
                break;
            case "global":
                bolt.globalGrouping(from, stream);
                break;
            case "none":
                bolt.noneGrouping(from, stream);
                break;
            case "routed":
                bolt.customGrouping(from, stream, new RoutedGrouping(true, (String) input.get("store"),
                        (String) input.getOrDefault("document", ""), texts(input.get("fields"))).every(100, 60_000));
                break;
            default:
                throw new IllegalArgumentException("grouping: got " + input.get("grouping"));
        }
    }
}
