package turnlock.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** The lines to and from the driver. */
final class DriverLink {
    private final BufferedReader in;
    private final PrintStream out;

    DriverLink(InputStream in, PrintStream out) {
        this.in = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
        this.out = out;
    }

    void send(String line) {
        out.println(line);
        out.flush();
    }

    void send(long number) {
        send(Long.toString(number));
    }

    void sendUnsupported(String reason) {
        send("{\"unsupported\":" + Json.text(reason) + "}");
    }

    /** Reports that the participant is ready, and waits for the start. */
    void readyAndWait() throws IOException {
        send("ready");
        receive();
    }

    /** The next line, or null at the end. */
    String receive() throws IOException {
        return in.readLine();
    }

    void awaitEnd() throws IOException {
        while (receive() != null) {
            // No more commands are expected.
        }
    }
}
