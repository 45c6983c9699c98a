package turnlock.bench;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The words {@code key=value}. Those that nobody asks for are ignored. */
final class Settings {
    private final Map<String, String> values = new HashMap<>();

    Settings(List<String> words) {
        for (String word : words) {
            int middle = word.indexOf('=');
            if (middle >= 0) {
                values.put(word.substring(0, middle), word.substring(middle + 1));
            }
        }
    }

    int port() {
        return (int) number("port", 6379);
    }

    String lock() {
        return text("lock", "lock");
    }

    int tasks() {
        return (int) number("tasks", 1);
    }

    /** In all tasks together. */
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

    private String text(String key, String missing) {
        return values.getOrDefault(key, missing);
    }

    private long number(String key, long missing) {
        String value = values.get(key);
        return value == null ? missing : Long.parseLong(value);
    }
}
