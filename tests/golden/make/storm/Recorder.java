import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintWriter;
import java.lang.reflect.Constructor;
import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.multilang.JsonSerializer;
import org.apache.storm.multilang.ShellMsg;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.IOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.utils.Utils;

/**
 * What Storm's own ShellBolt says to its child, and what its serializer makes of a child's answers.
 *
 * <p>Compiles against every version from 1.0 on. Usage: Recorder FOLDER PYTHON CHILD; the folder gets
 * stream.bin (all bytes that the child read), expected.jsonl (the values that were sent, typed) and
 * replies.jsonl.
 */
public class Recorder {
  static class Spout extends BaseRichSpout {
    @Override
    @SuppressWarnings("rawtypes")
    public void open(Map conf, TopologyContext context, SpoutOutputCollector collector) {}

    @Override
    public void nextTuple() {}

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("sequence", "key", "padding"));
      declarer.declareStream("control", new Fields("message"));
    }
  }

  static class Router extends ShellBolt implements IRichBolt {
    Router(String... command) {
      super(command);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declareStream("default", true, new Fields("sequence", "key", "padding"));
      declarer.declareStream("statistics", new Fields("message"));
    }

    @Override
    public Map<String, Object> getComponentConfiguration() {
      return null;
    }
  }

  static class Count extends BaseRichBolt {
    @Override
    @SuppressWarnings("rawtypes")
    public void prepare(Map conf, TopologyContext context, OutputCollector collector) {}

    @Override
    public void execute(Tuple tuple) {}

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {}
  }

  static final Map<Integer, String> TASKS = new TreeMap<>();

  static {
    TASKS.put(-1, "__system");
    TASKS.put(1, "__acker");
    TASKS.put(2, "count");
    TASKS.put(3, "count");
    TASKS.put(4, "count");
    TASKS.put(5, "router");
    TASKS.put(6, "spout");
  }

  public static void main(String[] args) throws Exception {
    Path out = Paths.get(args[0]);
    String raw = out.resolve("stream.bin").toAbsolutePath().toString();
    new File("code").mkdirs();
    new File("pids").mkdirs();
    Router bolt = new Router(args[1], args[2], raw);
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("spout", new Spout());
    builder.setBolt("router", bolt)
        .shuffleGrouping("spout")
        .allGrouping("spout", "control");
    builder.setBolt("count", new Count(), 3)
        .directGrouping("router")
        .fieldsGrouping("spout", new Fields("key"));
    builder.setBolt("watch", new Count()).globalGrouping("router", "statistics");
    Map<String, Object> conf = conf();
    TopologyContext context = context(builder.createTopology(), conf);

    List<List<Object>> sent = new ArrayList<>();
    AtomicInteger acks = new AtomicInteger();
    IOutputCollector collector = (IOutputCollector) Proxy.newProxyInstance(
        Recorder.class.getClassLoader(), new Class<?>[] {IOutputCollector.class},
        (proxy, method, given) -> {
          switch (method.getName()) {
            case "emit":
              return Arrays.asList(3, 4);
            case "ack":
              acks.incrementAndGet();
              return null;
            case "reportError":
              ((Throwable) given[0]).printStackTrace();
              System.exit(1);
              return null;
            default:
              return null;
          }
        });
    bolt.prepare(conf, context, new OutputCollector(collector));
    try (PrintWriter expected = writer(out.resolve("expected.jsonl"))) {
      for (List<Object> values : tuples()) {
        send(bolt, expected, "spout", "default", 6, values);
      }
      send(bolt, expected, "spout", "control", 6, Arrays.<Object>asList("{\"epoch\":1}"));
      send(bolt, expected, "__system", "__tick", -1, Arrays.<Object>asList(1));
      send(bolt, expected, "spout", "default", 6, Arrays.<Object>asList(1L, "task ids", ""));
      await(acks, 3 + tuples().size());
      Thread.sleep(2500);  // two heartbeats
      send(bolt, expected, "spout", "default", 6, Arrays.<Object>asList(2L, "last", ""));
      await(acks, 4 + tuples().size());
    }
    replies(out.resolve("replies.jsonl"));
    System.exit(0);
  }

  static void await(AtomicInteger acks, int count) throws InterruptedException {
    for (int i = 0; acks.get() < count; ++i) {
      if (i == 6000) {
        throw new IllegalStateException("acks: expected " + count + ", got " + acks.get());
      }
      Thread.sleep(10);
    }
  }

  static Map<String, Object> conf() {
    Map<String, Object> conf = new TreeMap<>();
    for (Map.Entry<?, ?> each : ((Map<?, ?>) Utils.readDefaultConfig()).entrySet()) {
      conf.put((String) each.getKey(), each.getValue());
    }
    conf.put("storm.cluster.mode", "distributed");
    conf.put("topology.name", "recorded");
    conf.put("topology.tick.tuple.freq.secs", 1);
    conf.put("topology.subprocess.timeout.secs", 30);
    return conf;
  }

  static TopologyContext context(StormTopology topology, Map<String, Object> conf)
      throws Exception {
    Map<String, List<Integer>> components = new HashMap<>();
    for (Map.Entry<Integer, String> each : TASKS.entrySet()) {
      components.computeIfAbsent(each.getValue(), name -> new ArrayList<>()).add(each.getKey());
    }
    Map<String, Map<String, Fields>> fields = new HashMap<>();
    fields.put("spout", new HashMap<>());
    fields.get("spout").put("default", new Fields("sequence", "key", "padding"));
    fields.get("spout").put("control", new Fields("message"));
    fields.put("router", new HashMap<>());
    fields.get("router").put("default", new Fields("sequence", "key", "padding"));
    fields.get("router").put("statistics", new Fields("message"));
    fields.put("__system", new HashMap<>());
    fields.get("__system").put("__tick", new Fields("rate_secs"));
    fields.put("count", new HashMap<>());
    fields.put("watch", new HashMap<>());

    Constructor<?> make = TopologyContext.class.getConstructors()[0];
    List<Object> texts = new ArrayList<>(Arrays.asList("recorded-1-1", "code", "pids"));
    List<Object> numbers = new ArrayList<>(Arrays.asList(5, 6700));
    List<Object> maps = new ArrayList<>(Arrays.asList(conf, TASKS, components, fields));
    Object[] given = new Object[make.getParameterCount()];
    for (int i = 0; i < given.length; ++i) {
      Class<?> type = make.getParameterTypes()[i];
      if (type == StormTopology.class) {
        given[i] = topology;
      } else if (type == String.class) {
        given[i] = texts.remove(0);
      } else if (type == Integer.class) {
        given[i] = numbers.remove(0);
      } else if (type == List.class) {
        given[i] = new ArrayList<>(TASKS.keySet());
      } else if (type == Map.class) {
        given[i] = maps.isEmpty() ? new HashMap<Object, Object>() : maps.remove(0);
      } else {
        given[i] = null;  // what no bolt of this kind asks for
      }
    }
    return (TopologyContext) make.newInstance(given);
  }

  static List<List<Object>> tuples() {
    StringBuilder control = new StringBuilder();
    for (char c = 0; c < 0x20; ++c) {
      control.append(c);
    }
    StringBuilder longer = new StringBuilder();
    for (int i = 0; i < 9000; ++i) {
      longer.append((char) ('a' + i % 26));
    }
    Map<String, Object> map = new LinkedHashMap<>();
    map.put("a", Arrays.<Object>asList(1, 2L, null));
    map.put("\u00e9\"", "x/y");
    List<Object> keys = new ArrayList<>(Arrays.<Object>asList(
        "anna", "", 0, -1, 7L, Long.MAX_VALUE, Long.MIN_VALUE, (short) -3, (byte) 4, true, false,
        null, 4294967296L, new BigInteger("123456789012345678901234567890"),
        new BigDecimal("1.50"), 1.5, 0.1, -0.0, 1e300, 5e-324, 0.1f, Double.NaN,
        Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Float.NaN,
        "quote \" backslash \\ slash / end", control.toString(), "\u007f\u0080\u009f\u00a0",
        "\u2028\u2029\u2000\u20ff\ufeff\uffff", "caf\u00e9", "\u4e2d\u6587",
        "\ud83d\ude00 \ud800\udc00 \udbff\udfff", "lone \ud800 high", "lone \udc00 low", "\ud83d",
        "end", "\nend\n", "a\nend\nb", "{\"id\":\"1\"}", "\\u0041", "]}", "[[", "tuple",
        "\"stream\":\"__heartbeat\"", longer.toString(), Arrays.<Object>asList(), map,
        Arrays.<Object>asList(1, Arrays.<Object>asList("two", Collections.singletonMap("k", 3)))));
    List<List<Object>> out = new ArrayList<>();
    long sequence = 1L << 40;
    for (Object key : keys) {
      out.add(Arrays.asList(sequence++, key, "x"));
    }
    out.add(Collections.emptyList());
    out.add(Arrays.<Object>asList("only"));
    out.add(Arrays.<Object>asList("unescaped key", "second", "third", 4, "fifth"));
    return out;
  }

  static void send(ShellBolt bolt, PrintWriter expected, String comp, String stream, int task,
                   List<Object> values) {
    Tuple tuple = (Tuple) Proxy.newProxyInstance(Recorder.class.getClassLoader(),
        new Class<?>[] {Tuple.class}, (proxy, method, given) -> {
          switch (method.getName()) {
            case "getSourceComponent":
              return comp;
            case "getSourceStreamId":
              return stream;
            case "getSourceTask":
              return task;
            case "getValues":
              return values;
            case "hashCode":
              return System.identityHashCode(proxy);
            case "equals":
              return proxy == given[0];
            default:
              throw new UnsupportedOperationException(method.getName());
          }
        });
    bolt.execute(tuple);
    expected.println("{\"comp\":" + text(comp) + ",\"stream\":" + text(stream) + ",\"task\":" + task
        + ",\"values\":" + typed(values) + "}");
  }

  /** Answers of a child, and what the serializer reads in them. */
  static void replies(Path path) throws Exception {
    String[] answers = {
        "{\"command\":\"sync\"}",
        "{\"command\":\"ack\",\"id\":\"-69\"}",
        "{\"command\":\"fail\",\"id\":\"-69\"}",
        "{\"command\":\"emit\",\"anchors\":[\"-69\"],\"tuple\":[1,\"a\",null,true,1.5]}",
        "{\"command\":\"emit\",\"anchors\":\"-69\",\"stream\":\"s\",\"tuple\":[]}",
        "{\"command\":\"emit\",\"need_task_ids\":false,\"tuple\":[]}",
        "{\"command\":\"emit\",\"task\":0,\"tuple\":[]}",
        "{\"command\":\"emit\",\"task\":7,\"tuple\":[]}",
        "{\"command\":\"emit\",\"task\":4294967303,\"tuple\":[]}",
        "{\"command\":\"emit\",\"task\":4294967303,\"anchors\":[\"-69\"],\"stream\":\"default\","
            + "\"tuple\":[1099511627776,\"a\\/b\",\"\\u00e9\",\"\u00e9\"],\"need_task_ids\":false}",
        "{\"command\":\"emit\",\"tuple\":[0,-1,2147483648,9223372036854775807,9223372036854775808,"
            + "0.1,1e300,123456789.12345678901234567890]}",
        "{\"command\":\"emit\",\"tuple\":[NaN]}",
        "{\"command\":\"emit\",\"tuple\":[[1,{\"k\":2}]]}",
        "{\"command\":\"log\",\"msg\":\"text\",\"level\":3}",
        "{\"command\":\"log\",\"msg\":\"text\",\"level\":4294967299}",
        "{\"command\":\"log\",\"msg\":\"text\"}",
        "{\"command\":\"error\",\"msg\":\"text\"}",
        "{\"command\":\"metrics\",\"name\":\"m\",\"params\":1}",
        "{\"pid\":1}",
        "stray output",
        "[1]",
        "",
    };
    try (PrintWriter out = writer(path)) {
      for (String answer : answers) {
        JsonSerializer serializer = new JsonSerializer();
        byte[] bytes = (answer + "\nend\n").getBytes(StandardCharsets.UTF_8);
        serializer.initialize(new ByteArrayOutputStream(), new ByteArrayInputStream(bytes));
        String found;
        try {
          ShellMsg message = serializer.readShellMsg();
          found = "\"command\":" + text(message.getCommand()) + ",\"id\":" + typed(message.getId())
              + ",\"stream\":" + text(message.getStream()) + ",\"task\":" + (int) message.getTask()
              + ",\"need_task_ids\":" + message.areTaskIdsNeeded() + ",\"anchors\":"
              + typed(message.getAnchors()) + ",\"tuple\":" + typed(message.getTuple())
              + ",\"level\":" + text(String.valueOf(message.getLogLevel())) + ",\"msg\":"
              + text(message.getMsg());
        } catch (Throwable error) {
          found = "\"error\":" + text(error.getClass().getName());
        }
        out.println("{\"reply\":" + text(answer) + "," + found + "}");
      }
    }
  }

  static String typed(Object value) {
    if (value == null) {
      return "{\"t\":\"n\"}";
    }
    if (value instanceof List) {
      StringBuilder out = new StringBuilder();
      for (Object each : (List<?>) value) {
        out.append(out.length() == 0 ? "" : ",").append(typed(each));
      }
      return "{\"t\":\"list\",\"v\":[" + out + "]}";
    }
    if (value instanceof Map) {
      StringBuilder out = new StringBuilder();
      for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
        out.append(out.length() == 0 ? "" : ",").append("[").append(text((String) each.getKey()))
            .append(",").append(typed(each.getValue())).append("]");
      }
      return "{\"t\":\"map\",\"v\":[" + out + "]}";
    }
    String java = ",\"java\":\"" + value.getClass().getSimpleName() + "\"";
    if (value instanceof Boolean) {
      return "{\"t\":\"o\",\"v\":" + value + java + "}";
    }
    if (value instanceof String) {
      return "{\"t\":\"s\",\"v\":" + text((String) value) + java + "}";
    }
    boolean whole = value instanceof Integer || value instanceof Long || value instanceof Short
        || value instanceof Byte || value instanceof BigInteger;
    return "{\"t\":\"" + (whole ? "i" : "f") + "\",\"v\":" + text(value.toString()) + java + "}";
  }

  static String text(String text) {
    if (text == null) {
      return "null";
    }
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 0x20 || c > 0x7e) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }

  static PrintWriter writer(Path path) throws Exception {
    return new PrintWriter(Files.newBufferedWriter(path, StandardCharsets.US_ASCII));
  }
}
