package turnlock.bench;

import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/** Many tasks wait for a held lock, and acquire it one after the other once it is released. */
record Herd(Locks locks, Settings settings, DriverLink driver) {
    private static final long NOT_RELEASED = Long.MIN_VALUE;

    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        AtomicLong releasedAt = new AtomicLong(NOT_RELEASED);
        locks.warmUp();
        driver.readyAndWait();
        RLock held = locks.shared();
        held.lock();
        Tasks waiters = Tasks.start(settings.tasks(), tally, task -> {
            RLock lock = locks.shared();
            lock.lock();
            long granted = System.nanoTime();
            long since = releasedAt.get();
            if (since == NOT_RELEASED) {
                tally.error("granted while it was held");
            } else {
                tally.turn(task, granted - since);
            }
            lock.unlock();
        });
        Thread.sleep(settings.holdMillis());
        long start = System.nanoTime();
        releasedAt.set(start);
        held.unlock();
        tally.unfinished(waiters.join(settings.seconds()));
        driver.send(tally.report(start));
    }
}
