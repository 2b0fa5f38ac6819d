package golden;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.ShortSerializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.UUIDSerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Utils;

import java.util.ArrayList;
import java.util.List;

/** The partition that Kafka's producer gives a record with a key and no partitioner of its own. */
final class Kafka {

    private static final int[] TASKS = {1, 2, 3, 7, 8, 12, 200};
    private static final int MANY_TASKS = 1000;

    private Kafka() {}

    static String about() {
        return "Partition given to a keyed record by the producer of Apache Kafka (kafka-clients "
                + AppInfoParser.getVersion()
                + "): BuiltInPartitioner.partitionForKey, toPositive(murmur2(bytes)) modulo the"
                + " number of partitions, on the bytes made by StringSerializer, LongSerializer,"
                + " IntegerSerializer, ShortSerializer, ByteArraySerializer (bytes) and"
                + " UUIDSerializer; the value of a uuid is its text. A record whose key is null is"
                + " not keyed, so it has no home.";
    }

    static List<String> vectors() {
        List<String> vectors = new ArrayList<>();
        take("string", new StringSerializer(), Keys.strings(), vectors);
        take("long", new LongSerializer(), Keys.longs(), vectors);
        take("integer", new IntegerSerializer(), Keys.ints(), vectors);
        take("short", new ShortSerializer(), Keys.shorts(), vectors);
        take("bytes", new ByteArraySerializer(), Keys.byteArrays(), vectors);
        take("uuid", new UUIDSerializer(), Keys.uuids(), vectors);
        return vectors;
    }

    private static <T> void take(
            String name, Serializer<T> serializer, List<Value> keys, List<String> vectors) {
        int turn = 0;
        for (Value key : keys) {
            @SuppressWarnings("unchecked")
            T object = (T) key.object();
            byte[] bytes = serializer.serialize("topic", object);
            for (int tasks : new int[] {TASKS[turn++ % TASKS.length], MANY_TASKS}) {
                int home = BuiltInPartitioner.partitionForKey(bytes, tasks);
                if (home != Utils.toPositive(Utils.murmur2(bytes)) % tasks) {
                    throw new AssertionError(
                            "the partitioner disagrees with murmur2 for " + key.json());
                }
                vectors.add(
                        String.format(
                                "{\"serializer\":\"%s\",\"value\":%s,\"tasks\":%d,\"home\":%d}",
                                name, key.json(), tasks, home));
            }
        }
    }
}
