package turnlock.bench;

import org.redisson.api.RLock;

/** Each task acquires and releases a lock of its own, repeatedly. */
record Pairs(Locks locks, Settings settings, DriverLink driver) {
    void run() throws Exception {
        Tally tally = new Tally(settings.tasks());
        locks.warmUp();
        driver.readyAndWait();
        long start = System.nanoTime();
        Tasks.start(settings.tasks(), tally, task -> runPairs(task, tally)).join();
        driver.send(tally.report(start));
    }

    private void runPairs(int task, Tally tally) throws InterruptedException {
        RLock lock = locks.numbered(task);
        boolean timed = settings.tasks() == 1;
        long share = settings.turns() / settings.tasks() + (task < settings.turns() % settings.tasks() ? 1 : 0);
        for (long turn = 0; turn < share; turn++) {
            long requested = System.nanoTime();
            try {
                locks.pair(lock);
                if (timed) {
                    tally.turn(task, System.nanoTime() - requested);
                } else {
                    tally.turn(task);
                }
            } catch (RuntimeException error) {
                tally.error(error.toString());
            }
        }
    }
}
