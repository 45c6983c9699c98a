package turnlock.bench;

import java.util.Arrays;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson as a participant of the benchmark; bench/README.md describes the protocol. */
public final class Main {
    private Main() {}

    /** The arguments are the workload, and the settings as {@code key=value}. */
    public static void main(String[] args) {
        int code = 0;
        DriverLink driver = new DriverLink(System.in, System.out);
        // Only lines of the protocol go to stdout, whatever a library may print.
        System.setOut(System.err);
        try {
            runWorkload(args[0], new Settings(Arrays.asList(args).subList(1, args.length)), driver);
        } catch (Exception error) {
            System.err.println("redisson: " + error);
            code = 1;
        }
        // Threads that still wait, and those of the client, must not delay the exit.
        Runtime.getRuntime().halt(code);
    }

    private static void runWorkload(String workload, Settings settings, DriverLink driver) throws Exception {
        String reason = unsupported(workload, settings.kind());
        if (reason == null) {
            run(workload, new Locks(connect(settings), settings), settings, driver);
            driver.awaitEnd();
        } else {
            driver.sendUnsupported(reason);
        }
    }

    /** Why the workload is not supported, or null. */
    private static String unsupported(String workload, String kind) {
        boolean known = switch (kind) {
            case "lock" -> true;
            case "try" -> workload.equals("pairs");
            case "fair" -> !workload.equals("hold");
            case "write", "read", "semaphore", "permits", "latch" -> workload.equals("herd");
            default -> false;
        };
        return known ? null : "kind " + kind + " has no workload " + workload;
    }

    /** A client with default settings, except for the watchdog time-out. */
    private static RedissonClient connect(Settings settings) {
        Config config = new Config().setLockWatchdogTimeout(settings.leaseMillis());
        if (settings.cluster().length == 0) {
            config.useSingleServer().setAddress("redis://127.0.0.1:" + settings.port());
        } else {
            for (String port : settings.cluster()) {
                config.useClusterServers().addNodeAddress("redis://127.0.0.1:" + port);
            }
        }
        return Redisson.create(config);
    }

    private static void run(String workload, Locks locks, Settings settings, DriverLink driver) throws Exception {
        switch (workload) {
            case "pairs" -> new Pairs(locks, settings, driver).run();
            case "contend" -> new Contend(locks, settings, driver).run();
            case "herd" -> new Herd(locks, settings, driver).run();
            case "wakeup" -> new WakeUp(locks, settings, driver).run();
            case "hold" -> new Hold(locks, settings, driver).run();
            default -> throw new IllegalArgumentException("there is no workload " + workload);
        }
    }
}
