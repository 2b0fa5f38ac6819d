package pyroute.storm;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;
import org.apache.storm.shade.org.apache.zookeeper.KeeperException;
import org.apache.storm.shade.org.apache.zookeeper.ZooKeeper;
import org.apache.storm.shade.org.apache.zookeeper.data.Stat;

/**
 * Reads the documents of {@code pyroute.control.ConfigStore}: a directory ({@code dir:PATH}), ZooKeeper ({@code
 * zk://HOST:PORT/PATH}, through the classes that Storm carries), or one file with a router's bytes ({@code
 * file:PATH}, which has one version). The layouts are those of docs/config-store.md.
 *
 * <p>For one thread.
 */
abstract class ConfigStore implements Closeable {
    static final int HEADER = 48;
    private static final int MAGIC = 0x50594346; // PYCF
    private static final int COVERED = 24;
    private static final long LONGEST = 1 << 30;
    private static final int TRIES = 10;

    /** One version of a document. */
    static final class Document {
        final long version;
        final byte[] value;

        Document(long version, byte[] value) {
            this.version = version;
            this.value = value;
        }
    }

    static ConfigStore open(String url) {
        if (url.startsWith("dir:") && url.length() > 4) {
            return new Directory(Paths.get(url.substring(4)));
        }
        if (url.startsWith("file:") && url.length() > 5) {
            return new SingleFile(Paths.get(url.substring(5)));
        }
        if (url.startsWith("zk://")) {
            return new Nodes(url.substring(5));
        }
        throw new IllegalArgumentException("store: expected dir:PATH, zk://HOST:PORT/PATH or file:PATH, got " + url);
    }

    /**
     * The newest version of a document; null where there is none, or none but the known one. Throws {@link
     * FormatException} where it is damaged, {@link IOException} where the store cannot be reached.
     */
    abstract Document read(String name, long known) throws IOException, InterruptedException;

    @Override
    public void close() throws IOException {}

    /** A document's name as one part of a path; the twin of {@code encoded_name}. */
    static String encodedName(String name) {
        StringBuilder out = new StringBuilder();
        for (byte each : name.getBytes(StandardCharsets.UTF_8)) {
            char c = (char) (each & 0xFF);
            boolean plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
                    || c == '~' || c == '.' && out.length() > 0;
            if (plain) {
                out.append(c);
            } else {
                out.append(String.format("%%%02X", (int) c));
            }
        }
        return out.toString();
    }

    /** The content of an envelope; parts are where it lies, where that is elsewhere. */
    static byte[] unpack(byte[] data, byte[] content) {
        ByteBuffer head = ByteBuffer.wrap(data);
        int codec = head.get(6);
        int length = (int) head.getLong(16);
        byte[] plain = content;
        if (codec == 1) {
            plain = inflated(content, length);
        }
        Reader.check(plain.length == length, "document", length + " bytes");
        CRC32 checksum = new CRC32();
        checksum.update(data, 0, COVERED);
        checksum.update(plain, 0, plain.length);
        Reader.check((int) checksum.getValue() == head.getInt(24), "document", "an intact checksum");
        return plain;
    }

