package turnlock.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** The lines to and from whoever started this. */
final class Dialogue {
    private final BufferedReader in;
    private final PrintStream out;

    Dialogue(InputStream in, PrintStream out) {
        this.in = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
        this.out = out;
    }

    void say(String line) {
        out.println(line);
        out.flush();
    }

    void say(long number) {
        say(Long.toString(number));
    }

    void cannot(String reason) {
        say("{\"cannot\":" + Json.text(reason) + "}");
    }

    void readyAndGo() throws IOException {
        say("ready");
        hear();
    }

    /** The next line, or null at the end. */
    String hear() throws IOException {
        return in.readLine();
    }

    void awaitEnd() throws IOException {
        while (hear() != null) {
            // Nothing more is asked for.
        }
    }
}
