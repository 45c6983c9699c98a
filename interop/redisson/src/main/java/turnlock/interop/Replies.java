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

    /** Runs the call and writes its result or exception. */
    void outcome(Request request, Callable<Object> call) {
        try {
            ok(request, call.call());
        } catch (Exception error) {
            // An asynchronous call wraps its exception.
            Throwable cause = error instanceof CompletionException ? error.getCause() : error;
            line(request.id() + " error " + cause.getClass().getSimpleName() + " " + message(cause));
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
