package turnlock.bench;

/** Holds many locks, which the watchdog renews. */
record Hold(Locks locks, Settings settings, DriverLink driver) {
    /** The threads that acquire the locks. The watchdog renews them also when their threads have ended. */
    private static final int THREADS = 16;

    void run() throws Exception {
        Tally tally = new Tally(THREADS);
        Tasks.start(THREADS, tally, thread -> {
                    for (int number = thread; number < settings.locks(); number += THREADS) {
                        locks.numbered(number).lock();
                    }
                })
                .join();
        driver.readyAndWait();
        long start = System.nanoTime();
        Thread.sleep(settings.seconds() * 1_000);
        driver.send(tally.report(start));
    }
}
