package pyroute.storm;

/** Bytes that are not what they should be; the twin of {@code pr.FormatError}. */
public final class FormatException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    FormatException(String message) {
        super(message);
    }

    /** The same, of this version of a document. */
    FormatException of(long version) {
        return new FormatException("version " + version + ": " + getMessage());
    }
}
