package pyroute.storm;

/** Bytes that are not what they should be; the twin of {@code pr.FormatError}. */
public final class FormatException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    FormatException(String message) {
        super(message);
    }
}
