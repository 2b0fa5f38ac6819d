package pyroute.storm;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.Arrays;
import java.util.Collections;
import org.apache.storm.multilang.BoltMsg;
import org.apache.storm.topology.TopologyBuilder;

/** What of the classes of this package can be seen from within alone; each argument names a look, each line of stdout is what it saw. */
public final class Probe {
    private Probe() {}

    public static void main(String[] args) throws Exception {
        for (String name : args) {
            System.out.println(look(name));
        }
    }

    private static String look(String name) throws Exception {
        switch (name) {
            case "order":
                return order();
            case "nokey":
                return made(new RouterShellBolt("child").output("word"));
            case "nooutput":
                return made(new RouterShellBolt("child").key("word"));
            case "whole":
                return made(new RouterShellBolt("child").key("word").output("word"));
            default:
                throw new IllegalArgumentException(name);
        }
    }

    /** Whether a wait for a tuple on its way to the child ends with ids of tasks, and with the tuple. */
    private static String order() throws Exception {
        RouterSerializer serializer = new RouterSerializer();
        serializer.initialize(new ByteArrayOutputStream(), new ByteArrayInputStream(new byte[0]));
        serializer.writeTaskIds(Arrays.asList(1, 2));
        boolean ids = serializer.messages() > 0;
        BoltMsg tuple = new BoltMsg();
        tuple.setId("1");
        tuple.setComp("manager");
        tuple.setStream("pyroute");
        tuple.setTask(1);
        tuple.setTuple(Collections.singletonList("a"));
        serializer.writeBoltMsg(tuple);
        return ids + " " + (serializer.messages() > 0);
    }

    private static String made(RouterShellBolt bolt) {
        try {
            TopologyBuilder builder = new TopologyBuilder();
            builder.setBolt("route", bolt);
            builder.createTopology();
            return "ok";
        } catch (IllegalArgumentException error) {
            return "error " + error.getMessage();
        }
    }
}
