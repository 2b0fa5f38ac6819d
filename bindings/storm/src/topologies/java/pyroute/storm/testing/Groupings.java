package pyroute.storm.testing;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.task.WorkerTopologyContext;
import org.apache.storm.tuple.Fields;
import pyroute.storm.RoutedGrouping;

/**
 * Groupings as a worker has them, without a worker; a line of stdin says what to do, a line of stdout what came of it: "store NAME
 * TARGETS POLL WAIT STORE DOCUMENT" and "bytes NAME TARGETS BASE64" begin to prepare one, "wait NAME" says how that ended, "choose NAME
 * KEY..." gives the place of each key's task among the targets, "forget NAME" drops it, "threads" names those that follow stores. "hammer NAME THREADS
 * KEYS" chooses tasks for key-0, key-1... until "rest NAME": the routers of this time send key-j to the place (version + j) modulo the
 * targets, and no thread may see an older version after a newer one.
 */
public final class Groupings {
    private static final int FIRST = 100; // the lowest of the targets' ids

    private final Map<String, RoutedGrouping> groupings = new HashMap<>();
    private final Map<String, Integer> targets = new HashMap<>();
    private final Map<String, FutureTask<String>> starts = new HashMap<>();
    private final Map<String, List<FutureTask<String>>> hammers = new HashMap<>();
    private final Map<String, AtomicBoolean> ends = new HashMap<>();

    private Groupings() {}

    public static void main(String[] args) throws Exception {
        Groupings all = new Groupings();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String answer;
            try {
                answer = all.answer(line.split(" "));
            } catch (Exception error) {
                answer = "error " + error;
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private String answer(String[] words) throws Exception {
        String name = words.length > 1 ? words[1] : "";
        switch (words[0]) {
            case "store":
                return begin(name, Integer.parseInt(words[2]), new RoutedGrouping(true, words[5], words[6], "key")
                        .every(Long.parseLong(words[3]), Long.parseLong(words[4])));
            case "bytes":
                return begin(name, Integer.parseInt(words[2]), new RoutedGrouping(true, Base64.getDecoder().decode(words[3]), "key"));
            case "wait":
                return result(starts.remove(name));
            case "choose": {
                RoutedGrouping grouping = groupings.get(name);
                return Arrays.stream(words).skip(2).map(key -> String.valueOf(place(grouping, key))).collect(Collectors.joining(" "));
            }
            case "hammer":
                return hammer(name, Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "rest": {
                ends.get(name).set(true);
                List<String> found = new ArrayList<>();
                for (FutureTask<String> each : hammers.remove(name)) {
                    found.add(result(each));
                }
                return String.join(" | ", found);
            }
            case "forget":
                groupings.remove(name);
                starts.remove(name);
                System.gc();
                return "ok";
            case "threads":
                return Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
                        .filter(each -> each.startsWith("pyroute") || each.contains("SendThread") || each.contains("EventThread"))
                        .map(each -> each.replaceAll("[^A-Za-z].*", "")).sorted().collect(Collectors.joining(" "));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** As Storm does it: the grouping crosses from the submitter to the worker, and is prepared there. */
    private String begin(String name, int count, RoutedGrouping made) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        new ObjectOutputStream(bytes).writeObject(made);
        RoutedGrouping grouping = (RoutedGrouping) new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
        List<Integer> ids = new ArrayList<>();
        for (int i = 0; i < count; ++i) {
            ids.add(FIRST + i);
        }
        Collections.reverse(ids);
        WorkerTopologyContext context = new WorkerTopologyContext(null, new HashMap<>(), new HashMap<>(), new HashMap<>(),
                Map.of("words", Map.of("default", new Fields("key"))), "test-1", "", "", 6700, List.of(), new HashMap<>(), new HashMap<>());
        groupings.put(name, grouping);
        targets.put(name, count);
        starts.put(name, run(() -> {
            grouping.prepare(context, new GlobalStreamId("words", "default"), ids);
            return "ok";
        }));
        return "ok";
    }

    private static int place(RoutedGrouping grouping, String key) {
        List<Integer> tasks = grouping.chooseTasks(1, List.of(key));
        return tasks.size() == 1 ? tasks.get(0) - FIRST : -1;
    }

    private String hammer(String name, int threads, int keys) {
        RoutedGrouping grouping = groupings.get(name);
        int count = targets.get(name);
        AtomicBoolean end = new AtomicBoolean();
        ends.put(name, end);
        List<FutureTask<String>> all = new ArrayList<>();
        for (int i = 0; i < threads; ++i) {
            all.add(run(() -> {
                long records = 0;
                int newest = 0;
                int seen = 0;
                while (!end.get()) {
                    for (int key = 0; key < keys; ++key) {
                        int version = Math.floorMod(place(grouping, "key-" + key) - key, count);
                        if (version < newest) {
                            return "key-" + key + ": version " + version + " after " + newest;
                        }
                        seen += version > newest || seen == 0 ? 1 : 0;
                        newest = version;
                        ++records;
                    }
                }
                return newest + " " + seen + " " + records;
            }));
        }
        hammers.put(name, all);
        return "ok";
    }

    private static FutureTask<String> run(Callable<String> work) {
        FutureTask<String> task = new FutureTask<>(work);
        Thread thread = new Thread(task, "test");
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private static String result(FutureTask<String> task) throws InterruptedException {
        try {
            return task.get();
        } catch (ExecutionException error) {
            return "error " + error.getCause().getClass().getSimpleName() + " " + error.getCause().getMessage();
        }
    }
}
