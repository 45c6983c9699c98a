package turnlock.bench;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
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
        return lock(settings.lock());
    }

    /** One of many locks. */
    RLock numbered(int number) {
        return lock(settings.lock() + ":" + number);
    }

    private RLock lock(String name) {
        return settings.kind().equals("fair") ? client.getFairLock(name) : client.getLock(name);
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

    /** What all tasks of a herd wait for. The first one to use it creates permits or a count of one. */
    Gate gate(boolean first) {
        return gate(settings.lock(), first);
    }

    private Gate gate(String name, boolean first) {
        return switch (settings.kind()) {
            case "write" -> gate(client.getReadWriteLock(name).writeLock());
            // Readers wait for a writer.
            case "read" -> gate(
                    first ? client.getReadWriteLock(name).writeLock() : client.getReadWriteLock(name).readLock());
            case "semaphore" -> semaphore(client.getSemaphore(name), first);
            case "permits" -> permits(client.getPermitExpirableSemaphore(name), first);
            case "latch" -> latch(client.getCountDownLatch(name), first);
            default -> gate(lock(name));
        };
    }

    private static Gate gate(RLock lock) {
        return new Gate() {
            @Override
            public void acquire() {
                lock.lock();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    private static Gate semaphore(RSemaphore semaphore, boolean first) {
        return new Gate() {
            @Override
            public void acquire() throws InterruptedException {
                if (first) {
                    semaphore.trySetPermits(1);
                }
                semaphore.acquire();
            }

            @Override
            public void release() {
                semaphore.release();
            }
        };
    }

    private static Gate permits(RPermitExpirableSemaphore semaphore, boolean first) {
        return new Gate() {
            private String id;

            @Override
            public void acquire() throws InterruptedException {
                if (first) {
                    semaphore.trySetPermits(1);
                }
                id = semaphore.acquire();
            }

            @Override
            public void release() {
                semaphore.release(id);
            }
        };
    }

    private static Gate latch(RCountDownLatch latch, boolean first) {
        return new Gate() {
            @Override
            public void acquire() throws InterruptedException {
                if (first) {
                    latch.trySetCount(1);
                } else {
                    latch.await();
                }
            }

            @Override
            public void release() {
                if (first) {
                    latch.countDown();
                }
            }
        };
    }

    /** Processes that warm up at the same time do not contend. */
    void warmUp() throws Exception {
        String name = settings.lock() + ":warm:" + ProcessHandle.current().pid();
        RLock lock = lock(name);
        Gate gate = gate(name, true);
        for (long pair = 0; pair < settings.warmUp(); pair++) {
            if (settings.kind().equals("try")) {
                pair(lock);
            } else {
                gate.acquire();
                gate.release();
            }
        }
    }
}
