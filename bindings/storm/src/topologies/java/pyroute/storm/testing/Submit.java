package pyroute.storm.testing;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import net.minidev.json.JSONValue;
import org.apache.storm.StormSubmitter;

/** Submits a described topology to the cluster of storm.yaml: Submit FILE. */
public final class Submit {
    private Submit() {}

    public static void main(String[] args) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
        Map<String, Object> description = Topologies.map(JSONValue.parseWithException(text));
        StormSubmitter.submitTopology((String) description.get("name"), Topologies.conf(description), Topologies.build(description));
    }
}
