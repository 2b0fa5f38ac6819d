package pyroute.storm.testing;

import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.Map;
import net.minidev.json.JSONObject;
import net.minidev.json.JSONValue;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;

/**
 * Runs described topologies one after the other in a LocalCluster and says what they did: Local FILE..., one line of JSON for each. "until": {counter:
 * value} ends a run when the counters are there, "deadline" seconds at the latest; "warm" and "seconds" measure a span of time instead.
 */
public final class Local {
    private Local() {}

    public static void main(String[] args) throws Exception {
        Map<String, Object> daemon = new LinkedHashMap<>();
        daemon.put("storm.metricstore.class", "org.apache.storm.metricstore.NoOpMetricStore");
        daemon.put("nimbus.monitor.freq.secs", 1);
        try (LocalCluster cluster = new LocalCluster.Builder().withDaemonConf(daemon).build()) {
            for (String file : args) {
                String text = new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8);
                JSONObject out = run(cluster, Topologies.map(JSONValue.parseWithException(text)));
                System.out.println("RESULT " + out.toJSONString());
                System.out.flush();
            }
            Runtime.getRuntime().halt(0); // closing takes eight seconds, and there is nothing to keep
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static JSONObject run(LocalCluster cluster, Map<String, Object> description) throws Exception {
        Counters.clear();
        String name = (String) description.get("name");
        Config conf = Topologies.conf(description);
        JSONObject out = new JSONObject();
        out.put("name", name);
        try (LocalCluster.LocalTopology topology = cluster.submitTopology(name, conf, Topologies.build(description))) {
            if (description.containsKey("until")) {
                Map<String, Object> until = Topologies.map(description.get("until"));
                long deadline = System.nanoTime() + (long) (((Number) description.getOrDefault("deadline", 120)).doubleValue() * 1e9);
                while (!reached(until)) {
                    if (System.nanoTime() > deadline) {
                        out.put("late", true);
                        break;
                    }
                    Thread.sleep(20);
                }
            } else {
                span(description, out);
            }
            out.put("counters", Counters.read());
        }
        settle(cluster);
        return out;
    }

    /** Until nothing of the last topology is left that would disturb the next. */
    private static void settle(LocalCluster cluster) throws Exception {
        for (int i = 0; i < 600; ++i) {
            if (cluster.getClusterInfo().get_topologies_size() == 0 && ProcessHandle.current().descendants().count() == 0) {
                break;
            }
            Thread.sleep(50);
        }
        System.gc();
    }

    private static boolean reached(Map<String, Object> until) {
        Map<String, Long> now = Counters.read();
        return until.entrySet().stream().allMatch(e -> now.getOrDefault(e.getKey(), 0L) >= ((Number) e.getValue()).longValue());
    }

    /** Waits for the first record and then for "warm" seconds, and measures for "seconds". */
    private static void span(Map<String, Object> description, JSONObject out) throws Exception {
        String counter = (String) description.get("counter");
        while (Counters.of(counter).sum() == 0) {
            Thread.sleep(20);
        }
        Thread.sleep((long) (((Number) description.get("warm")).doubleValue() * 1000));
        long count = Counters.of(counter).sum();
        long jvm = cpu();
        double children = children();
        long from = System.nanoTime();
        Thread.sleep((long) (((Number) description.get("seconds")).doubleValue() * 1000));
        double seconds = (System.nanoTime() - from) * 1e-9;
        long done = Counters.of(counter).sum() - count;
        out.put("seconds", seconds);
        out.put("records", done);
        out.put("rate", done / seconds);
        out.put("jvm_cpu", (cpu() - jvm) * 1e-9);
        out.put("child_cpu", children() - children);
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static double children() {
        return ProcessHandle.current().descendants()
                .mapToDouble(each -> each.info().totalCpuDuration().map(d -> d.toNanos() * 1e-9).orElse(0.0)).sum();
    }
}
