package turnlock.bench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A counter in a file that is incremented without atomicity: two holders at once would lose an increment. */
final class Counter implements AutoCloseable {
    private final FileChannel file;

    Counter(Path path) throws IOException {
        file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    void increment() throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        file.read(bytes, 0);
        bytes.putLong(0, bytes.getLong(0) + 1).rewind();
        file.write(bytes, 0);
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
