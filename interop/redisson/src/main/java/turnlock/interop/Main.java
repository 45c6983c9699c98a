package turnlock.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Driver for one Redisson client. Reads requests from stdin; see interop/README.md for the protocol. */
public final class Main {
    private final RedissonClient client;
    private final Targets targets;
    private final Replies replies;
    private final Map<String, Worker> workers = new HashMap<>();

    private Main(RedissonClient client, Replies replies) {
        this.client = client;
        this.targets = new Targets(client);
        this.replies = replies;
    }

    /** Arguments: the address, in a form of {@link Servers}, and the watchdog time-out in milliseconds. */
    public static void main(String[] args) throws IOException {
        Replies replies = new Replies(System.out);
        // Only replies go to stdout, whatever a library may print.
        System.setOut(System.err);
        Main main = new Main(connect(args[0], Long.parseLong(args[1])), replies);
        replies.line("ready");
        main.read();
        // Threads that still wait for a lock would delay an orderly shutdown.
        Runtime.getRuntime().halt(0);
    }

    private static RedissonClient connect(String address, long watchdog) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(watchdog);
        Servers.configure(config, address);
        return Redisson.create(config);
    }

    /** Dispatches each line until {@code quit} or the end of stdin, which is when the parent process exits. */
    private void read() throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Request request = Request.parse(line);
            if (request.object().equals("quit")) {
                replies.ok(request, "-");
                return;
            }
            dispatch(request);
        }
    }

    private void dispatch(Request request) {
        Worker worker = workers.computeIfAbsent(request.thread(), Worker::new);
        switch (request.object()) {
            // Replied to at once, so that they also work for a blocked thread.
            case "me" -> replies.ok(request, client.getId() + ":" + worker.id());
            case "now" -> replies.ok(request, System.currentTimeMillis());
            case "interrupt" -> {
                worker.interrupt();
                replies.ok(request, "-");
            }
            default -> worker.run(() -> replies.outcome(request, () -> call(request)));
        }
    }

    private Object call(Request request) throws Exception {
        Arguments words = request.words();
        if (request.object().equals("herd")) {
            Gate gate = targets.gate(words.text(0), words.text(1));
            return new Herd(client, gate, words.text(2)).run(words.integer(3), words.integer(4));
        }
        return targets.of(request.thread(), request.object(), words.text(0)).call(words.text(1), words.after(2));
    }
}
