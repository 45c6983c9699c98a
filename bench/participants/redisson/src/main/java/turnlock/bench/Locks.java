package turnlock.bench;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The locks of one client, and how they are acquired. */
final class Locks {
    private final RedissonClient client;
    private final Settings settings;

    Locks(RedissonClient client, Settings settings) {
        this.client = client;
        this.settings = settings;
    }

    /** The lock that all tasks share. */
    RLock shared() {
        return client.getLock(settings.lock());
    }

    /** One of many locks. */
    RLock numbered(int number) {
        return client.getLock(settings.lock() + ":" + number);
    }

    /** Acquires and releases a lock, by {@code lock} or {@code tryLock} depending on the kind. */
    void pair(RLock lock) throws InterruptedException {
        if (!settings.kind().equals("try")) {
            lock.lock();
        } else if (!lock.tryLock(0, -1, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("a free lock was not granted");
        }
        lock.unlock();
    }

    void warmUp() throws InterruptedException {
        RLock lock = client.getLock(settings.lock() + ":warm");
        for (long pair = 0; pair < settings.warmUp(); pair++) {
            pair(lock);
        }
    }
}
