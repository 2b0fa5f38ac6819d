package pyroute.storm;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One thread, and one session of ZooKeeper, per store and JVM: it looks for new routers in the documents that are followed, and hands them to all that
 * listen. Level-triggered: the newest is seen, some may be skipped. What is malformed is logged once, and the last good router
 * stays. Listeners are held weakly: groupings are never told that they end.
 */
final class RouterWatch {
    private static final Logger LOG = LoggerFactory.getLogger(RouterWatch.class);
    private static final Map<String, RouterWatch> WATCHES = new HashMap<>(); // by the store; it is the lock of all

    private final String url;

    // Of the lock.
    private final Map<String, Followed> documents = new HashMap<>();
    private long pollMillis = Long.MAX_VALUE;
    private boolean woken;

    private RouterWatch(String url) {
        this.url = url;
    }

    /** A document that somebody follows. */
    private static final class Followed {
        final String name;

        // Of the lock.
        final List<WeakReference<Consumer<Router>>> listeners = new ArrayList<>();
        final List<WeakReference<Consumer<Router>>> newcomers = new ArrayList<>(); // who have none yet

        // Of the thread.
        Router newest;
        long newestHash;
        long seen; // the version of the document that was read last
        long readAt;
        String malformed = "";
        String trouble = "";

        Followed(String name) {
            this.name = name;
        }

        /** Whether it is another router than the newest; one that is the same takes neither time nor memory. */
        boolean parse(ConfigStore.Document document) {
            ByteBuffer value = ByteBuffer.wrap(document.value).order(ByteOrder.LITTLE_ENDIAN);
            long hash = KeyHash.ofBytes(value, document.value.length, KeyHash.SEED);
            if (newest != null && hash == newestHash) {
                return false;
            }
            try {
                newest = Router.fromBytes(document.value);
            } catch (FormatException error) {
                throw error.of(document.version);
            }
            newestHash = hash;
            return true;
        }

        boolean wanted() {
            listeners.removeIf(each -> each.get() == null);
            newcomers.removeIf(each -> each.get() == null);
            return !listeners.isEmpty() || !newcomers.isEmpty();
        }
    }

    /**
     * Calls back with what the store has now, or had last where it is away, and with every router from then on; in a thread of the
     * watch, one call at a time. Keep a reference to the listener: the watch has none. Of several that listen the most impatient says
     * how often the store is looked at.
     */
    static void listen(String url, String name, long pollMillis, Consumer<Router> listener) {
        synchronized (WATCHES) {
            RouterWatch watch = WATCHES.get(url);
            if (watch == null) {
                watch = new RouterWatch(url);
                WATCHES.put(url, watch);
                Thread thread = new Thread(watch::run, "pyroute-router-watch");
                thread.setDaemon(true);
                thread.start();
            }
            watch.documents.computeIfAbsent(name, Followed::new).newcomers.add(new WeakReference<>(listener));
            watch.pollMillis = Math.min(watch.pollMillis, pollMillis);
            watch.woken = true;
            WATCHES.notifyAll();
        }
    }

    private void run() {
        try (ConfigStore store = ConfigStore.open(url)) {
            for (List<Followed> all; !(all = rest()).isEmpty(); ) {
                for (Followed each : all) {
                    look(store, each);
                }
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            LOG.debug("{}: {}", url, error.toString());
        } finally {
            synchronized (WATCHES) {
                WATCHES.remove(url, this);
            }
        }
    }

    /** Waits until it is time to look again; what is followed then. */
    private List<Followed> rest() throws InterruptedException {
        long begun = System.nanoTime();
        synchronized (WATCHES) {
            while (!woken) {
                long left = pollMillis - (System.nanoTime() - begun) / 1_000_000;
                if (left <= 0) {
                    break;
                }
                WATCHES.wait(left);
            }
            woken = false;
            documents.values().removeIf(each -> !each.wanted());
            if (documents.isEmpty()) {
                WATCHES.remove(url, this); // who comes now makes another
            }
            return new ArrayList<>(documents.values());
        }
    }

    /**
     * Reads what is new. For those who came since the last look the whole document is read, unless that was just done: they may
     * belong to another run of the topology, with a store that was made anew and counts its versions from 1.
     */
    private void look(ConfigStore store, Followed of) throws InterruptedException {
        List<WeakReference<Consumer<Router>>> came; // who comes from now on has a look of their own
        boolean again;
        synchronized (WATCHES) {
            came = new ArrayList<>(of.newcomers);
            again = of.newest == null || !came.isEmpty() && System.nanoTime() - of.readAt > pollMillis * 1_000_000;
        }
        Router found; // for newcomers
        boolean changed = false; // for all
        try {
            ConfigStore.Document document = store.read(of.name, again ? 0 : of.seen);
            of.trouble = "";
            if (document != null) {
                boolean other = document.version != of.seen;
                of.seen = document.version;
                changed = of.parse(document) && other;
                of.readAt = System.nanoTime();
            }
            found = document == null && again ? null : of.newest; // a document that is gone is of another run
        } catch (FormatException error) {
            of.trouble = "";
            if (!error.toString().equals(of.malformed)) {
                of.malformed = error.toString();
                warn(of, of.malformed);
            }
            found = of.newest;
        } catch (IOException | RuntimeException error) {
            if (!error.toString().equals(of.trouble)) {
                of.trouble = error.toString();
                warn(of, of.trouble);
            }
            found = of.newest;
        }
        if (found == null) {
            return;
        }
        List<WeakReference<Consumer<Router>>> all;
        synchronized (WATCHES) {
            all = new ArrayList<>(came);
            if (changed) {
                all.addAll(of.listeners);
            }
            of.listeners.addAll(came);
            of.newcomers.removeAll(came);
        }
        for (WeakReference<Consumer<Router>> each : all) {
            Consumer<Router> listener = each.get();
            if (listener != null) {
                listener.accept(found);
            }
        }
    }

    private void warn(Followed of, String problem) {
        LOG.warn("{} {}: {}; {}", url, of.name, problem, of.newest == null ? "no router is known" : of.newest + " stays in force");
    }
}
