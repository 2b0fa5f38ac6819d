package golden;

import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.util.EnvironmentInformation;

import java.util.ArrayList;
import java.util.List;

/** The subtask that Flink gives a key after keyBy. */
final class Flink {

    private static final int[] MAX_PARALLELISMS = {128, 4096, 32768};
    private static final int[] PARALLELISMS = {1, 3, 8, 128};

    private Flink() {}

    static String about() {
        return "Index of the subtask given to a key by keyBy of Apache Flink "
                + EnvironmentInformation.getVersion()
                + ": KeyGroupRangeAssignment.assignKeyToParallelOperator(key, max_parallelism,"
                + " tasks). One type is the object itself (java.lang String, Long, Integer (int),"
                + " Short, Byte, Boolean), not a Tuple1; two or three are a Tuple2 or Tuple3 of"
                + " such objects. Flink refuses a key that is null, and arrays as keys.";
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
                        Keys.booleans())) {
            single.forEach(value -> keys.add(List.of(value)));
        }
        keys.addAll(Keys.composites());

        List<String> vectors = new ArrayList<>();
        int turn = 0;
        for (List<Value> key : keys) {
            // Every combination in turn, and always the one that tells most keys apart.
            int max = MAX_PARALLELISMS[turn % MAX_PARALLELISMS.length];
            int tasks = PARALLELISMS[turn / MAX_PARALLELISMS.length % PARALLELISMS.length];
            turn++;
            vectors.add(vector(key, max, tasks));
            if (max != 32768 || tasks != 128) {
                vectors.add(vector(key, 32768, 128));
            }
        }
        return vectors;
    }

    private static String vector(List<Value> key, int max, int tasks) {
        int home = KeyGroupRangeAssignment.assignKeyToParallelOperator(keyObject(key), max, tasks);
        return String.format(
                "{%s,\"tasks\":%d,\"max_parallelism\":%d,\"home\":%d}",
                Value.members(key), tasks, max, home);
    }

    private static Object keyObject(List<Value> key) {
        if (key.size() == 1) {
            return key.get(0).object();
        }
        Tuple tuple = Tuple.newInstance(key.size());
        for (int i = 0; i < key.size(); i++) {
            tuple.setField(key.get(i).object(), i);
        }
        return tuple;
    }
}
