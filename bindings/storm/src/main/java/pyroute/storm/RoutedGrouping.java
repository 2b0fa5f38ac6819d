package pyroute.storm;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.grouping.CustomStreamGrouping;
import org.apache.storm.task.WorkerTopologyContext;
import org.apache.storm.tuple.Fields;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends each tuple where a {@code pr.Router} sends its key, with no child process: ring and table are in the JVM.
 *
 * <p>The i-th task of the router, ascending, is the i-th task of the consumer by Storm's ids, as in {@code RouterBolt}. With a store the router is replaced whenever
 * a new version of the document appears; a router of another number of
 * tasks, of a lower version, or that cannot be read, is logged and the last good one stays.
 *
 * <p><b>For stateless or mergeable consumers only.</b> A grouping cannot send markers, and the executors of a component
 * take up a new table at different moments, so for a while a key may have two owners. A consumer that keeps state by key
 * needs a bolt that speaks the reconfiguration protocol; see docs/storm.md. The constructor asks for the word.
 *
 * <p>A split key's tasks are taken in turn, by a running number as the salt.
 */
public final class RoutedGrouping implements CustomStreamGrouping {
    private static final long serialVersionUID = 1L;
    private static final Logger LOG = LoggerFactory.getLogger(RoutedGrouping.class);

    private final byte[] router;
    private final String store;
    private final String document;
    private final String[] fields;
    private long waitMillis = 60_000;
    private long pollMillis = 1_000;

    private transient volatile Router inForce; // read once for each record
    private transient int[] positions;
    private transient List<List<Integer>> targets; // by the place of the router's task
    private transient Consumer<Router> listener; // the watch holds it weakly
    private transient ThreadLocal<Scratch> scratch;

    private static final class Scratch {
        final KeyHash hash = new KeyHash();
        long salt;
    }

    /**
     * A router that does not change.
     *
     * @param mergeable true: the consumer has no state by key, or can merge what two tasks counted for one key
     * @param router what {@code Router.to_bytes} wrote
     * @param fields the fields of the key
     */
    public RoutedGrouping(boolean mergeable, byte[] router, String... fields) {
        this(mergeable, router.clone(), null, null, fields);
        Router.fromBytes(router); // what is wrong is said where the topology is made
    }

    /**
     * A router in a config store.
     *
     * @param store {@code dir:PATH}, {@code zk://HOST:PORT/PATH}, or {@code file:PATH} for bytes that do not change
     * @param document the name of the document, such as {@code wordcount/split->count}; of no meaning for a file
     */
    public RoutedGrouping(boolean mergeable, String store, String document, String... fields) {
        this(mergeable, null, store, document, fields);
        try {
            ConfigStore.open(store).close();
        } catch (java.io.IOException error) {
            throw new IllegalArgumentException(error);
        }
    }

    /** The same for Flux, whose lists are no arrays. */
    public RoutedGrouping(boolean mergeable, String store, String document, List<String> fields) {
        this(mergeable, store, document, fields.toArray(new String[0]));
    }

    private RoutedGrouping(boolean mergeable, byte[] router, String store, String document, String[] fields) {
        if (!mergeable) {
            throw new IllegalArgumentException("mergeable: expected true, because a changed table gives a key two owners for a while, "
                    + "got false; a consumer with state by key needs a TaskBolt");
        }
        if (fields.length == 0) {
            throw new IllegalArgumentException("fields: expected at least one, got none");
        }
        this.router = router;
        this.store = store;
        this.document = document;
        this.fields = fields.clone();
    }

    /** How often the store is looked at, and how long the first router may take. */
    public RoutedGrouping every(long pollMillis, long waitMillis) {
        if (pollMillis < 1) {
            throw new IllegalArgumentException("pollMillis: expected at least 1, got " + pollMillis);
        }
        this.pollMillis = pollMillis;
        this.waitMillis = waitMillis;
        return this;
    }

    @Override
    public void prepare(WorkerTopologyContext context, GlobalStreamId stream, List<Integer> targetTasks) {
        Fields declared = context.getComponentOutputFields(stream);
        positions = new int[fields.length];
        for (int i = 0; i < fields.length; ++i) {
            positions[i] = declared.fieldIndex(fields[i]);
        }
        List<Integer> ascending = new ArrayList<>(targetTasks);
        Collections.sort(ascending);
        targets = new ArrayList<>();
        for (Integer task : ascending) {
            targets.add(Collections.singletonList(task));
        }
        scratch = ThreadLocal.withInitial(Scratch::new);
        if (router != null) {
            take(Router.fromBytes(router));
            if (inForce == null) {
                throw new IllegalArgumentException(
                        "router: expected " + targets.size() + " tasks, got " + Router.fromBytes(router).tasks().length);
            }
            return;
        }
        CountDownLatch first = new CountDownLatch(1);
        listener = found -> {
            take(found);
            if (inForce != null) {
                first.countDown();
            }
        };
        RouterWatch.listen(store, document, pollMillis, listener);
        try {
            if (!first.await(waitMillis, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException(store + ": expected a router in " + document + " within " + waitMillis + " ms, got none");
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted before there was a router", error);
        }
    }

    private void take(Router next) {
        Router before = inForce;
        if (next.tasks().length != targets.size()) {
            LOG.warn("{}: expected {} tasks; {}", next, targets.size(),
                    before == null ? "no router is in force" : before + " stays in force");
            return;
        }
        if (before != null && next.version() < before.version()) {
            LOG.warn("{}: expected a higher version; {} stays in force", next, before);
            return;
        }
        inForce = next;
        if (before != null) {
            LOG.info("{} takes the place of {}", next, before);
        }
    }

    @Override
    public List<Integer> chooseTasks(int taskId, List<Object> values) {
        Scratch mine = scratch.get();
        return targets.get(inForce.place(mine.hash, values, positions, mine.salt++));
    }
}
