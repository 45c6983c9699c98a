package turnlock.bench;

import java.util.Arrays;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson as a participant of the benchmark; the works and lines are described in bench/README.md. */
public final class Main {
    private Main() {}

    /** Takes the work, and the settings as {@code key=value}. */
    public static void main(String[] args) {
        int code = 0;
        Dialogue dialogue = new Dialogue(System.in, System.out);
        // Only what the contract asks for goes to stdout, whatever a library may print.
        System.setOut(System.err);
        try {
            obey(args[0], new Settings(Arrays.asList(args).subList(1, args.length)), dialogue);
        } catch (Exception error) {
            System.err.println("redisson: " + error);
            code = 1;
        }
        // Neither threads that still wait nor those of the client are to hold up the end.
        Runtime.getRuntime().halt(code);
    }

    private static void obey(String work, Settings settings, Dialogue dialogue) throws Exception {
        String reason = cannot(work, settings.kind());
        if (reason == null) {
            run(work, new Locks(connect(settings), settings), settings, dialogue);
            dialogue.awaitEnd();
        } else {
            dialogue.cannot(reason);
        }
    }

    /** Why the work cannot be done, or null. */
    private static String cannot(String work, String kind) {
        return switch (kind) {
            case "lock" -> switch (work) {
                case "pairs", "contend", "herd", "hand", "keep" -> null;
                default -> "there is no work " + work;
            };
            case "try" -> work.equals("pairs") ? null : "tryLock without time does not wait";
            default -> "there is no kind " + kind + " here";
        };
    }

    /** The client with its own defaults, but for the time-out of its watchdog. */
    private static RedissonClient connect(Settings settings) {
        Config config = new Config().setLockWatchdogTimeout(settings.leaseMillis());
        config.useSingleServer().setAddress("redis://127.0.0.1:" + settings.port());
        return Redisson.create(config);
    }

    private static void run(String work, Locks locks, Settings settings, Dialogue dialogue) throws Exception {
        switch (work) {
            case "pairs" -> new Pairs(locks, settings, dialogue).run();
            case "contend" -> new Contend(locks, settings, dialogue).run();
            case "herd" -> new Herd(locks, settings, dialogue).run();
            case "hand" -> new Hand(locks, settings, dialogue).run();
            case "keep" -> new Keep(locks, settings, dialogue).run();
            default -> throw new IllegalArgumentException(work);
        }
    }
}
