package pyroute.storm;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;

/**
 * A shell bolt that routes: every tuple goes on, as it is, to the task that the child names. The tuple itself stays in the JVM, so
 * its types survive and its size costs nothing; the child sees a sequence number and the key.
 *
 * <pre>{@code
 * new RouterShellBolt("python3", "-m", "pyroute.storm", "router", ...)
 *     .key("word").output("word", "count")
 * }</pre>
 *
 * <p>Consumers read it by direct grouping. Tuples of streams without the fields of the key (control streams, ticks) go to the
 * child as JSON, and its other commands (log, emit on another stream, metrics) come back as JSON.
 *
 * <p>The serializer is set in a copy of the configuration: other shell bolts of the topology keep theirs. With {@code hook(port)}
 * inbound queue time and outbound send time go to 127.0.0.1:port once a second, as one JSON datagram; the same figures
 * are the metrics {@code pyroute-queue} and {@code pyroute-send}.
 */
public class RouterShellBolt extends ShellBolt implements IRichBolt {
    private static final long serialVersionUID = 1L;

    private String[] key = {};
    private String[] output = {};
    private String stream = "default";
    private final Map<String, String[]> others = new HashMap<>();
    private final Map<String, Object> settings = new HashMap<>();
    private int hookPort;
    private transient Traffic traffic;

    public RouterShellBolt(String... command) {
        super(command);
    }

    /** The same for Flux. */
    public RouterShellBolt(List<String> command) {
        super(command.toArray(new String[0]));
    }

    /** The fields of the key. */
    public RouterShellBolt key(String... fields) {
        key = fields.clone();
        return this;
    }

    /** The fields of the tuples that go through; the same as those of the sources. */
    public RouterShellBolt output(String... fields) {
        output = fields.clone();
        return this;
    }

    /** The stream that routed tuples go out on; "default" otherwise. */
    public RouterShellBolt stream(String name) {
        stream = name;
        return this;
    }

    /** One more stream, for what the child emits by itself. */
    public RouterShellBolt also(String name, String... fields) {
        others.put(name, fields.clone());
        return this;
    }

    /** A setting for the child: it finds it in its configuration. */
    public RouterShellBolt set(String name, Object value) {
        settings.put(name, value);
        return this;
    }

    /** Where {@code control.Hook} listens on this machine. */
    public RouterShellBolt hook(int port) {
        hookPort = port;
        return this;
    }

    @Override
    @SuppressWarnings("deprecation") // of registerMetric: what took its place is not in Storm 1
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
        need("key", key);
        try {
            traffic = Traffic.open(collector, context.getThisComponentId(), context.getThisTaskId(), hookPort);
        } catch (IOException error) {
            throw new IllegalStateException("hook: expected a socket, got " + error, error);
        }
        context.registerMetric("pyroute-queue", traffic.queue, 10);
        context.registerMetric("pyroute-send", traffic.send, 10);
        Map<String, Object> own = new HashMap<>(conf);
        own.putAll(settings);
        own.put(Config.TOPOLOGY_MULTILANG_SERIALIZER, RouterSerializer.class.getName());
        own.put(RouterSerializer.KEY, Arrays.asList(key));
        own.put(RouterSerializer.STREAM, stream);
        own.put(RouterSerializer.TOKEN, traffic.token());
        super.prepare(own, context, collector);
    }

    /** Records go straight to the child; what else comes takes ShellBolt's way, and keeps its place in the order. */
    @Override
    public void execute(Tuple input) {
        RouterSerializer serializer = traffic.serializer;
        if (!serializer.offer(input)) {
            long before = serializer.messages();
            super.execute(input);
            serializer.await(before + 1);
        }
    }

    @Override
    public void cleanup() {
        super.cleanup();
        if (traffic != null) {
            traffic.close();
        }
    }

    /** Where the topology is made: what is missing is said there, and not by workers that end again and again. */
    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        need("key", key);
        need("output", output);
        declarer.declareStream(stream, true, new Fields(output));
        for (Map.Entry<String, String[]> each : others.entrySet()) {
            declarer.declareStream(each.getKey(), new Fields(each.getValue()));
        }
    }

    private static void need(String name, String[] fields) {
        if (fields.length == 0) {
            throw new IllegalArgumentException(name + ": expected at least one field, got none");
        }
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
        return null;
    }
}
