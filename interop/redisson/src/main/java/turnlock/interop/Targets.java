package turnlock.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * The objects by thread, kind and name. Each is created once and never shared between threads: a Redisson lock remembers
 * the last lease that was requested, and uses it again for calls without a lease and for a partial unlock.
 */
final class Targets {
    private final RedissonClient client;
    private final Map<String, Target> targets = new ConcurrentHashMap<>();

    Targets(RedissonClient client) {
        this.client = client;
    }

    Target of(String thread, String kind, String name) {
        return targets.computeIfAbsent(thread + " " + kind + " " + name, key -> make(kind, name));
    }

    private Target make(String kind, String name) {
        return switch (kind) {
            case "semaphore" -> new SemaphoreTarget(client.getSemaphore(name));
            case "permits" -> new PermitsTarget(client.getPermitExpirableSemaphore(name));
            case "latch" -> new LatchTarget(client.getCountDownLatch(name));
            case "fenced" -> new FencedTarget(client.getFencedLock(name));
            default -> new LockTarget(lock(kind, name));
        };
    }

    private RLock lock(String kind, String name) {
        return switch (kind) {
            case "lock" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "spin" -> client.getSpinLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "multi" -> client.getMultiLock(Stream.of(name.split(",")).map(client::getLock).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException("there is no object " + kind);
        };
    }

    /** Returns a gate that acquires and releases a lock or a permit. */
    Gate gate(String kind, String name) {
        switch (kind) {
            case "semaphore" -> {
                RSemaphore semaphore = client.getSemaphore(name);
                return () -> {
                    semaphore.acquire();
                    return semaphore::release;
                };
            }
            case "permits" -> {
                RPermitExpirableSemaphore permits = client.getPermitExpirableSemaphore(name);
                return () -> {
                    String permit = permits.acquire();
                    return () -> permits.release(permit);
                };
            }
            default -> {
                RLock lock = lock(kind, name);
                return () -> {
                    lock.lock();
                    return lock::unlock;
                };
            }
        }
    }
}
