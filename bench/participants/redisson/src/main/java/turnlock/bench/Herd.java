package turnlock.bench;

import java.util.concurrent.atomic.AtomicLong;

/** Many tasks wait for a lock, a permit or a latch, and acquire it once it is released. */
record Herd(Locks locks, Settings settings, DriverLink driver) {
    private static final long NOT_RELEASED = Long.MIN_VALUE;

    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        AtomicLong releasedAt = new AtomicLong(NOT_RELEASED);
        locks.warmUp();
        driver.readyAndWait();
        Gate held = locks.gate(true);
        held.acquire();
        Tasks waiters = Tasks.start(settings.tasks(), tally, task -> {
            Gate gate = locks.gate(false);
            gate.acquire();
            long granted = System.nanoTime();
            long since = releasedAt.get();
            if (since == NOT_RELEASED) {
                tally.error("granted while it was held");
            } else {
                tally.turn(task, granted - since);
            }
            gate.release();
        });
        Thread.sleep(settings.holdMillis());
        long start = System.nanoTime();
        releasedAt.set(start);
        held.release();
        tally.unfinished(waiters.join(settings.seconds()));
        driver.send(tally.report(start));
    }
}
