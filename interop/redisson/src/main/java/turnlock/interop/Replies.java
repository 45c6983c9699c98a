package turnlock.interop;

import java.io.PrintStream;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;

/** Writes {@code <id> ok <value>} and {@code <id> error <exception> <message>}, one whole line at a time. */
final class Replies {
    private final PrintStream out;

    Replies(PrintStream out) {
        this.out = out;
    }

    void ok(Request request, Object value) {
        line(request.id() + " ok " + value);
    }

    /** Runs the work and writes what came of it. */
    void outcome(Request request, Callable<Object> work) {
        try {
            ok(request, work.call());
        } catch (Exception error) {
            // What an asynchronous call throws comes wrapped.
            Throwable told = error instanceof CompletionException ? error.getCause() : error;
            line(request.id() + " error " + told.getClass().getSimpleName() + " " + message(told));
        }
    }

    private static String message(Throwable error) {
        String cause = error.getCause() == null ? "" : " (caused by " + error.getCause() + ")";
        return (error.getMessage() + cause).replaceAll("\\s+", " ");
    }

    synchronized void line(String line) {
        out.println(line);
        out.flush();
    }
}
