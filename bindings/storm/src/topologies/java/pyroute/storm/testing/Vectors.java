package pyroute.storm.testing;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.function.Supplier;
import pyroute.storm.KeyHash;
import pyroute.storm.RoutedGrouping;
import pyroute.storm.Router;

/**
 * Answers on stdout what the JVM says to each line on stdin: "R base64" takes a router; "K salt value..." gives the identity and the
 * task of a key, each value as n, o0, o1, i123 (a long), j123 (an int), g123 (a BigInteger), s or b and base64; "G word store base64
 * fields..." makes a RoutedGrouping of a consumer that is mergeable or keyed, once by the store and once by the bytes.
 */
public final class Vectors {
    private Vectors() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        KeyHash hash = new KeyHash();
        Router router = null;
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                if (words[0].equals("R")) {
                    router = Router.fromBytes(Base64.getDecoder().decode(words[1]));
                    out.append("ok ").append(router.version()).append('\n');
                    continue;
                }
                if (words[0].equals("G")) {
                    boolean mergeable = words[1].equals("mergeable");
                    String[] fields = Arrays.copyOfRange(words, 4, words.length);
                    byte[] bytes = Base64.getDecoder().decode(words[3]);
                    out.append(made(() -> new RoutedGrouping(mergeable, words[2], "edge", fields)))
                            .append(" | ")
                            .append(made(() -> new RoutedGrouping(mergeable, words[2], "edge", Arrays.asList(fields))))
                            .append(" | ")
                            .append(made(() -> new RoutedGrouping(mergeable, bytes, fields)))
                            .append('\n');
                    continue;
                }
                List<Object> values = new ArrayList<>();
                int[] positions = new int[words.length - 2];
                for (int i = 2; i < words.length; ++i) {
                    positions[i - 2] = i - 2;
                    values.add(value(words[i]));
                }
                out.append(Long.toUnsignedString(hash.key(values, positions))).append(' ')
                        .append(router.route(hash, values, positions, Long.parseLong(words[1]))).append('\n');
            } catch (RuntimeException error) {
                out.append("error ").append(error.getMessage()).append('\n');
            }
        }
        System.out.print(out);
        System.out.flush();
    }

    private static String made(Supplier<Object> maker) {
        try {
            maker.get();
            return "ok";
        } catch (RuntimeException error) {
            return "error " + error.getMessage();
        }
    }

    private static Object value(String word) {
        String rest = word.substring(1);
        switch (word.charAt(0)) {
            case 'n':
                return null;
            case 'o':
                return rest.equals("1");
            case 'i':
                return Long.parseLong(rest);
            case 'j':
                return Integer.parseInt(rest);
            case 'g':
                return new BigInteger(rest);
            case 's':
                return new String(Base64.getDecoder().decode(rest), StandardCharsets.UTF_8);
            case 'b':
                return Base64.getDecoder().decode(rest);
            case 'f':
                return Double.parseDouble(rest);
            default:
                throw new IllegalArgumentException(word);
        }
    }
}
