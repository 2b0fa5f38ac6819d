package pyroute.storm;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.storm.task.OutputCollector;

/**
 * What a RouterShellBolt and its serializer share; Storm makes the serializer by its class name alone, so the bolt leaves this
 * in a registry under a token that travels in the configuration.
 *
 * <p>Times one record in {@link Times#EVERY}: how long it waited for the child ("inbound queue time": from execute until
 * its frame is written), and how long the emit took ("outbound send time"). An emit of Storm 2 does not wait while the
 * receiver's queue is full: it keeps the tuple aside and gives the bolt no more input, so a slow receiver shows in the rate.
 */
final class Traffic {
    private static final ConcurrentHashMap<String, Traffic> REGISTRY = new ConcurrentHashMap<>();
    private static final AtomicLong TOKENS = new AtomicLong();

    final Times queue = new Times();
    final Times send = new Times();
    final OutputCollector collector;
    /** Of the bolt's child; there once the child has answered the greeting. */
    volatile RouterSerializer serializer;

    private final String token = "traffic-" + TOKENS.incrementAndGet();

    // For the hook: counters of their own, because a look at a metric empties it.
    private final Times hookQueue = new Times();
    private final Times hookSend = new Times();
    private final DatagramChannel channel;
    private final String component;
    private final int task;
    private long sentAt = System.nanoTime();
    private long sentCount;

    private Traffic(OutputCollector collector, String component, int task, int port) throws IOException {
        this.collector = collector;
        this.component = component;
        this.task = task;
        DatagramChannel open = null;
        if (port > 0) {
            open = DatagramChannel.open();
            open.configureBlocking(false);
            open.connect(new InetSocketAddress("127.0.0.1", port));
        }
        channel = open;
    }

    static Traffic open(OutputCollector collector, String component, int task, int port) throws IOException {
        Traffic traffic = new Traffic(collector, component, task, port);
        REGISTRY.put(traffic.token, traffic);
        return traffic;
    }

    static Traffic of(Object token) {
        Traffic found = token == null ? null : REGISTRY.get(token);
        if (found == null) {
            throw new IllegalStateException("serializer: expected to be made by a RouterShellBolt, got another bolt; "
                    + "do not set it for a whole topology");
        }
        return found;
    }

    String token() {
        return token;
    }

    void close() {
        REGISTRY.remove(token);
        RouterSerializer open = serializer;
        if (open != null) {
            open.close();
        }
        if (channel != null) {
            try {
                channel.close();
            } catch (IOException error) {
                // nobody listens any more
            }
        }
    }

    void queued(long nanoseconds) {
        queue.record(nanoseconds);
        hookQueue.record(nanoseconds);
    }

    void emitted(long nanoseconds) {
        send.record(nanoseconds);
        hookSend.record(nanoseconds);
    }

    /** Tells the hook, once a second at most, and never waits: a datagram that has no room is dropped. By the thread that writes. */
    @SuppressWarnings("unchecked")
    void tell(long total) {
        if (channel == null) {
            return;
        }
        long now = System.nanoTime();
        double seconds = (now - sentAt) / 1e9;
        if (seconds < 1.0) {
            return;
        }
        java.util.Map<String, Object> queued = (java.util.Map<String, Object>) hookQueue.getValueAndReset();
        java.util.Map<String, Object> sent = (java.util.Map<String, Object>) hookSend.getValueAndReset();
        String text = String.format(Locale.ROOT,
                "{\"component\":\"%s\",\"task\":%d,\"seconds\":%.6f,\"records\":%d,\"queue_ms\":%.6f,\"queue_max_ms\":%.6f,"
                        + "\"send_ms\":%.6f,\"send_max_ms\":%.6f,\"samples\":%d}",
                component.replace("\\", "\\\\").replace("\"", "\\\""), task, seconds, total - sentCount,
                (Double) queued.get("mean_ms"), (Double) queued.get("max_ms"), (Double) sent.get("mean_ms"),
                (Double) sent.get("max_ms"), (Long) queued.get("samples"));
        sentAt = now;
        sentCount = total;
        try {
            channel.write(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
        } catch (IOException error) {
            // nobody listens, now
        }
    }
}
