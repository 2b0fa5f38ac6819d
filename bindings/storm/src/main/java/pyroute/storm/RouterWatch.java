package pyroute.storm;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One thread per store and document and JVM, which looks for a new router and hands it to all that listen. Level-triggered:
 * the newest is seen, some may be skipped. What is malformed is logged once, and the last good router stays. Listeners are held weakly:
 * groupings are never told that they end.
 */
final class RouterWatch {
    private static final Logger LOG = LoggerFactory.getLogger(RouterWatch.class);
    private static final Map<String, RouterWatch> WATCHES = new HashMap<>();

    private final String url;
    private final String name;

    // Of the lock, which is that of WATCHES.
    private final List<WeakReference<Consumer<Router>>> listeners = new ArrayList<>();
    private final List<WeakReference<Consumer<Router>>> newcomers = new ArrayList<>(); // who have none yet
    private long pollMillis;
    private boolean woken;

    // Of the thread.
    private Router newest;
    private long seen; // the version of the document that was read last
    private long readAt;
    private String malformed = "";
    private String trouble = "";

    private RouterWatch(String url, String name, long pollMillis) {
        this.url = url;
        this.name = name;
        this.pollMillis = pollMillis;
    }

    /**
     * Calls back with what the store has now, or had last where it is away, and with every router from then on; in a thread of the
     * watch, one call at a time. Keep a reference to the listener: the watch has none. Of several that listen the most impatient says
     * how often the store is looked at.
     */
    static void listen(String url, String name, long pollMillis, Consumer<Router> listener) {
        synchronized (WATCHES) {
            RouterWatch watch = WATCHES.get(url + " " + name);
            if (watch == null) {
                watch = new RouterWatch(url, name, pollMillis);
                WATCHES.put(url + " " + name, watch);
                Thread thread = new Thread(watch::run, "pyroute-router-watch");
                thread.setDaemon(true);
                thread.start();
            }
            watch.pollMillis = Math.min(watch.pollMillis, pollMillis);
            watch.newcomers.add(new WeakReference<>(listener));
            watch.woken = true;
            WATCHES.notifyAll();
        }
    }

    private void run() {
        try (ConfigStore store = ConfigStore.open(url)) {
            do {
                look(store);
            } while (rest());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            LOG.debug("{}: {}", url, error.toString());
        } finally {
            synchronized (WATCHES) {
                WATCHES.remove(url + " " + name, this);
            }
        }
    }

    /** Until it is time to look again; false where nobody listens any more. */
    private boolean rest() throws InterruptedException {
        long begun = System.nanoTime();
        synchronized (WATCHES) {
            while (!woken) {
                long left = pollMillis - (System.nanoTime() - begun) / 1_000_000;
                if (left <= 0) {
                    break;
                }
                WATCHES.wait(left);
            }
            listeners.removeIf(each -> each.get() == null);
            newcomers.removeIf(each -> each.get() == null);
            if (listeners.isEmpty() && newcomers.isEmpty()) {
                WATCHES.remove(url + " " + name, this);
                return false;
            }
            return true;
        }
    }

    /**
     * Reads what is new. For those who came since the last look the whole document is read, unless that was just done: they may
     * belong to another run of the topology, with a store that was made anew and counts its versions from 1.
     */
    private void look(ConfigStore store) throws InterruptedException {
        boolean again;
        synchronized (WATCHES) {
            woken = false;
            again = newest == null || !newcomers.isEmpty() && System.nanoTime() - readAt > pollMillis * 1_000_000;
        }
        Router found = null; // for newcomers
        boolean changed = false; // for all
        try {
            ConfigStore.Document document = store.read(name, again ? 0 : seen);
            trouble = "";
            if (document != null) {
                boolean other = document.version != seen;
                seen = document.version;
                newest = parsed(document);
                readAt = System.nanoTime();
                changed = other;
            }
            found = document == null && again ? null : newest; // a document that is gone is of another run
        } catch (FormatException error) {
            trouble = "";
            if (!error.toString().equals(malformed)) {
                malformed = error.toString();
                warn(malformed);
            }
            found = newest;
        } catch (IOException | RuntimeException error) {
            if (!error.toString().equals(trouble)) {
                trouble = error.toString();
                warn(trouble);
            }
            found = newest;
        }
        if (found == null) {
            return;
        }
        List<WeakReference<Consumer<Router>>> all;
        synchronized (WATCHES) {
            all = new ArrayList<>(newcomers);
            if (changed) {
                all.addAll(listeners);
            }
            listeners.addAll(newcomers);
            newcomers.clear();
        }
        for (WeakReference<Consumer<Router>> each : all) {
            Consumer<Router> listener = each.get();
            if (listener != null) {
                listener.accept(found);
            }
        }
    }

    private static Router parsed(ConfigStore.Document document) {
        try {
            return Router.fromBytes(document.value);
        } catch (FormatException error) {
            throw error.of(document.version);
        }
    }

    private void warn(String problem) {
        LOG.warn("{} {}: {}; {}", url, name, problem, newest == null ? "no router is known" : newest + " stays in force");
    }
}