    /** No more than the length, which may be wrong: room is made for what comes, and not for what was said. */
    private static byte[] inflated(byte[] content, int length) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(Math.min(length, content.length));
        byte[] block = new byte[1 << 14];
        Inflater inflater = new Inflater();
        try {
            inflater.setInput(content);
            for (int more; out.size() <= length && (more = inflater.inflate(block)) > 0; ) {
                out.write(block, 0, more);
            }
        } catch (DataFormatException error) {
            throw new FormatException("document: expected zlib, got " + error.getMessage());
        } finally {
            inflater.end();
        }
        return out.toByteArray();
    }

    /** Checks a header; the number of chunks. */
    static int header(byte[] data, long version) {
        Reader.check(data.length >= HEADER, "document", "an envelope");
        ByteBuffer head = ByteBuffer.wrap(data);
        Reader.check(head.getInt(0) == MAGIC, "document", "an envelope");
        Reader.check(head.get(4) == 1 && head.get(7) == 0, "document", "format 1");
        Reader.check(head.get(5) == 0, "document", "bytes of a router");
        Reader.check(head.get(6) == 0 || head.get(6) == 1, "document", "a known codec");
        Reader.check(head.getLong(8) == version, "document", "version " + version);
        Reader.check(head.getLong(16) >= 0 && head.getLong(16) <= LONGEST, "document", "at most " + LONGEST + " bytes");
        return head.getInt(28);
    }

    static byte[] after(byte[] data) {
        return java.util.Arrays.copyOfRange(data, HEADER, data.length);
    }

    private static final class SingleFile extends ConfigStore {
        private final Path path;

        SingleFile(Path path) {
            this.path = path;
        }

        @Override
        Document read(String name, long known) throws IOException {
            if (known == 1) {
                return null;
            }
            byte[] data = Files.readAllBytes(path);
            Router.fromBytes(data); // what somebody is still writing is no version
            return new Document(1, data);
        }
    }

    private static final class Directory extends ConfigStore {
        private final Path root;

        Directory(Path root) {
            this.root = root;
        }

        @Override
        Document read(String name, long known) throws IOException {
            Path folder = root.resolve(encodedName(name));
            for (int i = 0; i < TRIES; ++i) {
                long newest = newest(folder);
                if (newest == 0 || newest == known) {
                    return null;
                }
                byte[] data;
                try {
                    data = Files.readAllBytes(folder.resolve(String.format("%020d", newest)));
                } catch (NoSuchFileException error) {
                    continue; // an old one by now, and removed
                }
                try {
                    Reader.check(header(data, newest) == 0, "chunks", "none in a file");
                    return new Document(newest, unpack(data, after(data)));
                } catch (FormatException error) {
                    throw error.of(newest);
                }
            }
            throw new IOException(folder + ": expected the file of the newest version, got none");
        }

        private static long newest(Path folder) throws IOException {
            long newest = 0;
            try (DirectoryStream<Path> paths = Files.newDirectoryStream(folder)) {
                for (Path path : paths) {
                    String name = path.getFileName().toString();
                    if (name.length() == 20 && name.chars().allMatch(c -> c >= '0' && c <= '9')) {
                        newest = Math.max(newest, Long.parseLong(name));
                    }
                }
            } catch (NoSuchFileException | NotDirectoryException error) {
                return 0;
            }
            return newest;
        }
    }

    /** Sessions that end are opened anew; every read is of what is there now. */
    private static final class Nodes extends ConfigStore {
        private final String hosts;
        private final String path;
        private ZooKeeper client;

        Nodes(String place) {
            int slash = place.indexOf('/');
            hosts = slash < 0 ? place : place.substring(0, slash);
            String rest = slash < 0 ? "" : place.substring(slash);
            path = rest.endsWith("/") ? rest.substring(0, rest.length() - 1) : rest;
        }

        @Override
        Document read(String name, long known) throws IOException, InterruptedException {
            if (client == null || !client.getState().isAlive()) {
                close();
                client = new ZooKeeper(hosts, 10_000, event -> {});
            }
            String encoded = encodedName(name);
            String node = path + "/" + encoded;
            try {
                for (int i = 0; i < TRIES; ++i) {
                    Stat stat = client.exists(node, false);
                    if (stat == null || stat.getVersion() + 1L == known) {
                        return null;
                    }
                    byte[] data = client.getData(node, false, stat);
                    long version = stat.getVersion() + 1L;
                    try {
                        int chunks = header(data, version);
                        byte[] content = chunks == 0 ? after(data) : chunks(encoded, data, chunks);
                        return new Document(version, unpack(data, content));
                    } catch (FormatException error) {
                        throw error.of(version);
                    } catch (KeeperException.NoNodeException error) {
                        continue; // written again meanwhile
                    }
                }
                throw new IOException(node + ": expected all of its chunks, got some missing");
            } catch (KeeperException.NoNodeException error) {
                return null;
            } catch (KeeperException error) {
                throw new IOException(hosts + ": expected ZooKeeper, got " + error, error);
            }
        }

        private byte[] chunks(String encoded, byte[] data, int count) throws KeeperException, InterruptedException {
            String name = new String(after(data), StandardCharsets.US_ASCII);
            Reader.check(name.matches("[0-9]{20}-[0-9a-f]{32}"), "chunks", "the name of their node");
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            for (int i = 0; i < count; ++i) {
                byte[] part = client.getData(path + "/.chunks/" + encoded + "/" + name + "/" + String.format("%06d", i), false, null);
                out.write(part, 0, part.length);
            }
            return out.toByteArray();
        }

        @Override
        public void close() throws IOException {
            if (client != null) {
                try {
                    client.close();
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
                client = null;
            }
        }
    }
}
