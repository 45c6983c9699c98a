package turnlock.bench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A number in a file that is read and written without care: two at once would lose a turn. */
final class Counter implements AutoCloseable {
    private final FileChannel file;

    Counter(Path path) throws IOException {
        file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    void up() throws IOException {
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
