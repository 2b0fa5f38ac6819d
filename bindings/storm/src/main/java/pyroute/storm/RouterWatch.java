package pyroute.storm;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One thread per store and document and JVM, which looks for a new router and hands it to all that listen. Level-triggered:
 * the newest is seen, some may be skipped, versions only go up. What is malformed is logged once, and the last good
 * router stays. Listeners are held weakly: groupings are never told that they end.
 */
final class RouterWatch {
    private static final Logger LOG = LoggerFactory.getLogger(RouterWatch.class);
    private static final Map<String, RouterWatch> WATCHES = new HashMap<>();

    private final String url;
    private final String name;
    private final long pollMillis;
    private final List<WeakReference<Consumer<Router>>> listeners = new ArrayList<>();
    private Router newest;
    private long seen; // the version of the document that was looked at last
    private String problem = "";

    private RouterWatch(String url, String name, long pollMillis) {
        this.url = url;
        this.name = name;
        this.pollMillis = pollMillis;
    }

    /**
     * Calls back with every router from now on, and at once with the newest where there is one; one call at a time. Keep a
     * reference to the listener: the watch has none.
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
            watch.listeners.add(new WeakReference<>(listener));
            if (watch.newest != null) {
                listener.accept(watch.newest);
            }
        }
    }

    private void run() {
        try (ConfigStore store = ConfigStore.open(url)) {
            while (look(store)) {
                Thread.sleep(pollMillis);
            }
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

    /** Whether anybody still listens. */
    private boolean look(ConfigStore store) throws InterruptedException {
        Router found = null;
        try {
            ConfigStore.Document document = store.read(name, seen);
            if (document != null) {
                seen = document.version;
                found = Router.fromBytes(document.value);
            }
            problem = "";
        } catch (IOException | RuntimeException error) {
            if (!error.toString().equals(problem)) {
                problem = error.toString();
                LOG.warn("{} {}: {}; {}", url, name, problem, newest == null ? "no router is known" : newest + " stays in force");
            }
        }
        synchronized (WATCHES) {
            if (found != null) {
                newest = found;
            }
            for (Iterator<WeakReference<Consumer<Router>>> each = listeners.iterator(); each.hasNext(); ) {
                Consumer<Router> listener = each.next().get();
                if (listener == null) {
                    each.remove();
                } else if (found != null) {
                    listener.accept(found);
                }
            }
            if (listeners.isEmpty()) {
                WATCHES.remove(url + " " + name, this);
                return false;
            }
        }
        return true;
    }
}
