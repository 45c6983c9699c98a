package turnlock.bench;

import org.redisson.api.RLock;

/** Acquires and releases the lock on command. On Linux, {@link System#nanoTime} is CLOCK_MONOTONIC. */
record WakeUp(Locks locks, Settings settings, DriverLink driver) {
    void run() throws Exception {
        locks.warmUp();
        RLock lock = locks.shared();
        driver.send("ready");
        for (String command = driver.receive(); command != null; command = driver.receive()) {
            switch (command) {
                case "lock" -> {
                    lock.lock();
                    driver.send("ok");
                }
                case "unlock" -> {
                    long before = System.nanoTime();
                    lock.unlock();
                    driver.send(before);
                }
                case "wait" -> {
                    driver.send("waiting");
                    lock.lock();
                    long granted = System.nanoTime();
                    lock.unlock();
                    driver.send(granted);
                }
                default -> throw new IllegalArgumentException("unknown command " + command);
            }
        }
    }
}
