package golden;

import java.util.Base64;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;

/**
 * A key, or one field of it: the name of its type in the vectors, and the Java object the engine
 * gets.
 */
record Value(String type, Object object) {

    static Value of(Object object) {
        return new Value(typeName(object.getClass()), object);
    }

    static Value nullOf(String type) {
        return new Value(type, null);
    }

    private static String typeName(Class<?> type) {
        return type == byte[].class
                ? "bytes"
                : type.getSimpleName().toLowerCase().replace("integer", "int");
    }

    /** The typed form in JSON. */
    String json() {
        if (object == null) {
            return "{\"t\":\"n\"}";
        }
        if (object instanceof Boolean) {
            return "{\"t\":\"o\",\"v\":" + object + "}";
        }
        if (object instanceof byte[] bytes) {
            return "{\"t\":\"b\",\"v\":\"" + Base64.getEncoder().encodeToString(bytes) + "\"}";
        }
        if (object instanceof String || object instanceof UUID) {
            return "{\"t\":\"s\",\"v\":" + quote(object.toString()) + "}";
        }
        return "{\"t\":\"i\",\"v\":\"" + object + "\"}";
    }

    /** The members "types" and "values" of a vector. */
    static String members(List<Value> fields) {
        String types = fields.stream().map(f -> quote(f.type())).collect(Collectors.joining(","));
        String values = fields.stream().map(Value::json).collect(Collectors.joining(","));
        return "\"types\":[" + types + "],\"values\":[" + values + "]";
    }

    /** A JSON string in ASCII. */
    static String quote(String text) {
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
}
