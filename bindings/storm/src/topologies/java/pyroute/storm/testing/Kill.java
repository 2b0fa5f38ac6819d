package pyroute.storm.testing;

import org.apache.storm.generated.KillOptions;
import org.apache.storm.utils.NimbusClient;

/** Ends a topology of the cluster of storm.yaml at once: Kill NAME. */
public final class Kill {
    private Kill() {}

    public static void main(String[] args) throws Exception {
        KillOptions now = new KillOptions();
        now.set_wait_secs(0);
        NimbusClient.withConfiguredClient(nimbus -> nimbus.killTopologyWithOpts(args[0], now));
    }
}
