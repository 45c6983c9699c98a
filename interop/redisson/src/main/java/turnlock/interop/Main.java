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

/** Drives one client of Redisson by lines on stdin; the lines are described in interop/README.md. */
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

    /** Takes the address, in one of the forms of {@link Servers}, and the watchdog's timeout in milliseconds. */
    public static void main(String[] args) throws IOException {
        Replies replies = new Replies(System.out);
        // Only replies go to stdout, whatever a library may print.
        System.setOut(System.err);
        Main main = new Main(connect(args[0], Long.parseLong(args[1])), replies);
        replies.line("ready");
        main.read();
        // Threads that still wait for a lock would hold up an orderly end.
        Runtime.getRuntime().halt(0);
    }

    private static RedissonClient connect(String address, long watchdog) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(watchdog);
        Servers.configure(config, address);
        return Redisson.create(config);
    }

    /** Passes each line on, until {@code quit} or the end of stdin: the end of whoever started this. */
    private void read() throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Request request = Request.parse(line);
            if (request.object().equals("quit")) {
                replies.ok(request, "-");
                return;
            }
            pass(request);
        }
    }

    private void pass(Request request) {
        Worker worker = workers.computeIfAbsent(request.thread(), Worker::new);
        switch (request.object()) {
            // Answered at once, so that they also work for a thread that is blocked.
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
