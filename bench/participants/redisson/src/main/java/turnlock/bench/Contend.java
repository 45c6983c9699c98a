package turnlock.bench;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/** All tasks contend for one lock. A task that waits when the time is over still acquires it once. */
record Contend(Locks locks, Settings settings, DriverLink driver) {
    /** How long tasks that wait when the time is over may still wait. */
    private static final long GRACE_SECONDS = 20;

    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        try (Counter counter = new Counter(Path.of(settings.counter()))) {
            AtomicLong left = new AtomicLong(settings.turns() == 0 ? Long.MAX_VALUE : settings.turns());
            locks.warmUp();
            driver.readyAndWait();
            long start = System.nanoTime();
            long limit = settings.seconds() * 1_000_000_000L;
            Tasks tasks = Tasks.start(settings.tasks(), tally, task -> {
                RLock lock = locks.shared();
                while (System.nanoTime() - start < limit && left.decrementAndGet() >= 0) {
                    increment(task, lock, counter, tally);
                }
            });
            tally.unfinished(tasks.join(settings.seconds() + GRACE_SECONDS));
            driver.send(tally.report(start));
        }
    }

    private static void increment(int task, RLock lock, Counter counter, Tally tally) throws IOException {
        long requested = System.nanoTime();
        try {
            lock.lock();
            long waited = System.nanoTime() - requested;
            counter.increment();
            tally.turn(task, waited);
            lock.unlock();
        } catch (RuntimeException error) {
            tally.error(error.toString());
        }
    }
}
