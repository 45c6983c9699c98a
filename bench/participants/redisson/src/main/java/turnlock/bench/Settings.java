package turnlock.bench;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The arguments {@code key=value}. Unknown keys are ignored. */
final class Settings {
    private final Map<String, String> values = new HashMap<>();

    Settings(List<String> arguments) {
        for (String argument : arguments) {
            int middle = argument.indexOf('=');
            if (middle >= 0) {
                values.put(argument.substring(0, middle), argument.substring(middle + 1));
            }
        }
    }

    int port() {
        return (int) number("port", 6379);
    }

    /** The ports of the masters of a cluster; empty for a single server. */
    String[] cluster() {
        String ports = text("cluster", "");
        return ports.isEmpty() ? new String[] {} : ports.split(",");
    }

    String lock() {
        return text("lock", "lock");
    }

    int tasks() {
        return (int) number("tasks", 1);
    }

    /** The number of grants to all tasks together. */
    long turns() {
        return number("turns", 0);
    }

    long seconds() {
        return number("seconds", 10);
    }

    long leaseMillis() {
        return number("lease_ms", 30_000);
    }

    long warmUp() {
        return number("warm_up", 0);
    }

    long holdMillis() {
        return number("hold_ms", 1_000);
    }

    String counter() {
        return text("counter", "");
    }

    int locks() {
        return (int) number("locks", 1);
    }

    String kind() {
        return text("kind", "lock");
    }

    private String text(String key, String defaultValue) {
        return values.getOrDefault(key, defaultValue);
    }

    private long number(String key, long defaultValue) {
        String value = values.get(key);
        return value == null ? defaultValue : Long.parseLong(value);
    }
}
