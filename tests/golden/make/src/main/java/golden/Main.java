package golden;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;

/** Takes home_storm.json, home_kafka.json and home_flink.json from the engines' own classes. */
public final class Main {

    private Main() {}

    /**
     * Writes the three files; one that exists is never overwritten.
     *
     * @param args the directory to write to
     */
    public static void main(String[] args) throws IOException {
        if (args.length != 1) {
            throw new IllegalArgumentException("expected one argument, the directory to write to");
        }
        Path directory = Path.of(args[0]);
        write(directory.resolve("home_storm.json"), Storm.about(), Storm.vectors());
        write(directory.resolve("home_kafka.json"), Kafka.about(), Kafka.vectors());
        write(directory.resolve("home_flink.json"), Flink.about(), Flink.vectors());
    }

    private static void write(Path path, String about, List<String> vectors) throws IOException {
        String lines = String.join(",\n", vectors);
        String text = "{\"about\":" + Value.quote(about) + ",\n\"vectors\":[\n" + lines + "\n]}\n";
        Files.writeString(path, text, StandardCharsets.US_ASCII, StandardOpenOption.CREATE_NEW);
        System.out.println(path.getFileName() + ": " + vectors.size() + " vectors");
    }
}
