package golden;

import org.apache.storm.daemon.GrouperFactory;
import org.apache.storm.generated.Grouping;
import org.apache.storm.grouping.LoadAwareCustomStreamGrouping;
import org.apache.storm.tuple.Fields;
import org.apache.storm.utils.TupleUtils;
import org.apache.storm.utils.VersionInfo;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Storm's fields grouping, asked through the factory that its executors use. */
final class Storm {

    private static final int[] TASKS = {1, 2, 3, 7, 8, 16, 200};
    private static final int MANY_TASKS = 1000;
    private static final int FIRST_TASK_ID = 5;

    private Storm() {}

    static String about() {
        return "Index into the ascending list of tasks given by fieldsGrouping of Apache Storm "
                + VersionInfo.getVersion()
                + ": GrouperFactory.mkGrouper with a fields grouping, which is"
                + " TupleUtils.chooseTaskIndex, floorMod(Arrays.deepHashCode(fields), tasks). The"
                + " types are java.lang String, Long, Integer (int), Short, Byte and Boolean, and"
                + " byte[] (bytes); a null of any type is a Java null.";
    }

    static List<String> vectors() {
        List<List<Value>> keys = new ArrayList<>();
        for (List<Value> single :
                List.of(
                        Keys.strings(),
                        Keys.longs(),
                        Keys.ints(),
                        Keys.shorts(),
                        Keys.bytes(),
                        Keys.booleans(),
                        Keys.byteArrays())) {
            single.forEach(value -> keys.add(List.of(value)));
        }
        for (String type : List.of("string", "long", "int", "short", "byte", "boolean", "bytes")) {
            keys.add(List.of(Value.nullOf(type)));
        }
        keys.addAll(Keys.composites());
        byte[] high = {(byte) 0xff, 0x00};
        keys.add(List.of(Value.of(high), Value.of("x")));
        keys.add(List.of(Value.of("x"), Value.of(high)));
        keys.add(List.of(Value.of(high), Value.of(high), Value.of(high)));
        keys.addAll(withNulls(List.of(Value.of("x"), Value.of("x"))));
        keys.addAll(withNulls(List.of(Value.of("x"), Value.of(1L))));
        keys.addAll(withNulls(List.of(Value.of(-1), Value.of("x"), Value.of(high))));

        List<String> vectors = new ArrayList<>();
        int turn = 0;
        for (List<Value> key : keys) {
            for (int tasks : new int[] {TASKS[turn++ % TASKS.length], MANY_TASKS}) {
                vectors.add(
                        String.format(
                                "{%s,\"tasks\":%d,\"home\":%d}",
                                Value.members(key), tasks, home(key, tasks)));
            }
        }
        return vectors;
    }

    /** The key with each non-empty subset of its fields replaced by null. */
    private static List<List<Value>> withNulls(List<Value> key) {
        List<List<Value>> keys = new ArrayList<>();
        for (int mask = 1; mask < 1 << key.size(); mask++) {
            List<Value> fields = new ArrayList<>(key);
            for (int i = 0; i < key.size(); i++) {
                if ((mask >> i & 1) == 1) {
                    fields.set(i, Value.nullOf(key.get(i).type()));
                }
            }
            keys.add(fields);
        }
        return keys;
    }

    private static int home(List<Value> key, int tasks) {
        // A field that is not grouped by comes first, and task ids arrive in descending order:
        // neither may matter.
        List<String> names = IntStream.range(0, key.size()).mapToObj(i -> "f" + i).toList();
        List<String> declared = new ArrayList<>(List.of("other"));
        declared.addAll(names);
        List<Object> fields =
                new ArrayList<>(Arrays.asList(key.stream().map(Value::object).toArray()));
        List<Object> tuple = new ArrayList<>(List.of("not part of the key"));
        tuple.addAll(fields);
        List<Integer> ids = new ArrayList<>();
        IntStream.range(FIRST_TASK_ID, FIRST_TASK_ID + tasks).forEach(ids::add);
        Collections.reverse(ids);

        LoadAwareCustomStreamGrouping grouping =
                GrouperFactory.mkGrouper(
                        null,
                        "spout",
                        "default",
                        new Fields(declared),
                        Grouping.fields(names),
                        ids,
                        Map.of());
        List<Integer> chosen = grouping.chooseTasks(1, tuple);
        int home = chosen.get(0) - FIRST_TASK_ID;
        if (chosen.size() != 1 || home != TupleUtils.chooseTaskIndex(fields, tasks)) {
            throw new AssertionError(
                    "the grouping disagrees with TupleUtils for " + Value.members(key));
        }
        return home;
    }
}
